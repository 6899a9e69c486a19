// The control thread of a communicator: carries the control plane's messages, feeds it with what was
// measured, makes agreed schedules ready in the background and publishes epochs. The slow path lives here
// (choose, generate, verify, materialize, agree, publish); the fast path cannot call it. Owned by the
// communicator; methods may be called from any thread unless said otherwise.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "control/control_plane.h"
#include "policy/policy.h"
#include "runtime/data_plane.h"
#include "runtime/epoch_board.h"
#include "runtime/link_monitor.h"
#include "runtime/message_mesh.h"
#include "runtime/sequence_gate.h"
#include "theseus/options.h"

namespace theseus::runtime {

/// What the control thread works on; all borrowed, all outlive it.
struct ControlParts {
  MessageMesh& mesh;
  DataPlane& data;
  SequenceGate& gate;
  EpochBoard& board;
  policy::PolicyEngine& engine;
};

/// An attribute that the program measures.
struct Sampler {
  std::string name;
  std::function<double()> sample;
};

class ControlThread final : private control::Host {
 public:
  ControlThread(Rank rank, int size, ControlParts parts);
  ~ControlThread() override;

  void start();
  /// Says goodbye to all ranks and waits (at most `timeout`) until all have said it, so that nobody is left
  /// alone in a round.
  void finish(std::chrono::milliseconds timeout);

  /// Adds a log entry for all ranks.
  Status propose(control::EntryKind kind, std::string content);
  Status addSampler(const std::string& declaration, Sampler sampler);
  /// What the links did during one collective. Calling thread; cheap.
  void report(control::ScheduleSlot slot, const transport::LinkSample& sample, double callSeconds);
  /// Runs `question` on the control thread and returns its answer. Errors: the thread is gone or busy for
  /// longer than two seconds.
  Result<std::string> ask(std::function<std::string()> question);

  /// The communicator cannot go on: stops the calling thread, tells all ranks. The first reason wins.
  void breakDown(Error error, bool tellOthers);
  bool broken() const {
    // Acquire pairs with the release in breakDown(): the reason is written first.
    return broken_.load(std::memory_order_acquire);
  }
  Error reason() const;

  /// On the control thread only (inside ask()).
  const control::ControlPlane& plane() const { return *plane_; }
  const policy::PolicyEngine& engine() const { return parts_.engine; }

 private:
  enum class MessageTag : char { kControl = 'C', kAbort = 'A', kGoodbye = 'G' };
  struct Sample {
    control::ScheduleSlot slot;
    transport::LinkSample links;
    double seconds;  // of the collective
  };

  // control::Host
  void send(Rank to, std::string bytes) override;
  SequenceNumber promiseLimit() override;
  void liftLimit() override;
  void publish(const control::Epoch& epoch) override;
  void fail(Error error) override { breakDown(std::move(error), true); }

  void loop();
  void receive(Rank from, std::string_view message);
  void countGoodbye(Rank from);
  void runCommands();
  void takeSamples();
  void offerCandidates();
  void checkReadiness();
  void sampleAttributes();
  void materializeLoop();
  void post(std::function<void()> command);

  const Rank rank_;
  const int size_;
  ControlParts parts_;
  std::unique_ptr<control::ControlPlane> plane_;

  // Control thread only.
  LinkMonitor monitor_;
  base::Hash128 tableHash_;
  std::vector<Sampler> samplers_;
  std::size_t offered_ = 0;  // candidates handed to the materializer
  std::vector<control::ScheduleSlot> waitingForChannels_;
  std::vector<bool> goodbyes_;
  base::TimePoint joinedAt_{0};
  double roundSeconds_ = 2e-3;  // smoothed length of a round
  double callsPerSecond_ = 0;   // smoothed
  SequenceNumber issuedBefore_ = 0;
  base::TimePoint rateSampledAt_{0};

  mutable std::mutex mutex_;  // protects what follows
  std::condition_variable goodbyeChanged_;
  bool allSaidGoodbye_ = false;
  std::vector<std::function<void()>> commands_;
  std::deque<Sample> samples_;
  std::optional<Error> reason_;

  std::mutex materializeMutex_;  // protects what follows
  std::condition_variable materializeChanged_;
  std::deque<std::pair<control::ScheduleSlot, policy::Candidate>> materializeQueue_;

  std::atomic<bool> broken_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  std::thread materializer_;
};

}  // namespace theseus::runtime
