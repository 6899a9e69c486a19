// Predicted duration of a schedule, by playing its messages through the ranks' ports. Built once a schedule,
// then read only; any thread. Model and its limits: docs/policy.md.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "schedule/schedule.h"
#include "theseus/result.h"

namespace theseus::policy {

/// What the fabric is taken to be like.
struct CostConditions {
  double latencySeconds = 20e-6;        // from a message's last byte at the sender to the receiver seeing it
  double handlingBytesPerSecond = 2e9;  // the receiver copies or reduces a message before it acts on it
  std::vector<double> bytesPerSecond;   // of each rank's port, each direction
  friend bool operator==(const CostConditions&, const CostConditions&) = default;
};

/// What a schedule asks of the ports, as fractions of the message (the larger of one rank's input and
/// output).
struct CostSummary {
  std::vector<double> egress;  // by rank
  std::vector<double> ingress;
  std::vector<std::uint64_t> messagesOut;  // by rank
  int depth = 0;                           // messages in the longest chain in which each needs the one before
};

class CostModel {
 public:
  /// Errors: what cannot be resolved into bytes for any size (the verifier refuses that as well).
  static Result<CostModel> make(const schedule::Schedule& schedule);

  const CostSummary& summary() const&;
  const CostSummary& summary() const&& = delete;  // it would dangle
  /// Seconds for a message of `bytes` (the larger of one rank's input and output). Needs one rate for each
  /// rank.
  double predict(std::uint64_t bytes, const CostConditions& conditions) const;

 private:
  struct Program;
  explicit CostModel(std::shared_ptr<const Program> program);
  std::shared_ptr<const Program> program_;
};

}  // namespace theseus::policy
