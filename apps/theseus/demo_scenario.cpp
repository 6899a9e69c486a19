#include "demo_scenario.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "demo_message.h"

namespace theseus::demo {
namespace {

/// How many collectives before the first one under a new schedule a limit can have held somebody up for its
/// sake.
constexpr std::size_t kStallWindow = 4;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// "straggler_aware" of "straggler_aware(rank=3,ratio=2)": a finer ratio is no way back.
std::string kindOf(const std::string& schedule) { return schedule.substr(0, schedule.find('(')); }

class FailSlow {
 public:
  FailSlow(const ScenarioOptions& options, const ScenarioStage& stage) : options_(options), stage_(stage) {}

  Result<ScenarioResult> run() {
    THESEUS_TRY(healthy());
    if (result_.shortfall.empty()) THESEUS_TRY(degraded());
    if (result_.shortfall.empty()) THESEUS_TRY(recovery());
    THESEUS_TRY(explainSwaps());
    if (result_.wrong != 0) result_.shortfall = fmt::format("{} elements were wrong", result_.wrong);
    if (result_.rivalWrong != 0)
      result_.shortfall = fmt::format("the rival had {} wrong elements", result_.rivalWrong);
    return std::move(result_);
  }

 private:
  Status healthy() {
    Phase warmup{"warm-up", {}};
    THESEUS_TRY(repeat(warmup, options_.warmupCollectives));
    THESEUS_TRY(warmRival());
    Phase phase{"healthy", {}};
    THESEUS_TRY(repeat(phase, options_.healthyCollectives));
    healthySchedule_ = phase.outcomes.back().schedule;
    healthySeconds_ = medianSeconds(phase);
    result_.phases.push_back(std::move(phase));
    return repeatRival("healthy", options_.healthyCollectives);
  }

  Status degraded() {
    Phase before{"degraded-before", {}};
    Phase after{"degraded-after", {}};
    THESEUS_TRY(changeLink(before, options_.slowMegabitsPerSecond));
    THESEUS_TRY(untilSwap(before, after,
                          [this](const std::string& schedule) { return schedule != healthySchedule_; }));
    result_.swappedAway = !after.outcomes.empty();
    if (result_.swappedAway) {
      THESEUS_TRY(repeat(after, options_.degradedCollectives - 1));
    } else {
      result_.shortfall =
          fmt::format("no swap in {} collectives after the drop", options_.patienceCollectives);
    }
    result_.phases.push_back(std::move(before));
    result_.phases.push_back(std::move(after));
    return repeatRival("degraded", options_.degradedCollectives);
  }

  Status recovery() {
    Phase recovering{"recovering", {}};
    Phase recovered{"recovered", {}};
    THESEUS_TRY(changeLink(recovering, options_.megabitsPerSecond));
    const std::string degradedSchedule = kindOf(schedule_);
    THESEUS_TRY(untilSwap(recovering, recovered, [&](const std::string& schedule) {
      return kindOf(schedule) != degradedSchedule || schedule == healthySchedule_;
    }));
    result_.swappedBack = !recovered.outcomes.empty();
    if (result_.swappedBack) {
      THESEUS_TRY(repeat(recovered, options_.recoveredCollectives - 1));
    } else {
      result_.shortfall = fmt::format("no swap back to {} in {} collectives after the recovery",
                                      healthySchedule_, options_.patienceCollectives);
    }
    result_.phases.push_back(std::move(recovering));
    result_.phases.push_back(std::move(recovered));
    return repeatRival("recovered", options_.recoveredCollectives);
  }

  /// The link changes while a collective runs, or before the next one where that is impossible.
  Status changeLink(Phase& phase, double megabitsPerSecond) {
    Midway midway;
    midway.after = std::chrono::duration<double>(healthySeconds_ / 2);
    midway.action = [&]() -> Status {
      THESEUS_TRY(stage_.setRate(options_.slowRank, megabitsPerSecond));
      stage_.view->linkRate(options_.slowRank, megabitsPerSecond);
      stage_.view->event(
          fmt::format("the link of rank {} now carries {} Mbit/s", options_.slowRank, megabitsPerSecond));
      return {};
    };
    if (!stage_.whileRunning) THESEUS_TRY(midway.action());
    sinceChange_ = 0;
    return one(phase, stage_.whileRunning ? &midway : nullptr);
  }

  template <class Arrived>
  Status untilSwap(Phase& before, Phase& after, Arrived arrived) {
    while (static_cast<int>(before.outcomes.size()) < options_.patienceCollectives) {
      auto outcome = runOne(nullptr);
      if (!outcome) return fail(outcome.error());
      const bool there = arrived(outcome->schedule);
      keep(there ? after : before, std::move(*outcome));
      if (there) return {};
    }
    return {};
  }

