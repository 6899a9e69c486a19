// The inside of a Communicator: the parts, in the order in which they depend on each other. Members are built
// top down and go away bottom up.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/bootstrap.h"
#include "runtime/control_interface.h"
#include "runtime/control_server.h"
#include "runtime/control_thread.h"
#include "runtime/data_plane.h"
#include "runtime/epoch_board.h"
#include "runtime/message_mesh.h"
#include "runtime/sequence_gate.h"
#include "theseus/communicator.h"

namespace theseus {

class Communicator::Impl final : public runtime::ControlInterface {
 public:
  static Result<std::unique_ptr<Impl>> create(const CommunicatorOptions& options);
  ~Impl() override;

  // Calling thread.
  Status call(const runtime::CollectiveRequest& request);
  Status barrier();

  // Any thread (runtime::ControlInterface).
  std::string statusJson() const override;
  std::string explainJson(Collective collective, std::uint64_t bytes) const override;
  Result<std::string> newSched(const std::string& text) override;
  Status dropSched(const std::string& schedule) override;
  Status swap(Collective collective, const std::string& schedule) override;
  Status setExo(const std::string& name, const std::string& value) override;
  std::string metricsText() const override;
  Status newAttr(const std::string& name, AttributeJoin join, std::function<double()> sampler);

  const CommunicatorOptions& options() const { return options_; }
  const CallReport& lastCall() const { return lastCall_; }
  runtime::DataPlane& data() { return *data_; }

 private:
  explicit Impl(CommunicatorOptions options) : options_(std::move(options)) {}
  Status assemble();
  Status openTransport(runtime::Rendezvous& rendezvous);
  Status installSchedules();
  Status installFixed();
  Status validate(const runtime::CollectiveRequest& request) const;
  Status waitAtLimit(SequenceNumber sequence, CallReport& report);
  /// Hash of a candidate named by hash or by short name; the control thread looks it up.
  Result<std::string> findSchedule(const std::string& schedule, std::optional<Collective> collective);
  Status requireControl() const;

  CommunicatorOptions options_;
  std::string transportName_;
  std::unique_ptr<runtime::MessageMesh> mesh_;
  std::unique_ptr<runtime::DataPlane> data_;
  std::unique_ptr<policy::PolicyEngine> engine_;
  runtime::SequenceGate gate_;
  std::unique_ptr<runtime::EpochBoard> board_;
  std::array<control::ScheduleSlot, control::kCollectives> fixed_{};  // −1 = the table decides
  std::unique_ptr<runtime::ControlThread> control_;
  std::unique_ptr<runtime::ControlServer> server_;
  CallReport lastCall_;                      // calling thread only
  std::atomic<std::uint64_t> callsDone_{0};  // statistics, hence relaxed
  std::atomic<std::uint64_t> bytesDone_{0};
  std::atomic<std::uint64_t> limitWaitNanoseconds_{0};
};

}  // namespace theseus
