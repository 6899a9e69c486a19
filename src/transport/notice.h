// One line to the operator about something odd that did not stop the job, such as a stranger at the port. Any
// thread.
#pragma once

#include <string_view>

namespace theseus::transport {

void notice(std::string_view line);

}  // namespace theseus::transport
