// usable -> score -> replacement for one collective and size bucket at a time. Internal to the policy; one
// thread. A pure function of the candidates, the fleet and the agreed ready bits, but for the cache of
// scores.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policy/candidate_list.h"
#include "policy/fleet_view.h"
#include "policy/force.h"

namespace theseus::policy {

/// What is in force for a collective and bucket.
struct Choice {
  control::ScheduleSlot slot = -1;
  Round since = 0;
};

/// What shall be in force; `cause` says why it is not what it was, without figures.
struct Decision {
  control::ScheduleSlot slot = -1;
  std::string cause;
};

/// What a round says, as far as selection needs it.
struct RoundFacts {
  Round round = 0;
  control::ReadyBits ready;
};

/// The message that stands for a bucket: its smallest, since sizes in use are mostly powers of two.
std::uint64_t bucketBytes(int bucket);

class Selection {
 public:
  Selection(const PolicyOptions& options, const CandidateList& candidates, const FleetView& fleet)
      : options_(options), candidates_(candidates), fleet_(fleet) {}

  /// Must be called after the fleet or the nominal rate has changed; forgets scores only if the conditions
  /// really differ.
  void refresh(const RoundFacts& facts, std::optional<double> nominalBytesPerSecond);

  Decision decide(Collective collective, int bucket, const Choice& current, const std::vector<Force>& forces);

  /// Why a candidate cannot serve a bucket; nullopt = it can. An operator may force what assumes a straggler
  /// that is not there.
  std::optional<std::string> obstacle(control::ScheduleSlot slot, int bucket, bool forced = false) const;
  /// The latest force for this collective and bucket; nullptr = the policy is free.
  static const Force* forceFor(const std::vector<Force>& forces, Collective collective, int bucket);
  bool ready(control::ScheduleSlot slot) const;
  /// Less time than `current` by this share is asked of a challenger.
  double neededGain(control::ScheduleSlot current, control::ScheduleSlot challenger) const;

  /// Predicted seconds; infinite when there is no prediction.
  double predict(control::ScheduleSlot slot, std::uint64_t bytes) const;
  /// The same for a bucket's message, by few simulations that are remembered.
  double score(control::ScheduleSlot slot, int bucket);
  const CostConditions& conditions() const { return conditions_; }

 private:
  double simulated(control::ScheduleSlot slot, int bucket);
  std::optional<control::ScheduleSlot> best(Collective collective, int bucket);
  Decision freeChoice(Collective collective, int bucket, const Choice& current);
  std::string causeOf(control::ScheduleSlot from, control::ScheduleSlot to) const;
  std::string whyGone(control::ScheduleSlot slot, int bucket) const;
  std::optional<std::string> stragglerObstacle(control::ScheduleSlot slot) const;

  const PolicyOptions& options_;
  const CandidateList& candidates_;
  const FleetView& fleet_;
  RoundFacts facts_;
  CostConditions conditions_;
  std::vector<std::array<double, control::kSizeBuckets>> scores_;  // NaN = not yet computed
};

/// "rank 3 at 0.50 of its peers' (59.8 of 119.5 MB/s)" for each straggler, the slowest first; empty without
/// one.
std::string describeStragglers(const FleetView& fleet);

}  // namespace theseus::policy
