#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace theseus::base {

void checkFailed(const char* expression, const char* message, const char* file, int line) {
  std::fprintf(stderr, "theseus: internal error: %s (%s) at %s:%d\n", message, expression, file, line);
  std::abort();
}

}  // namespace theseus::base
