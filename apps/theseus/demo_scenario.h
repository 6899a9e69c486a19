// The fail-slow scenario: healthy, one rank's link drops, the runtime swaps by itself, the link recovers, the
// runtime swaps back. Drives a team (and a rival's) through it and keeps every collective's outcome. One
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "demo_team.h"
#include "demo_view.h"
#include "theseus/result.h"

namespace theseus::demo {

struct ScenarioOptions {
  int ranks = 8;
  std::uint64_t bytes = 16777216;
  int slowRank = 3;
  double megabitsPerSecond = 1000;
  double slowMegabitsPerSecond = 500;
  int warmupCollectives = 3;
  int healthyCollectives = 20;
  int degradedCollectives = 25;   // after the swap
  int recoveredCollectives = 20;  // after the swap back
  int patienceCollectives = 40;   // how many may pass before a swap
};

struct Phase {
  std::string name;  // healthy, degraded-before, degraded-after, recovering, recovered; a rival has: healthy,
                     // degraded, recovered
  std::vector<CollectiveOutcome> outcomes;
};

/// A change of schedule that the parent saw.
struct ObservedSwap {
  std::uint64_t sequence = 0;  // first call under `to`
  std::string from;
  std::string to;
  std::string reason;          // the runtime's
  int detectCollectives = -1;  // calls that ran under `from` since the link changed, the one it changed in
                               // included; -1: no link had changed
  double stallSeconds = 0;     // longest wait at a limit of any rank around this swap
};

struct ScenarioResult {
  std::vector<Phase> phases;
  std::vector<Phase> rivalPhases;
  std::vector<ObservedSwap> swaps;
  std::uint64_t collectives = 0;
  std::uint64_t wrong = 0;
  std::uint64_t rivalWrong = 0;
  bool swappedAway = false;
  bool swappedBack = false;
  std::string shortfall;  // why it is not a success; empty when it is
  std::vector<std::string>
      explanation;        // after a shortfall: the runtime's own reasons, a line for each schedule
  std::string linkRates;  // after a shortfall: what the ranks know of their links, MB/s by rank
  bool success() const { return wrong == 0 && rivalWrong == 0 && swappedAway && swappedBack; }
};

/// What the scenario acts on. `rival` may be null. `setRate` changes a rank's link both ways; `whileRunning`:
/// it can do so in the middle of a collective.
struct ScenarioStage {
  DemoTeam* team = nullptr;
  DemoTeam* rival = nullptr;
  std::function<Status(int rank, double megabitsPerSecond)> setRate;
  bool whileRunning = true;
  DemoView* view = nullptr;
};

/// Errors: a worker failed, or ranks disagreed. A missing swap or a wrong element is a result, not an error.
Result<ScenarioResult> runFailSlow(const ScenarioOptions& options, const ScenarioStage& stage);

/// Median; 0 for none. Collectives in which a link changed are left out where others remain.
double medianSeconds(const Phase& phase);

}  // namespace theseus::demo
