// The schedules that every rank knows, by slot: automatic generator calls first, then what the log and the
// policy itself add. A fold over agreed entries, so equal on every rank. Internal to the policy; one thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/cost_model.h"
#include "policy/policy.h"

namespace theseus::policy {

/// What the policy keeps beside each candidate.
struct CandidateFacts {
  bool usesSwitch = false;
  std::optional<CostModel> cost;  // once prepared
  std::string unusable;           // what preparing it found wrong
  bool automatic = false;         // known to all from the start
  std::optional<Rank> straggler;  // made for this slow rank ...
  double stragglerRatio = 1;      // ... at this ratio
};

class CandidateList {
 public:
  explicit CandidateList(int ranks) : ranks_(ranks) {}

  /// Every automatic generator for every collective it makes; calls that this number of ranks does not allow
  /// are left out.
  void addAutomatic();
  /// Content of a kNewSchedule entry: plan text or a generator call. Adding a known schedule again revives it
  /// if it was dropped. Cheap: what takes time is left to prepare() and provide().
  Result<control::ScheduleSlot> add(std::string_view content);
  Result<control::ScheduleSlot> add(const synth::GeneratorCall& call, bool automatic = false);
  void provide(control::ScheduleSlot slot, Result<Preparation> preparation);
  /// `schedule` is a hash in hexadecimal or a short name (then: of every collective).
  Status drop(std::string_view schedule);

  /// Slots of all candidates that a hash or short name means, for one collective.
  std::optional<control::ScheduleSlot> find(std::string_view schedule, Collective collective) const;
  const std::vector<Candidate>& all() const { return candidates_; }
  const std::vector<control::ScheduleSlot>& slotsOf(Collective collective) const {
    return byCollective_[static_cast<std::size_t>(collective)];
  }
  const Candidate& at(control::ScheduleSlot slot) const {
    return candidates_[static_cast<std::size_t>(slot)];
  }
  const CandidateFacts& facts(control::ScheduleSlot slot) const {
    return facts_[static_cast<std::size_t>(slot)];
  }
  control::ScheduleSlot size() const { return static_cast<control::ScheduleSlot>(candidates_.size()); }

 private:
  Result<control::ScheduleSlot> insert(Candidate candidate, bool automatic);

  int ranks_;
  std::vector<Candidate> candidates_;
  std::vector<CandidateFacts> facts_;
  std::array<std::vector<control::ScheduleSlot>, control::kCollectives> byCollective_;  // ascending
};

/// The generator whose schedules assume that one rank is slow, and its parameters.
inline constexpr const char* kStragglerGenerator = "straggler_aware";
inline constexpr const char* kStragglerRank = "rank";
inline constexpr const char* kStragglerRatio = "ratio";
inline constexpr const char* kStragglerSegments = "segments";

}  // namespace theseus::policy
