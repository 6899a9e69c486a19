// The only code that asks the machine what it is. Stateless; any thread.
#pragma once

#include "topology/topology.h"

namespace theseus::discovery {

/// This process's place: host name, kernel boot and network namespace (abstract unix sockets, by which memory
/// is handed over, end at its border), cores of its affinity mask.
topology::RankPlace discoverPlace();

}  // namespace theseus::discovery
