// Dynamic selection: (agreed log prefix, agreed context) -> dispatch table, with a reason for every choice.
// Deterministic: no clock, no IO, no randomness, no unordered iteration; its state is a fold over the rounds,
// so equal on every rank. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/control_plane.h"
#include "policy/cost_model.h"
#include "synth/generators.h"
#include "theseus/result.h"

namespace theseus::policy {

/// Built-in endo attributes that the runtime declares and feeds (control::AttributeDeclaration).
/// link_rate[r]: bytes/s that rank r's link was seen to carry while busy, max over observers.
inline constexpr const char* kLinkRateAttribute = "link_rate";
/// Exo attribute: bytes/s of a healthy link, instead of LinkModel::bytesPerSecond while nothing has been
/// measured.
inline constexpr const char* kNominalRateAttribute = "link_nominal_bps";

/// Prior for the cost model, from the transport's Capabilities; must be equal on every rank.
struct LinkModel {
  double latencySeconds = 20e-6;
  double bytesPerSecond = 1e9;
  double handlingBytesPerSecond = 2e9;  // copying or reducing what arrived, before it can be passed on
};

struct PolicyOptions {
  int ranks = 1;
  LinkModel link;
  double enterGain = 0.05;  // a challenger must promise this much less time than what is in force
  double leaveGain =
      0.02;  // ... or, for going back to a schedule without assumptions about stragglers, this much
  int dwellRounds = 1;  // rounds a new choice is kept at least
};

/// A schedule that every rank shall know: position in candidates() is its slot in the ready bits.
struct Candidate {
  std::string name;    // short, for tables: "ring", "straggler_aware(rank=3,ratio=2)"
  base::Hash128 hash;  // of the plan's content, or of the generator call's text
  std::shared_ptr<const schedule::Schedule>
      schedule;  // null until prepared, for a call that came up while the job runs
  std::optional<synth::GeneratorCall> call;  // when it is one
  Collective collective = Collective::kCustom;
  bool dropped = false;
};

/// The expensive part of a candidate: expanded, verified, its cost worked out. Made apart from the engine,
/// since rounds must not wait for it.
struct Preparation {
  std::shared_ptr<const schedule::Schedule> schedule;
  CostModel cost;
  bool tailSynchronized = false;
};
/// Pure, any thread. Errors: why this candidate can never be used.
Result<Preparation> prepare(const Candidate& candidate);

/// One line of `explain`.
struct Explanation {
  std::string schedule;
  control::ScheduleSlot slot = -1;
  bool ready = false;
  bool usable = false;
  std::string why;  // why not usable, or why chosen / not chosen
  double predictedSeconds = 0;
  bool inForce = false;
};

/// A change of what is in force for a collective, as people want to read it.
struct SwapRecord {
  Round round = 0;
  SequenceNumber switchAt = 0;
  Collective collective = Collective::kAllReduce;
  int firstBucket = 0;
  int lastBucket = 0;
  std::string from;
  std::string to;
  std::string reason;
};

class PolicyEngine final : public control::TableFunction {
 public:
  explicit PolicyEngine(PolicyOptions options);
  ~PolicyEngine() override;

  /// The table that a job starts with, before any round (round 0): the best automatic candidate of each
  /// bucket by the prior.
  std::shared_ptr<const control::DispatchTable> initialTable();
  std::shared_ptr<const control::DispatchTable> compute(const std::vector<control::Entry>& entries,
                                                        const control::Context& context) override;

  /// Hands over what prepare() made of a candidate that came up while the job runs. Must precede its ready
  /// bit; what it says is the same on every rank, so it does not matter when each rank does it.
  void provide(control::ScheduleSlot slot, Result<Preparation> preparation);

  /// Grows only; a dropped candidate keeps its slot. The runtime prepares and materializes what is new and
  /// sets its ready bit.
  const std::vector<Candidate>& candidates() const;
  std::vector<Explanation> explain(Collective collective, std::uint64_t bytes) const;
  const std::vector<SwapRecord>& swaps() const;
  /// Attributes set from outside (kSetExo), the latest value of each.
  const std::map<std::string, std::string>& exoAttributes() const;
  /// What the policy could not act on, with the reason: log entries that were refused, generator calls that
  /// failed.
  const std::vector<std::string>& remarks() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace theseus::policy
