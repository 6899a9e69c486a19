// What one TCP stream carries between two idle ranks of the demonstration's network: the B of its lower
// bound. Blocking, bounded.
#pragma once

#include "demo_network.h"

namespace theseus::demo {

/// Bytes of payload per second from one rank to the other.
Result<double> measureLink(const DemoNetwork& network, int from, int to);

}  // namespace theseus::demo
