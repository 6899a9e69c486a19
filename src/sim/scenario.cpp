#include "sim/scenario.h"

#include <algorithm>
#include <array>

#include "base/clock.h"

namespace theseus::sim {
namespace {

template <class T, std::size_t N>
T pick(base::Random& random, const std::array<T, N>& choices) {
  return choices[random.below(N)];
}

/// Mostly small, where interleavings are dense; some large, where the trees and dissemination are deep.
int drawRanks(base::Random& random) {
  const double position = random.unit();
  if (position < 0.80) return 2 + static_cast<int>(random.below(8));
  if (position < 0.97) return 10 + static_cast<int>(random.below(24));
  if (position < 0.997) return 34 + static_cast<int>(random.below(95));
  return 129 + static_cast<int>(random.below(384));
}

NetworkModel drawNetwork(base::Random& random, int ranks) {
  NetworkModel network;
  network.shortestDelay = 1 + random.below(10);
  network.longestDelay = network.shortestDelay + pick(random, std::array<Microseconds, 4>{0, 10, 100, 1000});
  network.tailProbability = pick(random, std::array{0.0, 0.05, 0.3});
  network.tailFactor = pick(random, std::array<std::uint64_t, 2>{10, 100});
  network.duplicateProbability = pick(random, std::array{0.0, 0.2, 0.5});
  network.truncatedProbability = pick(random, std::array{0.0, 0.0, 0.02});
  if (random.chance(0.2))
    network.slowRank = static_cast<Rank>(random.below(static_cast<std::uint64_t>(ranks)));
  return network;
}

control::ControlLimits drawLimits(base::Random& random) {
  control::ControlLimits limits;
  limits.contentBytes = 4096;
  limits.outstandingEntries = pick(random, std::array<std::size_t, 3>{4, 32, 256});
  limits.outstandingBytes = pick(random, std::array<std::size_t, 2>{4096, 65536});
  limits.proposalsPerRound = pick(random, std::array<std::size_t, 4>{1, 2, 5, 32});
  limits.pieceBytes = pick(random, std::array<std::size_t, 3>{7, 64, 4096});
  return limits;
}

ActionKind drawActionKind(base::Random& random) {
  constexpr std::array kinds = {
      ActionKind::kPropose,    ActionKind::kPropose,     ActionKind::kRequestRound, ActionKind::kSetReady,
      ActionKind::kSetReady,   ActionKind::kSetReady,    ActionKind::kSetAttribute, ActionKind::kSetAttribute,
      ActionKind::kClearReady, ActionKind::kRequestRound};
  if (random.chance(0.04)) return ActionKind::kDeclareAttribute;
  return pick(random, kinds);
}

std::vector<Action> drawActions(base::Random& random, const Scenario& scenario, Microseconds duration) {
  const std::uint64_t ranks = static_cast<std::uint64_t>(scenario.ranks);
  // A large communicator does not need more of everything: a round costs ranks · log2(ranks) messages.
  const std::uint64_t count = std::min<std::uint64_t>(10 + 6 * ranks, 60) + random.below(20);
  const std::uint64_t largestBurst = scenario.ranks > 32 ? 6 : 30;
  std::vector<Action> actions;
  for (std::uint64_t i = 0; i < count; ++i) {
    Action action{random.below(duration), drawActionKind(random), static_cast<Rank>(random.below(ranks)), 1};
    if (action.kind == ActionKind::kPropose && random.chance(0.1)) {
      action.count = 2 + static_cast<std::uint32_t>(random.below(largestBurst));
    }
    actions.push_back(action);
  }
  // Without this a bit is hardly ever ready on all of many ranks, and agreed ready bits would always be
  // empty.
  for (Rank rank = 0; rank < scenario.ranks; ++rank) {
    actions.push_back({random.below(duration / 4 + 1), ActionKind::kSetReady, rank,
                       static_cast<std::uint32_t>(scenario.slots)});
  }
  return actions;
}

}  // namespace

Scenario makeScenario(std::uint64_t seed, std::optional<int> ranks) {
  base::Random random(seed * 0x2545f4914f6cdd1dull + 1);
  const int drawn = drawRanks(random);
  Scenario scenario;
  scenario.ranks = ranks.value_or(drawn);
  scenario.goal = scenario.ranks > 32 ? 15 : 20 + random.below(60);
  const Microseconds base = pick(random, std::array<Microseconds, 3>{10, 100, 1000});
  for (int i = 0; i < scenario.ranks; ++i) {
    scenario.pace.push_back(base * pick(random, std::array<Microseconds, 4>{1, 4, 4, 20}));
  }
  scenario.largestSlack = pick(random, std::array<std::uint64_t, 4>{0, 2, 6, 40});
  if (random.chance(0.4)) scenario.window = 1 + random.below(4);
  scenario.slots = 1 + static_cast<int>(random.below(12));
  scenario.largestContent = pick(random, std::array<std::size_t, 3>{0, 40, 600});
  scenario.network = drawNetwork(random, scenario.ranks);
  scenario.limits = drawLimits(random);
  const Microseconds duration = base * 4 * scenario.goal + 1;
  if (random.chance(0.25)) {
    const Microseconds from = random.below(duration);
    const auto paused = static_cast<Rank>(random.below(static_cast<std::uint64_t>(scenario.ranks)));
    scenario.pause = Pause{paused, from, from + random.below(duration)};
  }
  scenario.actions = drawActions(random, scenario, duration);
  return scenario;
}

}  // namespace theseus::sim
