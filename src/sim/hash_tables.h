// A table function for the simulator: it folds everything that a real policy may read into a hash and draws a
// table from that, so that ranks which agreed on anything different get different tables. Owned by one
// simulated rank; one thread.
#pragma once

#include <memory>
#include <vector>

#include "base/hash.h"
#include "control/control_plane.h"

namespace theseus::sim {

class HashTables {
 public:
  /// Only slots that are ready in `context` are used.
  std::shared_ptr<const control::DispatchTable> draw(const std::vector<control::Entry>& entries,
                                                     const control::Context& context);

 private:
  base::Hash128 entriesHash_;  // of all entries folded in so far
  std::uint64_t folded_ = 0;
};

/// The table before any round: no slot anywhere.
std::shared_ptr<const control::DispatchTable> emptyTable();

}  // namespace theseus::sim
