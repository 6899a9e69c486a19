// One deterministic run of many real control planes on a simulated clock and network. The same options give
// the same events on every machine. Any thread; one simulation is one thread's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "sim/scenario.h"

namespace theseus::sim {

struct SimulationOptions {
  std::uint64_t seed = 0;
  std::optional<int> ranks;                          // instead of what the seed draws
  bool skipLimitRule = false;                        // plants the bug that must be caught
  std::function<void(std::string_view line)> trace;  // one call an event
};

struct SimulationResult {
  std::uint64_t seed = 0;
  int ranks = 0;
  std::uint64_t events = 0;
  std::uint64_t messages = 0;
  std::uint64_t collectives = 0;
  std::uint64_t rounds = 0;
  std::uint64_t entries = 0;
  std::uint64_t refusedProposals = 0;
  std::uint64_t stalls = 0;       // times that a rank had to wait at its limit
  Microseconds longestStall = 0;  // simulated time
  Microseconds longestRound = 0;  // from the first join to the last completion
  std::uint64_t traceHash = 0;    // of all events: equal runs have equal hashes
  std::optional<std::string> violation;
};

SimulationResult simulate(const SimulationOptions& options);

}  // namespace theseus::sim
