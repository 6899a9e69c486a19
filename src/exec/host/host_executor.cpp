#include "exec/host/host_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace theseus::exec {
namespace {

/// Longest sleep between two looks at the time-out.
constexpr base::Nanoseconds kNapMax = std::chrono::milliseconds(50);

}  // namespace

HostExecutor::HostExecutor(HostExecutorOptions options, transport::Endpoint& endpoint,
                           const base::Clock& clock)
    : options_(options),
      endpoint_(endpoint),
      clock_(clock),
      inbox_(state_),
      channels_(static_cast<std::size_t>(options.size), nullptr),
      blocks_(state_, channels_) {}

Result<bool> HostExecutor::connect(const resource::ScheduleNode& node) {
  bool open = true;
  for (const auto* peers : {&node.peers(), &node.accessors()}) {
    for (Rank peer : *peers) {
      transport::Channel*& channel = channels_[static_cast<std::size_t>(peer)];
      if (channel == nullptr) {
        auto connected = endpoint_.connect(peer);
        if (!connected) return fail(connected.error());
        channel = *connected;
      }
      open = open && channel->open();
    }
  }
  return open;
}

Status HostExecutor::begin(const Call& call) {
  THESEUS_CHECK(!state_.active, "one collective at a time");
  THESEUS_TRY(connect(*call.node));
  const resource::ScheduleNode& node = *call.node;
  const auto& plan = node.schedule().ranks[static_cast<std::size_t>(node.rank())];
  state_.call = call;
  for (int type = 0; type < 2; ++type) {
    const std::size_t channels = node.channelEnds(static_cast<schedule::ChannelType>(type)).size();
    state_.signals[type].assign(channels, 0);
    state_.waits[type].assign(channels, 0);
  }
  state_.semaphores = plan.semaphores;
  state_.barriers.clear();
  state_.packets.clear();
  state_.reads.clear();
  state_.served.clear();
  const std::size_t blocks = call.instance->threadBlocks.size();
  state_.blocks.resize(blocks);
  for (BlockState& block : state_.blocks) {
    std::vector<std::byte> staging = std::move(block.staging);  // keeps its memory from call to call
    block = BlockState{};
    block.staging = std::move(staging);
  }
  state_.barrierGeneration.assign(blocks, 0);
  state_.blocksDone = static_cast<std::size_t>(std::count_if(call.instance->threadBlocks.begin(),
                                                             call.instance->threadBlocks.end(),
                                                             [](const auto& ops) { return ops.empty(); }));
  state_.endsReceived = 0;
  state_.endsSent = 0;
  state_.active = true;
  endpoint_.resume();
  return {};
}

Status HostExecutor::start(const Call& call) {
  THESEUS_TRY(begin(call));
  auto moved = blocks_.stepAll();
  if (!moved) {
    state_.active = false;
    return fail(moved.error());
  }
  return {};
}

Result<bool> HostExecutor::sendEnds() {
  const auto& peers = state_.call.node->peers();
  bool changed = false;
  while (state_.endsSent < peers.size()) {
    auto accepted = channels_[static_cast<std::size_t>(peers[state_.endsSent])]->put(
        makeHeader(state_.call, transport::SegmentKind::kEnd), nullptr);
    if (!accepted) return fail(accepted.error());
    if (!*accepted) return changed;
    ++state_.endsSent;
    changed = true;
  }
  return changed;
}

Result<bool> HostExecutor::complete() {
  if (state_.blocksDone < state_.blocks.size() || !state_.served.empty()) return false;
  if (!state_.call.node->tailSynchronized()) {
    auto sent = sendEnds();
    if (!sent) return sent;
    if (state_.endsSent < state_.call.node->peers().size()) return false;
    if (state_.endsReceived < state_.call.node->accessors().size()) return false;
  }
  for (const auto* peers : {&state_.call.node->peers(), &state_.call.node->accessors()}) {
    for (Rank peer : *peers) {
      const transport::Channel* channel = channels_[static_cast<std::size_t>(peer)];
      if (channel->completed() < channel->accepted()) return false;
    }
  }
  state_.active = false;
  return true;
}

Result<bool> HostExecutor::advance() {
  THESEUS_CHECK(state_.active, "advance() without a running collective");
  auto done = complete();
  if (!done || *done) return done;
  auto transferred = endpoint_.progress(inbox_);
  if (!transferred) return fail(transferred.error());
  auto stepped = blocks_.stepAll();
  if (!stepped) return fail(stepped.error());
  auto served = blocks_.serveReads();
  if (!served) return fail(served.error());
  return complete();
}

Error HostExecutor::timeoutError() const {
  const CallIdentity& call = state_.call.identity;
  const std::string waiting = blocks_.describeWaiting(4);
  return {ErrorCode::kTimeout,
          fmt::format("collective {} ({} by schedule {}): nothing moved for {:.1f} s; waiting at {}",
                      call.sequence, name(call.collective), state_.call.node->name(),
                      std::chrono::duration<double>(options_.timeout).count(),
                      waiting.empty() ? "the end of the peers' part" : waiting)};
}

Status HostExecutor::finish() {
  std::uint64_t moved = state_.bytesMoved;
  base::TimePoint lastMove = clock_.now();
  while (true) {
    // Acquire pairs with the release in interrupt(): the error is written before the flag.
    if (interrupted_.load(std::memory_order_acquire)) {
      state_.active = false;
      return fail(interruption_);
    }
    auto done = advance();
    if (!done) {
      state_.active = false;
      return fail(done.error());
    }
    if (*done) return {};
    if (state_.bytesMoved != moved) {
      moved = state_.bytesMoved;
      lastMove = clock_.now();
      continue;
    }
    if (clock_.now() - lastMove > options_.timeout) {
      state_.active = false;
      return fail(timeoutError());
    }
    endpoint_.wait(kNapMax);
  }
}

void HostExecutor::interrupt(Error error) {
  interruption_ = std::move(error);
  // Release: publishes interruption_ to the thread that sees the flag.
  interrupted_.store(true, std::memory_order_release);
  endpoint_.wake();
}

}  // namespace theseus::exec
