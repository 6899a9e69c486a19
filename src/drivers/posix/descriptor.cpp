#include "drivers/posix/descriptor.h"

#include <sched.h>
#include <unistd.h>

#include <system_error>

namespace theseus::drivers {

void FileDescriptor::close() {
  if (value_ >= 0) ::close(value_);
  value_ = -1;
}

tl::unexpected<Error> failSystem(const std::string& what, int code, ErrorCode kind) {
  return fail(kind, what + ": " + std::generic_category().message(code));
}

int availableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // More than 1,024 cores make the call fail; then the number hardly matters to a caller who asks "more ranks
  // than cores?".
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return CPU_SETSIZE;
  const int count = CPU_COUNT(&set);
  return count > 0 ? count : 1;
}

}  // namespace theseus::drivers
