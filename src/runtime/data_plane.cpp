#include "runtime/data_plane.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"
#include "base/reduce.h"

namespace theseus::runtime {
namespace {

using schedule::BufferKind;
using schedule::BufferMode;

/// Where the caller's input lies when the call is in place, as an offset into the larger buffer.
std::uint64_t inPlaceOffset(const CollectiveRequest& request, const schedule::MessageSize& size, Rank rank) {
  const std::uint64_t block = std::min(size.inputBytes, size.outputBytes);
  const bool blocked =
      request.collective == Collective::kAllGather || request.collective == Collective::kReduceScatter;
  return blocked ? block * static_cast<std::uint64_t>(rank) : 0;
}

}  // namespace

struct DataPlane::Work {
  schedule::MessageSize size;
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  const std::byte* copyFrom = nullptr;  // what must be copied to `input` first; null = nothing
  const std::byte* resultFrom =
      nullptr;  // what must be copied to the caller's destination at the end; null = nothing
};

DataPlane::DataPlane(DataPlaneOptions options, std::unique_ptr<transport::Endpoint> endpoint)
    : options_(options),
      endpoint_(std::move(endpoint)),
      executor_({options.size, options.timeout}, *endpoint_, base::SteadyClock::instance()) {}

DataPlane::~DataPlane() = default;

void DataPlane::install(control::ScheduleSlot slot, std::unique_ptr<resource::ScheduleNode> node) {
  std::scoped_lock lock(mutex_);
  auto& place = nodes_[static_cast<std::size_t>(slot)];
  // Release: the node is complete before its pointer can be seen.
  resource::ScheduleNode* expected = nullptr;
  const bool first = place.compare_exchange_strong(expected, node.get(), std::memory_order_release,
                                                   std::memory_order_relaxed);
  THESEUS_CHECK(first, "a slot is filled once");
  owned_.push_back(std::move(node));
  toConnect_.push_back(slot);
  // Release: pairs with the acquire in openRequestedChannels; the list itself is read under the lock.
  channelsRequested_.store(true, std::memory_order_release);
}

resource::ScheduleNode* DataPlane::node(control::ScheduleSlot slot) const {
  if (slot < 0 || slot >= control::kScheduleSlots) return nullptr;
  // Acquire pairs with the release in install().
  return nodes_[static_cast<std::size_t>(slot)].load(std::memory_order_acquire);
}

bool DataPlane::connected(control::ScheduleSlot slot) const {
  // Relaxed: a hint for readiness; the channels themselves are used by the calling thread only.
  return connected_[static_cast<std::size_t>(slot)].load(std::memory_order_relaxed);
}

Status DataPlane::openRequestedChannels() {
  // Acquire pairs with install(); false is the common case and costs one load.
  if (!channelsRequested_.load(std::memory_order_acquire)) return {};
  std::vector<control::ScheduleSlot> slots;
  {
    std::scoped_lock lock(mutex_);
    slots = toConnect_;
  }
  std::vector<control::ScheduleSlot> pending;
  for (control::ScheduleSlot slot : slots) {
    auto open = executor_.connect(*node(slot));
    if (!open) return fail(open.error());
    // Relaxed: see connected().
    if (*open)
      connected_[static_cast<std::size_t>(slot)].store(true, std::memory_order_relaxed);
    else
      pending.push_back(slot);
  }
  std::scoped_lock lock(mutex_);
  for (std::size_t i = slots.size(); i < toConnect_.size(); ++i) pending.push_back(toConnect_[i]);
  toConnect_ = std::move(pending);
  // Relaxed: written under the lock that install() holds too, so no request is lost.
  channelsRequested_.store(!toConnect_.empty(), std::memory_order_relaxed);
  return {};
}

Result<DataPlane::Work> DataPlane::arrange(const CollectiveRequest& request,
                                           const resource::ScheduleNode& node) {
  Work work;
  work.size = schedule::messageSize(request.collective, options_.size, request.count,
                                    static_cast<std::uint32_t>(dataTypeBytes(request.dataType)));
  work.input = static_cast<std::byte*>(
      const_cast<void*>(request.source));  // plans write input only where it is the output too
  work.output = static_cast<std::byte*>(request.destination);
  const bool reads = request.collective != Collective::kBroadcast || options_.rank == request.root;
  if (!reads) work.input = work.output;
  THESEUS_TRY(stageIfNeeded(request, node, work));
  return work;
}

Status DataPlane::stageIfNeeded(const CollectiveRequest& request, const resource::ScheduleNode& node,
                                Work& work) {
  const std::uint64_t offset = inPlaceOffset(request, work.size, options_.rank);
  const bool gathers = work.size.outputBytes >= work.size.inputBytes;  // else the input is the larger buffer
  const bool inPlace = gathers ? work.input == work.output + offset : work.output == work.input + offset;
  const BufferMode mode = node.schedule().bufferMode;
  if (mode == BufferMode::kEither || (mode == BufferMode::kInPlace) == inPlace) return {};
  if (mode == BufferMode::kOutOfPlace) {  // called in place: the input is kept aside
    THESEUS_TRY(staging_.reserve(work.size.inputBytes));
    work.copyFrom = std::exchange(work.input, staging_.data());
    return {};
  }
  if (gathers) {  // written for one buffer, called with two: the input takes its place in the output
    work.copyFrom = std::exchange(work.input, work.output + offset);
    return {};
  }
  // reduceScatter in a single buffer would overwrite the caller's input: run in a copy, hand the result over
  // at the end.
  THESEUS_TRY(staging_.reserve(work.size.inputBytes));
  work.copyFrom = std::exchange(work.input, staging_.data());
  work.output = work.input + offset;
  work.resultFrom = work.output;
  return {};
}

Status DataPlane::run(const CollectiveRequest& request, SequenceNumber sequence,
                      resource::ScheduleNode& node) {
  THESEUS_TRY(openRequestedChannels());
  auto work = arrange(request, node);
  if (!work) return fail(work.error());
  auto instance = node.instance(work->size);
  if (!instance) return fail(instance.error());
  THESEUS_TRY(scratch_.reserve((*instance)->scratchBytes));
  if (work->copyFrom != nullptr) std::memmove(work->input, work->copyFrom, work->size.inputBytes);

  exec::Call call;
  call.identity = {sequence,         request.collective, request.dataType,
                   request.reduceOp, request.count,      request.root};
  call.node = &node;
  call.instance = *instance;
  call.buffers[static_cast<int>(BufferKind::kInput)] = {work->input, work->size.inputBytes};
  call.buffers[static_cast<int>(BufferKind::kOutput)] = {work->output, work->size.outputBytes};
  call.buffers[static_cast<int>(BufferKind::kScratch)] = {scratch_.data(), (*instance)->scratchBytes};
  THESEUS_TRY(executor_.start(call));
  THESEUS_TRY(executor_.finish());

  const bool reduces =
      request.collective == Collective::kAllReduce || request.collective == Collective::kReduceScatter;
  if (reduces && request.reduceOp == ReduceOp::kAvg) {
    base::finishAverage(request.dataType, work->output,
                        work->size.outputBytes / dataTypeBytes(request.dataType), options_.size);
  }
  if (work->resultFrom != nullptr) std::memcpy(request.destination, work->resultFrom, work->size.outputBytes);
  return {};
}

}  // namespace theseus::runtime
