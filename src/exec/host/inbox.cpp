#include "exec/host/inbox.h"

#include <fmt/format.h>

#include "base/check.h"

namespace theseus::exec {
namespace {

using transport::Placement;
using transport::SegmentHeader;
using transport::SegmentKind;

tl::unexpected<Error> protocolError(Rank from, const char* what) {
  return fail(ErrorCode::kTransport,
              fmt::format("rank {} sent a segment that this collective cannot have: {}", from, what));
}

}  // namespace

Status Inbox::checkCall(Rank from, const SegmentHeader& header) const {
  const SegmentHeader own = makeHeader(state_.call, SegmentKind::kData);
  if (sameCall(own, header)) return {};
  const Rank rank = state_.call.node->rank();
  if (header.sequence < own.sequence) {
    return fail(
        ErrorCode::kMismatch,
        fmt::format(
            "rank {} sent data of collective {}, which rank {} has finished; it is in collective {} ({})",
            from, header.sequence, rank, own.sequence, describeCall(own)));
  }
  if (describeCall(own) != describeCall(header)) {
    return fail(
        ErrorCode::kMismatch,
        fmt::format(
            "collective {}: rank {} called {}, rank {} called {}; all ranks must make the same calls in the "
            "same order",
            own.sequence, rank, describeCall(own), from, describeCall(header)));
  }
  return fail(
      ErrorCode::kMismatch,
      fmt::format(
          "collective {}: rank {} runs schedule {:016x}, rank {} runs {:016x}; the dispatch tables differ",
          own.sequence, rank, own.scheduleId, from, header.scheduleId));
}

Result<Placement> Inbox::onHeader(Rank from, const SegmentHeader& header) {
  if (header.magic != SegmentHeader::kMagic) return protocolError(from, "wrong magic number");
  if (!state_.active || header.sequence > state_.call.identity.sequence) return Placement{.later = true};
  THESEUS_TRY(checkCall(from, header));
  Placement placement;
  if (header.bytes == 0) return placement;
  auto found = destination(from, header);
  if (!found) return fail(found.error());
  placement.destination = *found;
  return placement;
}

Result<std::byte*> Inbox::destination(Rank from, const SegmentHeader& header) const {
  if (header.kind == SegmentKind::kReadReply) {
    const std::uint32_t token = static_cast<std::uint32_t>(header.token);
    if (token >= state_.reads.size()) return protocolError(from, "an answer to no question");
    const PendingRead& read = state_.reads[token];
    if (header.offset > read.bytes || header.bytes > read.bytes - header.offset) {
      return protocolError(from, "an answer longer than its question");
    }
    return read.destination + header.offset;
  }
  if (header.kind != SegmentKind::kData || header.buffer > 2)
    return protocolError(from, "payload for no buffer");
  const Buffer& buffer = state_.call.buffers[header.buffer];
  if (header.offset > buffer.bytes || header.bytes > buffer.bytes - header.offset) {
    return protocolError(from, "a range outside the buffer");
  }
  return buffer.data + header.offset;
}

Status Inbox::onDelivered(Rank from, const SegmentHeader& header) {
  state_.bytesMoved += sizeof(SegmentHeader) + header.bytes;
  switch (header.kind) {
    case SegmentKind::kData:
      if (header.flags & transport::kFlagPackets) {
        state_.packets.add(header.offset, header.offset + header.bytes);
      }
      return header.flags & transport::kFlagSignal ? countSignal(from, header) : Status{};
    case SegmentKind::kSignal:
      return countSignal(from, header);
    case SegmentKind::kReadRequest:
      return serve(from, header);
    case SegmentKind::kReadReply:
      return acceptReply(from, header);
    case SegmentKind::kEnd:
      ++state_.endsReceived;
      return {};
  }
  return protocolError(from, "an unknown kind of segment");
}

Status Inbox::countSignal(Rank from, const SegmentHeader& header) {
  if (header.channelType > 1) return protocolError(from, "a signal on a switch channel");
  const std::int64_t number = state_.call.node->channelNumber(
      static_cast<schedule::ChannelType>(header.channelType), from, header.channel);
  if (number < 0) return protocolError(from, "a signal on a channel that the schedule does not have");
  ++state_.signals[header.channelType][static_cast<std::size_t>(number)];
  return {};
}

Status Inbox::serve(Rank from, const SegmentHeader& header) {
  const std::uint64_t bytes = header.token >> 32;
  if (header.buffer > 2) return protocolError(from, "a read of no buffer");
  const Buffer& buffer = state_.call.buffers[header.buffer];
  if (header.offset > buffer.bytes || bytes > buffer.bytes - header.offset) {
    return protocolError(from, "a read outside the buffer");
  }
  state_.served.push_back(
      {from, buffer.data + header.offset, bytes, 0, static_cast<std::uint32_t>(header.token)});
  return {};
}

Status Inbox::acceptReply(Rank from, const SegmentHeader& header) {
  const std::uint32_t token = static_cast<std::uint32_t>(header.token);
  if (token >= state_.reads.size()) return protocolError(from, "an answer to no question");
  PendingRead& read = state_.reads[token];
  read.arrived += header.bytes;
  if (read.arrived > read.bytes) return protocolError(from, "an answer longer than its question");
  if (read.arrived == read.bytes) --state_.blocks[read.block].readsOutstanding;
  return {};
}

}  // namespace theseus::exec
