// Many seeds over several threads, each simulation on one; results are handed over in the order of the seeds.
// Blocking; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "sim/simulation.h"

namespace theseus::sim {

struct SweepOptions {
  std::uint64_t firstSeed = 1;
  std::uint64_t seeds = 1;
  std::optional<int> ranks;
  bool skipLimitRule = false;
  unsigned threads = 1;
};

/// The largest value that any seed had, and which seed.
struct Longest {
  std::uint64_t value = 0;
  std::uint64_t seed = 0;
};

struct SweepTotals {
  std::uint64_t seeds = 0;
  std::uint64_t events = 0;
  std::uint64_t messages = 0;
  std::uint64_t collectives = 0;
  std::uint64_t rounds = 0;
  std::uint64_t entries = 0;
  std::uint64_t refusedProposals = 0;
  std::uint64_t stalls = 0;
  std::uint64_t violations = 0;
  Longest ranks;
  Longest roundsOfOneSeed;
  Longest roundMicroseconds;
  Longest stallMicroseconds;
  std::uint64_t traceHash = 0;  // of all trace hashes, in order
};

/// `each` is called once a seed, in order, by one thread at a time.
SweepTotals sweep(const SweepOptions& options, const std::function<void(const SimulationResult&)>& each);

}  // namespace theseus::sim
