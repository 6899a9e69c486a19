// The unit on the wire: a fixed header of 64 bytes, then `bytes` of payload. Every header carries the
// identity of the call that it belongs to, so that ranks which call different things find out instead of
// hanging. Layout: docs/wire-format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace theseus::transport {

enum class SegmentKind : std::uint8_t {
  kData = 1,         // payload for (buffer, offset) of the receiver
  kSignal = 2,       // no payload: one signal on a channel
  kReadRequest = 3,  // asks for `token`-tagged bytes at (buffer, offset); `requestBytes` in place of payload
  kReadReply = 4,    // payload that answers a request with the same token
  kEnd = 5,          // the sender's part of this collective is over
};

enum SegmentFlag : std::uint8_t {
  kFlagSignal = 1,   // after the payload, one signal on the channel (put with signal)
  kFlagPackets = 2,  // the payload is packets: its arrival can be waited for by range
};

/// Little-endian on the wire, written as it lies in memory.
struct SegmentHeader {
  static constexpr std::uint32_t kMagic = 0x31534854;  // "THS1"
  std::uint32_t magic = kMagic;
  SegmentKind kind = SegmentKind::kData;
  std::uint8_t flags = 0;
  std::uint8_t collective = 0;  // theseus::Collective of the call
  std::uint8_t dataType = 0;
  std::uint64_t sequence = 0;    // number of the collective
  std::uint64_t scheduleId = 0;  // low half of the schedule's content hash
  std::uint64_t count = 0;       // elements, as the caller counts
  std::int32_t root = 0;
  std::uint8_t reduceOp = 0;
  std::uint8_t buffer = 0;       // schedule::BufferKind of the receiver
  std::uint8_t channelType = 0;  // schedule::ChannelType of the signal
  std::uint8_t reserved = 0;
  std::uint64_t offset = 0;   // bytes into the buffer
  std::uint32_t bytes = 0;    // payload that follows this header
  std::uint32_t channel = 0;  // signal: the k-th channel of that type from sender to receiver
  std::uint64_t token =
      0;  // reads: chosen by the requester; kReadRequest: the high 32 bits hold the bytes asked for
};
static_assert(sizeof(SegmentHeader) == 64);
static_assert(offsetof(SegmentHeader, sequence) == 8);
static_assert(offsetof(SegmentHeader, root) == 32);
static_assert(offsetof(SegmentHeader, offset) == 40);
static_assert(offsetof(SegmentHeader, token) == 56);
static_assert(std::is_trivially_copyable_v<SegmentHeader>);

/// Largest payload of one segment: bounds how long one transfer keeps others off a channel.
constexpr std::uint32_t kSegmentBytesMax = 128 * 1024;

}  // namespace theseus::transport
