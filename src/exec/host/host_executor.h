// Runs one rank's part of a schedule on host memory: thread blocks as cooperative tasks of one thread,
// payload through a transport. Owned by the communicator; one thread drives it, interrupt() alone may be
// called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "exec/host/block_runner.h"
#include "exec/host/inbox.h"
#include "exec/host/run_state.h"
#include "transport/endpoint.h"

namespace theseus::exec {

struct HostExecutorOptions {
  int size = 1;
  base::Nanoseconds timeout{std::chrono::seconds(30)};  // of a collective in which nothing moves
};

class HostExecutor {
 public:
  /// `endpoint` and `clock` are borrowed and must outlive the executor.
  HostExecutor(HostExecutorOptions options, transport::Endpoint& endpoint, const base::Clock& clock);

  /// Opens the channels that a schedule needs, without waiting for them. True once all are open.
  Result<bool> connect(const resource::ScheduleNode& node);
  /// Begins a collective and goes as far as possible without waiting. No other may be running.
  Status start(const Call& call);
  /// Goes on; true once the collective is complete on this rank: its result is in place and its buffers are
  /// the caller's again.
  Result<bool> advance();
  /// advance() until complete, sleeping in between. Errors: time-out naming what is waited for, mismatch,
  /// transport, interruption.
  Status finish();
  /// Makes a running and every later finish() fail with `error`. Any thread, once.
  void interrupt(Error error);

 private:
  Status begin(const Call& call);
  Result<bool> sendEnds();
  Result<bool> complete();
  Error timeoutError() const;

  HostExecutorOptions options_;
  transport::Endpoint& endpoint_;
  const base::Clock& clock_;
  RunState state_;
  Inbox inbox_;
  std::vector<transport::Channel*> channels_;  // by rank; null until connected
  BlockRunner blocks_;
  Error interruption_;
  std::atomic<bool> interrupted_{false};
};

}  // namespace theseus::exec
