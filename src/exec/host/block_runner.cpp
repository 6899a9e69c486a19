#include "exec/host/block_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace theseus::exec {
namespace {

using schedule::Extent;
using schedule::OpClass;
using schedule::OpCode;
using schedule::Piece;
using transport::SegmentHeader;
using transport::SegmentKind;

/// A block's share of bytes in one turn: enough to keep a pipe busy, small enough to keep others served.
constexpr std::uint64_t kTurnBytes = 512 * 1024;

/// Ops that may run while the sources of the block's earlier puts are still being read: they change no local
/// memory and tell nobody but the receiver of the put that anything is over.
bool runsUnflushed(const resource::InstanceOp& op) {
  switch (op.resolved.code) {
    case OpCode::kPut:
    case OpCode::kPutWithSignal:
    case OpCode::kPutPackets:
    case OpCode::kWait:
    case OpCode::kRelaxedWait:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::byte* BlockRunner::local(const Extent& extent) const {
  const Buffer& buffer = state_.call.buffers[static_cast<int>(extent.buffer)];
  THESEUS_CHECK(extent.offset + extent.bytes <= buffer.bytes, "a resolved range lies outside its buffer");
  return buffer.data + extent.offset;
}

bool BlockRunner::flushed(BlockState& block) const {
  std::erase_if(block.unflushed, [](const auto& put) { return put.first->completed() >= put.second; });
  return block.unflushed.empty();
}

Result<bool> BlockRunner::stepAll() {
  bool changed = false;
  for (std::size_t index = 0; index < state_.blocks.size(); ++index) {
    if (state_.blocks[index].op >= state_.call.instance->threadBlocks[index].size()) continue;
    auto moved = stepBlock(index);
    if (!moved) return moved;
    changed |= *moved;
  }
  return changed;
}

Result<bool> BlockRunner::stepBlock(std::size_t index) {
  const auto& ops = state_.call.instance->threadBlocks[index];
  BlockState& block = state_.blocks[index];
  const std::uint64_t start = state_.bytesMoved;
  bool changed = false;
  while (block.op < ops.size() && state_.bytesMoved - start < kTurnBytes) {
    const Op& op = ops[block.op];
    if (!block.unflushed.empty() && !runsUnflushed(op) && !flushed(block)) return changed;
    auto step = stepOp(index, op);
    if (!step) return fail(step.error());
    if (*step == Step::kWaiting) return changed;
    changed = true;
    if (*step == Step::kDone) {
      ++block.op;
      block.piece = 0;
      block.entered = false;
    }
  }
  if (block.op == ops.size()) ++state_.blocksDone;
  return changed;
}

Result<BlockRunner::Step> BlockRunner::stepOp(std::size_t index, const Op& op) {
  return schedule::traits(op.resolved.code).opClass == OpClass::Sync ? stepSync(index, op)
                                                                     : stepData(index, op);
}

Result<BlockRunner::Step> BlockRunner::stepSync(std::size_t index, const Op& op) {
  BlockState& block = state_.blocks[index];
  switch (op.resolved.code) {
    case OpCode::kSignal:
    case OpCode::kRelaxedSignal: {
      Status status;
      const Step step = signal(op, status, block);
      if (!status) return fail(status.error());
      return step;
    }
    case OpCode::kWait:
    case OpCode::kRelaxedWait:
      return takeSignals(op) ? Step::kDone : Step::kWaiting;
    case OpCode::kSemaphoreAcquire:
      return acquire(op) ? Step::kDone : Step::kWaiting;
    case OpCode::kSemaphoreRelease:
      for (std::uint32_t semaphore : op.resolved.semaphores) ++state_.semaphores[semaphore];
      return Step::kDone;
    case OpCode::kBarrier:
      return barrier(index, op);
    default:
      return Step::kDone;  // nop and flush: stepBlock has flushed already
  }
}

BlockRunner::Step BlockRunner::signal(const Op& op, Status& status, BlockState& block) {
  const auto& ends = state_.call.node->channelEnds(op.resolved.channelType);
  while (block.target < op.resolved.channels.size()) {
    const resource::ChannelEnd& end = ends[op.resolved.channels[block.target]];
    SegmentHeader header = makeHeader(state_.call, SegmentKind::kSignal);
    header.channelType = static_cast<std::uint8_t>(op.resolved.channelType);
    header.channel = end.pairIndex;
    auto accepted = channels_[static_cast<std::size_t>(end.peer)]->put(header, nullptr);
    if (!accepted) {
      status = fail(accepted.error());
      return Step::kWaiting;
    }
    if (!*accepted) return Step::kWaiting;
    state_.bytesMoved += sizeof(SegmentHeader);
    ++block.target;
  }
  block.target = 0;
  return Step::kDone;
}

bool BlockRunner::takeSignals(const Op& op) {
  const auto type = static_cast<std::size_t>(op.resolved.channelType);
  const auto& signals = state_.signals[type];
  auto& waits = state_.waits[type];
  for (std::uint32_t channel : op.resolved.channels) {
    if (signals[channel] <= waits[channel]) return false;
  }
  for (std::uint32_t channel : op.resolved.channels) ++waits[channel];
  return true;
}

bool BlockRunner::acquire(const Op& op) {
  for (std::uint32_t semaphore : op.resolved.semaphores) {
    if (state_.semaphores[semaphore] <= 0) return false;
  }
  for (std::uint32_t semaphore : op.resolved.semaphores) --state_.semaphores[semaphore];
  return true;
}

BlockRunner::Step BlockRunner::barrier(std::size_t index, const Op& op) {
  BarrierState& state = state_.barriers[op.resolved.barrierId];
  BlockState& block = state_.blocks[index];
  if (!block.entered) {
    block.entered = true;
    state_.barrierGeneration[index] = state.generation;
    if (++state.arrived == op.resolved.barrierThreadBlocks) {
      state.arrived = 0;
      ++state.generation;
    }
  }
  return state.generation > state_.barrierGeneration[index] ? Step::kDone : Step::kWaiting;
}

Result<BlockRunner::Step> BlockRunner::stepData(std::size_t index, const Op& op) {
  BlockState& block = state_.blocks[index];
  if (block.piece < op.resolved.pieces.size()) {
    auto step = stepPiece(index, op, op.resolved.pieces[block.piece]);
    if (!step || *step != Step::kDone) return step;
    ++block.piece;
    block.target = 0;
    block.offset = 0;
    block.entered = false;
    block.folded = false;
    if (block.piece < op.resolved.pieces.size()) return Step::kMoved;
  }
  const bool signals =
      op.resolved.code == OpCode::kPutWithSignal || op.resolved.code == OpCode::kPutWithSignalAndFlush;
  if (signals) {
    Status status;
    const Step step = signal(op, status, block);
    if (!status) return fail(status.error());
    if (step != Step::kDone) return step;
  }
  return Step::kDone;
}

Result<BlockRunner::Step> BlockRunner::stepPiece(std::size_t index, const Op& op, const Piece& piece) {
  BlockState& block = state_.blocks[index];
  if (!block.folded) {
    if (!packetsArrived(op, piece)) return Step::kWaiting;
    auto reads = requestReads(index, op, piece);
    if (!reads || *reads != Step::kDone) return reads;
    fold(op, piece, block);
    block.folded = true;
  }
  return sendTargets(op, piece, block);
}

std::string BlockRunner::describeWaiting(std::size_t limit) const {
  std::string text;
  std::size_t shown = 0;
  for (std::size_t index = 0; index < state_.blocks.size(); ++index) {
    const auto& ops = state_.call.instance->threadBlocks[index];
    const BlockState& block = state_.blocks[index];
    if (block.op >= ops.size()) continue;
    if (shown++ == limit) return text + ", ...";
    const auto& resolved = ops[block.op].resolved;
    text += fmt::format("{}block {} op {} ({}", shown > 1 ? ", " : "", index, resolved.opIndex,
                        schedule::traits(resolved.code).name);
    for (std::uint32_t channel : resolved.channels) {
      text += fmt::format(", rank {}", state_.call.node->channelEnds(resolved.channelType)[channel].peer);
    }
    text += ")";
  }
  return text;
}

}  // namespace theseus::exec
