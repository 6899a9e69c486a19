// What one seed means: how many ranks, how fast, how bad the network, what happens when. Plain values and one
// pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "control/control_plane.h"

namespace theseus::sim {

/// Simulated time since the start of the run.
using Microseconds = std::uint64_t;

struct NetworkModel {
  Microseconds shortestDelay = 1;
  Microseconds longestDelay = 100;
  double tailProbability = 0;  // a message takes tailFactor times as long
  std::uint64_t tailFactor = 10;
  double duplicateProbability = 0;  // it arrives once more, later or earlier
  double truncatedProbability = 0;  // a cut copy arrives as well and must be refused
  std::optional<Rank> slowRank;     // all its messages take slowFactor times as long
  std::uint64_t slowFactor = 20;
};

/// For a while a rank neither issues nor receives.
struct Pause {
  Rank rank = 0;
  Microseconds from = 0;
  Microseconds until = 0;
};

enum class ActionKind : std::uint8_t {
  kPropose,           // `count` entries at once
  kDeclareAttribute,  // a kNewAttribute entry
  kRequestRound,
  kSetReady,
  kClearReady,
  kSetAttribute,
};

struct Action {
  Microseconds at = 0;
  ActionKind kind = ActionKind::kRequestRound;
  Rank rank = 0;
  std::uint32_t count = 1;
};

struct Scenario {
  int ranks = 2;
  SequenceNumber goal = 0;              // collectives that every rank issues
  std::vector<Microseconds> pace;       // by rank: longest time between two collectives
  std::uint64_t largestSlack = 0;       // every promise draws its own slack, 0 to this
  std::optional<std::uint64_t> window;  // a rank is at most this many collectives ahead of the slowest
  int slots = 8;                        // schedule slots whose ready bits change
  std::size_t largestContent = 40;
  NetworkModel network;
  std::optional<Pause> pause;
  control::ControlLimits limits;
  std::vector<Action> actions;
};

/// The same seed (and number of ranks, when given) is the same scenario on every machine.
Scenario makeScenario(std::uint64_t seed, std::optional<int> ranks);

}  // namespace theseus::sim