  Status repeat(Phase& phase, int collectives) {
    for (int i = 0; i < collectives; ++i) THESEUS_TRY(one(phase, nullptr));
    return {};
  }

  Status one(Phase& phase, const Midway* midway) {
    auto outcome = runOne(midway);
    if (!outcome) return fail(outcome.error());
    keep(phase, std::move(*outcome));
    return {};
  }

  Result<CollectiveOutcome> runOne(const Midway* midway) {
    auto outcome = stage_.team->run(result_.collectives, midway);
    if (!outcome) return outcome;
    ++result_.collectives;
    result_.wrong += outcome->wrong;
    recentWaits_.push_back(outcome->limitWaitSeconds);
    noteSchedule(*outcome);
    if (sinceChange_ >= 0) ++sinceChange_;
    return outcome;
  }

  void keep(Phase& phase, CollectiveOutcome outcome) {
    stage_.view->collective("theseus", phase.name, outcome);
    phase.outcomes.push_back(std::move(outcome));
  }

  void noteSchedule(const CollectiveOutcome& outcome) {
    if (!schedule_.empty() && outcome.schedule != schedule_) {
      ObservedSwap swap;
      swap.sequence = outcome.sequence;
      swap.from = schedule_;
      swap.to = outcome.schedule;
      swap.detectCollectives = sinceChange_;
      const std::size_t window = std::min(recentWaits_.size(), kStallWindow);
      swap.stallSeconds =
          *std::max_element(recentWaits_.end() - static_cast<std::ptrdiff_t>(window), recentWaits_.end());
      stage_.view->event(
          fmt::format("swap: {} -> {} from collective {} on", swap.from, swap.to, swap.sequence));
      result_.swaps.push_back(std::move(swap));
      sinceChange_ = -1;
    }
    schedule_ = outcome.schedule;
  }

  /// Reasons are asked for at the end, so that the question disturbs nothing.
  Status explainSwaps() {
    auto status = stage_.team->status();
    if (!status) return fail(status.error());
    auto known = parseSwaps(status->status, options_.bytes);
    if (!known) return fail(known.error());
    if (!result_.shortfall.empty()) {
      result_.linkRates = linkRatesText(status->status);
      auto lines = explainLines(status->explain);
      if (!lines) return fail(lines.error());
      result_.explanation = std::move(*lines);
    }
    for (ObservedSwap& swap : result_.swaps) {
      for (const RuntimeSwap& candidate : *known) {
        if (candidate.to == swap.to && candidate.switchAt <= swap.sequence) swap.reason = candidate.reason;
      }
    }
    return {};
  }

  Status warmRival() {
    Phase unused{"warm-up", {}};
    return rivalInto(unused, options_.warmupCollectives);
  }

  Status repeatRival(const std::string& name, int collectives) {
    if (stage_.rival == nullptr) return {};
    Phase phase{name, {}};
    THESEUS_TRY(rivalInto(phase, collectives));
    result_.rivalPhases.push_back(std::move(phase));
    return {};
  }

  Status rivalInto(Phase& phase, int collectives) {
    for (int i = 0; stage_.rival != nullptr && i < collectives; ++i) {
      auto outcome = stage_.rival->run(rivalCollectives_++, nullptr);
      if (!outcome) return fail(outcome.error());
      result_.rivalWrong += outcome->wrong;
      stage_.view->collective("rival", phase.name, *outcome);
      phase.outcomes.push_back(std::move(*outcome));
    }
    return {};
  }

  const ScenarioOptions& options_;
  const ScenarioStage& stage_;
  ScenarioResult result_;
  std::string schedule_;
  std::string healthySchedule_;
  double healthySeconds_ = 0;
  int sinceChange_ = -1;  // collectives since a link changed; -1: none has, or the swap has happened
  std::vector<double> recentWaits_;
  std::uint64_t rivalCollectives_ = 0;
};

}  // namespace

Result<ScenarioResult> runFailSlow(const ScenarioOptions& options, const ScenarioStage& stage) {
  if (options.slowRank < 0 || options.slowRank >= options.ranks || options.ranks < 3) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("rank {} of {} cannot be the slow one; give at least 3 ranks and a slow rank among them",
                    options.slowRank, options.ranks));
  }
  if (options.healthyCollectives < 1 || options.degradedCollectives < 1 || options.recoveredCollectives < 1) {
    return fail(ErrorCode::kInvalidArgument, "each phase needs at least one collective");
  }
  return FailSlow(options, stage).run();
}

double medianSeconds(const Phase& phase) {
  std::vector<double> pure;
  std::vector<double> all;
  for (const CollectiveOutcome& outcome : phase.outcomes) {
    all.push_back(outcome.seconds);
    if (!outcome.mixed) pure.push_back(outcome.seconds);
  }
  return median(pure.empty() ? std::move(all) : std::move(pure));
}

}  // namespace theseus::demo
