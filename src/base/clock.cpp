#include "base/clock.h"

namespace theseus::base {

const SteadyClock& SteadyClock::instance() {
  static const SteadyClock clock;
  return clock;
}

}  // namespace theseus::base
