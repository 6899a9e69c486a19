// The data side of BlockRunner: local folds, remote reads, and handing payload to channels.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/reduce.h"
#include "exec/host/block_runner.h"

namespace theseus::exec {
namespace {

using schedule::Extent;
using schedule::OpCode;
using schedule::OperandShape;
using schedule::Piece;
using transport::SegmentHeader;
using transport::SegmentKind;

/// One read request asks for at most this much, so that its length fits its 32 bits.
constexpr std::uint64_t kReadBytesMax = 1u << 30;
/// Folds of three and more sources go through a block of this size that stays in the first-level cache.
constexpr std::uint64_t kFoldBytes = 16 * 1024;

bool firstSourceIsLocal(OperandShape shape) { return shape == OperandShape::LocalAndPackets; }

/// Positions of the sources that are packets: [first, end).
std::pair<std::size_t, std::size_t> packetSources(OperandShape shape, std::size_t count) {
  if (shape == OperandShape::LocalPacket) return {0, count};
  if (firstSourceIsLocal(shape)) return {1, count};
  return {0, 0};
}

bool writesPackets(OpCode code) {
  switch (code) {
    case OpCode::kPutPackets:
    case OpCode::kReadPutPackets:
    case OpCode::kReduceSendPackets:
    case OpCode::kReduceCopySendPackets:
      return true;
    default:
      return false;
  }
}

/// destination = sources[order[0]] op sources[order[1]] op ...; the destination may be any of the sources.
void foldSources(const Call& call, std::byte* destination, const std::vector<const std::byte*>& sources,
                 std::uint64_t bytes) {
  const DataType type = call.identity.dataType;
  const ReduceOp op = call.identity.reduceOp;
  const std::size_t elementBytes = dataTypeBytes(type);
  if (sources.size() == 1) {
    std::memmove(destination, sources[0], bytes);
    return;
  }
  if (sources.size() == 2) {
    base::reduce(type, op, {destination, sources[0], sources[1]}, bytes / elementBytes);
    return;
  }
  alignas(64) std::byte accumulator[kFoldBytes];
  for (std::uint64_t done = 0; done < bytes; done += kFoldBytes) {
    const std::uint64_t part = std::min(kFoldBytes, bytes - done);
    base::reduce(type, op, {accumulator, sources[0] + done, sources[1] + done}, part / elementBytes);
    for (std::size_t i = 2; i < sources.size(); ++i) {
      base::reduce(type, op, {accumulator, accumulator, sources[i] + done}, part / elementBytes);
    }
    std::memcpy(destination + done, accumulator, part);
  }
}

}  // namespace

bool BlockRunner::packetsArrived(const Op& op, const Piece& piece) const {
  const auto [first, end] = packetSources(schedule::traits(op.resolved.code).sources, piece.sources.size());
  for (std::size_t i = first; i < end; ++i) {
    const Extent& source = piece.sources[i];
    if (!state_.packets.covers(source.offset, source.offset + source.bytes)) return false;
  }
  return true;
}

Result<BlockRunner::Step> BlockRunner::requestReads(std::size_t index, const Op& op, const Piece& piece) {
  BlockState& block = state_.blocks[index];
  const OperandShape shape = schedule::traits(op.resolved.code).sources;
  const bool reads = shape == OperandShape::RemoteEach || shape == OperandShape::LocalAndRemotes;
  if (!reads) return Step::kDone;
  if (block.entered) return block.readsOutstanding == 0 ? Step::kDone : Step::kWaiting;
  const bool direct = shape == OperandShape::RemoteEach;  // get: straight to the destination
  const std::size_t firstRemote = direct ? 0 : 1;
  if (!direct && block.target == 0) {
    block.target = firstRemote;
    block.staging.resize((piece.sources.size() - firstRemote) * piece.sources[0].bytes);
  }
  // Here target and offset walk over the remote sources; sendTargets uses them afterwards, from zero.
  for (; block.target < piece.sources.size(); ++block.target, block.offset = 0) {
    const Extent& source = piece.sources[block.target];
    std::byte* destination = direct ? local(piece.destinations[block.target])
                                    : block.staging.data() + (block.target - firstRemote) * source.bytes;
    while (block.offset < source.bytes) {
      const std::uint64_t bytes = std::min(kReadBytesMax, source.bytes - block.offset);
      SegmentHeader header = makeHeader(state_.call, SegmentKind::kReadRequest);
      header.buffer = static_cast<std::uint8_t>(source.buffer);
      header.offset = source.offset + block.offset;
      header.token = bytes << 32 | state_.reads.size();
      auto accepted = channels_[static_cast<std::size_t>(source.rank)]->put(header, nullptr);
      if (!accepted) return fail(accepted.error());
      if (!*accepted) return Step::kWaiting;
      state_.reads.push_back({destination + block.offset, bytes, 0, index});
      ++block.readsOutstanding;
      block.offset += bytes;
      state_.bytesMoved += sizeof(SegmentHeader);
    }
  }
  block.target = 0;
  block.offset = 0;
  block.entered = true;
  return Step::kMoved;
}

void BlockRunner::fold(const Op& op, const Piece& piece, BlockState& block) {
  const schedule::OpTraits& traits = schedule::traits(op.resolved.code);
  const bool hasLocalResult =
      traits.destinations != OperandShape::RemoteEach && op.resolved.code != OpCode::kGet;
  if (!hasLocalResult) return;
  std::vector<const std::byte*> sources;
  const std::uint64_t bytes = piece.destinations[0].bytes;
  if (traits.sources == OperandShape::LocalAndRemotes) {
    sources.push_back(local(piece.sources[0]));
    for (std::size_t i = 1; i < piece.sources.size(); ++i)
      sources.push_back(block.staging.data() + (i - 1) * bytes);
  } else {
    for (const Extent& source : piece.sources) sources.push_back(local(source));
    // Packets are folded in the order they are listed, the plain local source last (MSCCL++'s order, for
    // bitwise equality).
    if (firstSourceIsLocal(traits.sources)) std::rotate(sources.begin(), sources.begin() + 1, sources.end());
  }
  foldSources(state_.call, local(piece.destinations[0]), sources, bytes);
  state_.bytesMoved += bytes;
  const bool alsoPackets = traits.destinations == OperandShape::LocalAndPacket ||
                           traits.destinations == OperandShape::LocalPacketRemotes;
  if (alsoPackets) std::memcpy(local(piece.destinations[1]), local(piece.destinations[0]), bytes);
  const std::size_t packets = alsoPackets ? 1 : 0;
  if (alsoPackets || traits.destinations == OperandShape::LocalPacket) {
    const Extent& written = piece.destinations[packets];
    state_.packets.add(written.offset, written.offset + written.bytes);
  }
}

Result<BlockRunner::Step> BlockRunner::sendTargets(const Op& op, const Piece& piece, BlockState& block) {
  const OperandShape shape = schedule::traits(op.resolved.code).destinations;
  std::size_t firstRemote = 0;
  if (shape == OperandShape::LocalAndRemotes) firstRemote = 1;
  if (shape == OperandShape::LocalPacketRemotes) firstRemote = 2;
  const bool sends = firstRemote > 0 || shape == OperandShape::RemoteEach;
  if (!sends) return Step::kDone;
  const std::size_t targets = piece.destinations.size() - firstRemote;
  while (block.target < targets) {
    // Fused ops send their local result; put pairs sources with destinations, or sends its one source to all.
    const Extent* source = &piece.destinations[0];
    if (firstRemote == 0) source = &piece.sources[piece.sources.size() == targets ? block.target : 0];
    const bool lastTarget = block.target + 1 == targets && block.piece + 1 == op.resolved.pieces.size();
    auto step = sendOne(op, block, {*source, piece.destinations[firstRemote + block.target], lastTarget});
    if (!step || *step != Step::kDone) return step;
    ++block.target;
    block.offset = 0;
  }
  return Step::kDone;
}

Result<BlockRunner::Step> BlockRunner::sendOne(const Op& op, BlockState& block, const Sending& sending) {
  const Extent& target = sending.target;
  transport::Channel* channel = channels_[static_cast<std::size_t>(target.rank)];
  const std::byte* payload = local(sending.source);
  bool moved = false;
  while (block.offset < target.bytes) {
    const std::uint64_t bytes =
        std::min<std::uint64_t>(transport::kSegmentBytesMax, target.bytes - block.offset);
    SegmentHeader header = makeHeader(state_.call, SegmentKind::kData);
    header.buffer = static_cast<std::uint8_t>(target.buffer);
    header.offset = target.offset + block.offset;
    header.bytes = static_cast<std::uint32_t>(bytes);
    if (writesPackets(op.resolved.code)) header.flags |= transport::kFlagPackets;
    if (op.signalsWithLastSegment && sending.last && block.offset + bytes == target.bytes) {
      header.flags |= transport::kFlagSignal;
      header.channelType = static_cast<std::uint8_t>(op.resolved.channelType);
      header.channel = state_.call.node->channelEnds(op.resolved.channelType)[op.signalChannel].pairIndex;
    }
    auto accepted = channel->put(header, payload + block.offset);
    if (!accepted) return fail(accepted.error());
    if (!*accepted) return moved ? Step::kMoved : Step::kWaiting;
    moved = true;
    block.offset += bytes;
    state_.bytesMoved += sizeof(SegmentHeader) + bytes;
  }
  block.unflushed.emplace_back(channel, channel->accepted());
  return Step::kDone;
}

Result<bool> BlockRunner::serveReads() {
  bool changed = false;
  while (!state_.served.empty()) {
    ServedRead& read = state_.served.front();
    transport::Channel* channel = channels_[static_cast<std::size_t>(read.peer)];
    while (read.sent < read.bytes) {
      SegmentHeader header = makeHeader(state_.call, SegmentKind::kReadReply);
      header.offset = read.sent;
      header.bytes = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(transport::kSegmentBytesMax, read.bytes - read.sent));
      header.token = read.token;
      auto accepted = channel->put(header, read.source + read.sent);
      if (!accepted) return fail(accepted.error());
      if (!*accepted) return changed;
      changed = true;
      read.sent += header.bytes;
      state_.bytesMoved += sizeof(SegmentHeader) + header.bytes;
    }
    state_.served.pop_front();
  }
  return changed;
}

}  // namespace theseus::exec
