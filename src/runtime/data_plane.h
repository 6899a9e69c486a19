// The data side of a communicator: schedules made ready for this rank, buffers, the executor and its
// endpoint. Driven by the thread that makes the collective calls; install() and interrupt() may be called
// from other threads.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "control/dispatch_table.h"
#include "exec/host/host_executor.h"
#include "resource/memory_block.h"
#include "resource/schedule_node.h"
#include "theseus/result.h"
#include "theseus/types.h"
#include "transport/endpoint.h"

namespace theseus::runtime {

/// A collective as the caller asked for it; pointers are borrowed for the length of the call.
struct CollectiveRequest {
  Collective collective = Collective::kAllReduce;
  const void* source = nullptr;
  void* destination = nullptr;
  std::uint64_t count = 0;
  DataType dataType = DataType::kFloat32;
  ReduceOp reduceOp = ReduceOp::kSum;
  Rank root = 0;
};

struct DataPlaneOptions {
  Rank rank = 0;
  int size = 1;
  base::Nanoseconds timeout{std::chrono::seconds(30)};
};

class DataPlane {
 public:
  DataPlane(DataPlaneOptions options, std::unique_ptr<transport::Endpoint> endpoint);
  ~DataPlane();

  /// Makes a schedule available under a slot. Any thread; each slot once.
  void install(control::ScheduleSlot slot, std::unique_ptr<resource::ScheduleNode> node);
  bool installed(control::ScheduleSlot slot) const { return node(slot) != nullptr; }
  /// True once the channels that the schedule needs are open. Opening goes on while collectives run.
  bool connected(control::ScheduleSlot slot) const;

  /// Null when the slot is empty.
  resource::ScheduleNode* node(control::ScheduleSlot slot) const;
  /// Runs one collective to its end on this rank.
  Status run(const CollectiveRequest& request, SequenceNumber sequence, resource::ScheduleNode& node);

  /// Ends a running and every later collective with `error`. Any thread, once.
  void interrupt(Error error) { executor_.interrupt(std::move(error)); }
  transport::Endpoint& endpoint() { return *endpoint_; }
  std::uint64_t memoryBytes() const { return scratch_.bytes() + staging_.bytes(); }

 private:
  struct Work;  // a request with its buffers arranged
  Status openRequestedChannels();
  Result<Work> arrange(const CollectiveRequest& request, const resource::ScheduleNode& node);
  Status stageIfNeeded(const CollectiveRequest& request, const resource::ScheduleNode& node, Work& work);

  DataPlaneOptions options_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  exec::HostExecutor executor_;
  resource::MemoryBlock scratch_;
  resource::MemoryBlock staging_;
  std::array<std::atomic<resource::ScheduleNode*>, control::kScheduleSlots> nodes_{};
  std::array<std::atomic<bool>, control::kScheduleSlots> connected_{};
  std::atomic<bool> channelsRequested_{false};
  mutable std::mutex mutex_;  // protects owned_ and toConnect_
  std::vector<std::unique_ptr<resource::ScheduleNode>> owned_;
  std::vector<control::ScheduleSlot> toConnect_;
};

}  // namespace theseus::runtime
