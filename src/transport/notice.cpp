#include "transport/notice.h"

#include <fmt/format.h>

#include <cstdio>

namespace theseus::transport {

void notice(std::string_view line) { fmt::print(stderr, "theseus: {}\n", line); }

}  // namespace theseus::transport
