// One rank of the simulation: a real ControlPlane, the host that it lives in, and collectives issued at the
// rank's own pace under the limit rule, as a communicator would. Owned by one simulation; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "control/control_plane.h"
#include "sim/checker.h"
#include "sim/hash_tables.h"

namespace theseus::sim {

/// What a rank needs from the simulation around it.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  virtual void transmit(Rank from, Rank to, std::string bytes) = 0;
  virtual Microseconds now() const = 0;
  virtual void note(Rank rank, const std::string& what) = 0;  // a line of the trace
  virtual bool tracing() const = 0;
  virtual void limitLifted(Rank rank) = 0;
  virtual void firstCompletion(Rank rank, const control::Context& context) = 0;
  virtual base::Random& random() = 0;
  virtual Checker& checker() = 0;
};

struct RankOptions {
  control::ControlOptions control;
  std::uint64_t largestSlack = 0;
};

class SimulatedRank final : public control::Host, public control::TableFunction {
 public:
  SimulatedRank(RankOptions options, Surroundings& surroundings);

  control::ControlPlane& plane() { return *plane_; }
  const control::ControlPlane& plane() const { return *plane_; }

  SequenceNumber next() const { return next_; }
  /// The next collective would break the promise of the running round.
  bool mustWait() const { return limit_ && next_ >= *limit_; }
  bool waiting() const { return waitingSince_.has_value(); }
  void startWaiting(Microseconds now);
  /// Runs the next collective by the table in force.
  void issue();

  void propose(control::EntryKind kind, std::string content);
  void setReady(control::ScheduleSlot slot, bool ready);
  void setAttribute(const std::string& name, std::uint32_t index, double value);

  std::uint64_t stalls() const { return stalls_; }
  Microseconds longestStall() const { return longestStall_; }
  std::uint64_t refusedProposals() const { return refused_; }

  void send(Rank to, std::string bytes) override;
  SequenceNumber promiseLimit() override;
  void liftLimit() override;
  void publish(const control::Epoch& epoch) override;
  void fail(Error error) override;
  std::shared_ptr<const control::DispatchTable> compute(const std::vector<control::Entry>& entries,
                                                        const control::Context& context) override;

 private:
  struct InForce {
    control::Epoch epoch;
    base::Hash128 hash;
  };
  const InForce& inForce(SequenceNumber number);
  AttributeValues attributesInForce() const;

  const Rank rank_;
  const std::uint32_t ranks_;
  const std::uint64_t largestSlack_;
  Surroundings& surroundings_;
  HashTables tables_;
  std::unique_ptr<control::ControlPlane> plane_;

  SequenceNumber next_ = 0;
  std::optional<SequenceNumber> limit_;
  std::optional<Microseconds> waitingSince_;
  std::vector<InForce> epochs_;  // by round
  Round published_ = 0;
  control::ReadyBits ready_;  // this side's own account of what the plane was told
  AttributeValues attributes_;
  std::uint64_t stalls_ = 0;
  Microseconds longestStall_ = 0;
  std::uint64_t proposed_ = 0;
  std::uint64_t refused_ = 0;
};

}  // namespace theseus::sim
