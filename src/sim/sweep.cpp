#include "sim/sweep.h"

#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"

namespace theseus::sim {
namespace {

void raise(Longest& longest, std::uint64_t value, std::uint64_t seed) {
  if (value > longest.value) longest = {value, seed};
}

void add(SweepTotals& totals, const SimulationResult& result) {
  ++totals.seeds;
  totals.events += result.events;
  totals.messages += result.messages;
  totals.collectives += result.collectives;
  totals.rounds += result.rounds;
  totals.entries += result.entries;
  totals.refusedProposals += result.refusedProposals;
  totals.stalls += result.stalls;
  totals.violations += result.violation ? 1 : 0;
  raise(totals.ranks, static_cast<std::uint64_t>(result.ranks), result.seed);
  raise(totals.roundsOfOneSeed, result.rounds, result.seed);
  raise(totals.roundMicroseconds, result.longestRound, result.seed);
  raise(totals.stallMicroseconds, result.longestStall, result.seed);
  totals.traceHash = base::Random(totals.traceHash ^ result.traceHash).next();
}

class Sweep {
 public:
  Sweep(const SweepOptions& options, const std::function<void(const SimulationResult&)>& each)
      : options_(options), each_(each) {}

  SweepTotals run() {
    THESEUS_CHECK(options_.threads >= 1, "a sweep needs a thread");
    {
      std::vector<std::jthread> workers;
      for (unsigned i = 0; i < options_.threads; ++i) workers.emplace_back([this] { work(); });
    }
    return totals_;
  }

 private:
  std::optional<std::uint64_t> take() {
    const std::lock_guard lock(mutex_);
    if (taken_ == options_.seeds) return std::nullopt;
    return options_.firstSeed + taken_++;
  }

  /// Results that finished early wait until those of all smaller seeds are there.
  void put(const SimulationResult& result) {
    const std::lock_guard lock(mutex_);
    finished_.emplace(result.seed, result);
    while (!finished_.empty() && finished_.begin()->first == options_.firstSeed + totals_.seeds) {
      add(totals_, finished_.begin()->second);
      each_(finished_.begin()->second);
      finished_.erase(finished_.begin());
    }
  }

  void work() {
    while (const auto seed = take()) {
      SimulationOptions simulation;
      simulation.seed = *seed;
      simulation.ranks = options_.ranks;
      simulation.skipLimitRule = options_.skipLimitRule;
      put(simulate(simulation));
    }
  }

  const SweepOptions& options_;
  const std::function<void(const SimulationResult&)>& each_;
  std::mutex mutex_;  // guards everything below
  std::uint64_t taken_ = 0;
  std::map<std::uint64_t, SimulationResult> finished_;
  SweepTotals totals_;
};

}  // namespace

SweepTotals sweep(const SweepOptions& options, const std::function<void(const SimulationResult&)>& each) {
  return Sweep(options, each).run();
}

}  // namespace theseus::sim
