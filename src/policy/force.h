// An operator's choice of schedule, as the log carries it (EntryKind::kForce). Plain value and pure
// functions, any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "theseus/result.h"
#include "theseus/types.h"

namespace theseus::policy {

/// Says which schedule serves a collective for messages from minBytes to maxBytes. "auto" hands the choice
/// back to the policy.
struct Force {
  Collective collective = Collective::kAllReduce;
  std::string schedule = "auto";  // hash in hexadecimal, short name, or "auto"
  std::uint64_t minBytes = 0;
  std::uint64_t maxBytes = std::numeric_limits<std::uint64_t>::max();
  friend bool operator==(const Force&, const Force&) = default;
};

/// "collective=allreduce min_bytes=1048576 schedule=ring"; bounds that bind nothing are left out.
std::string encodeForce(const Force& force);

/// The inverse; keys in any order. Errors name the word that is wrong.
Result<Force> parseForce(std::string_view content);

}  // namespace theseus::policy
