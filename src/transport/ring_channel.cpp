#include "transport/ring_channel.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace theseus::transport {
namespace {

/// Published and given back in pieces of this size, so that the two copies of a large segment overlap.
constexpr std::size_t kPieceBytes = 32 * 1024;
/// What one stream may deliver in one call of progress().
constexpr std::size_t kBytesPerTurn = 2 * kSegmentBytesMax;
constexpr int kStepsPerTurn = 64;

}  // namespace

Status checkHeader(Rank from, const SegmentHeader& header) {
  if (header.magic != SegmentHeader::kMagic)
    return fail(ErrorCode::kTransport,
                fmt::format("the stream from rank {} is broken: magic {:#010x} instead of {:#010x}", from,
                            header.magic, SegmentHeader::kMagic));
  if (header.bytes > kSegmentBytesMax)
    return fail(ErrorCode::kTransport,
                fmt::format("the stream from rank {} is broken: a segment of {} bytes, {} at most", from,
                            header.bytes, kSegmentBytesMax));
  return {};
}

void RingChannel::attach(RingMemory ring, Doorbell peer) {
  ring_ = RingWriter(ring);
  peerDoorbell_ = peer;
  attached_ = true;
}

bool RingChannel::readerClosed() const {
  // acquire: what the peer did before its goodbye is visible; nothing here relies on it yet.
  return attached_ && ring_.control().readerClosed.load(std::memory_order_acquire) != 0;
}

Status RingChannel::checkUsable() {
  if (!failure_ && ring_.corrupt())
    failure_ =
        Error{ErrorCode::kTransport,
              fmt::format("the ring to rank {} holds impossible counts: that process overwrote it", peer_)};
  if (!failure_ && readerClosed())
    failure_ = Error{ErrorCode::kTransport,
                     fmt::format("cannot send to rank {}: it has closed its endpoint; it must outlive the "
                                 "calls of its peers",
                                 peer_)};
  if (failure_) return theseus::fail(*failure_);
  return {};
}

Result<bool> RingChannel::put(const SegmentHeader& header, const std::byte* payload) {
  THESEUS_TRY(checkHeader(peer_, header));
  THESEUS_TRY(checkUsable());
  if (attached_) advance();
  if (!attached_ || remaining_ > 0 || ring_.room(sizeof(header)) < sizeof(header)) {
    THESEUS_TRY(checkUsable());
    refused_ = true;
    return false;
  }
  refused_ = false;
  ring_.write(&header, sizeof(header));
  payload_ = payload;
  remaining_ = header.bytes;
  ++accepted_;
  if (remaining_ == 0 || !advance()) {
    ring_.publish();
    peerDoorbell_.ring();
  }
  if (remaining_ == 0) completed_ = accepted_;
  return true;
}

bool RingChannel::advance() {
  bool moved = false;
  while (remaining_ > 0) {
    const std::size_t wanted = std::min(remaining_, kPieceBytes);
    const std::size_t room = ring_.room(roundUpToRingUnit(wanted));
    const std::size_t piece = std::min(wanted, room);
    if (piece == 0) break;
    ring_.write(payload_, piece);
    ring_.publish();
    peerDoorbell_.ring();
    payload_ += piece;
    remaining_ -= piece;
    moved = true;
    if (remaining_ == 0) completed_ = accepted_;
  }
  return moved;
}

void RingChannel::sayGoodbye() {
  if (!attached_ || remaining_ > 0) return;
  // release: everything published before is visible to a reader that sees the goodbye.
  ring_.control().writerClosed.store(1, std::memory_order_release);
  peerDoorbell_.ring();
}

void RingChannel::announceWait() {
  if (!attached_ || (remaining_ == 0 && !refused_)) return;
  // relaxed: ordered against the look for room that follows by the fence of Doorbell::prepareSleep.
  ring_.control().writerWaits.store(1, std::memory_order_relaxed);
  announced_ = true;
}

void RingChannel::withdrawWait() {
  if (!announced_) return;
  // relaxed: a reader that still sees 1 looks at our doorbell in vain, no more.
  ring_.control().writerWaits.store(0, std::memory_order_relaxed);
  announced_ = false;
}

bool RingChannel::canMove() {
  if (!attached_ || (remaining_ == 0 && !refused_)) return false;
  return ring_.room(kRingUnitBytes) > 0 || readerClosed() || ring_.corrupt();
}

void RingStream::giveBack() {
  ring_.giveBack();
  // seq_cst: orders the new count against the load below; the writer stores writerWaits, fences and looks at
  // the count, so that it sees the room or we see that it waits.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // relaxed: ordered by the fence.
  if (ring_.control().writerWaits.load(std::memory_order_relaxed) != 0) writer_.ring();
}

bool RingStream::writerClosed() const {
  // acquire: a reader that sees the goodbye also sees the count of the last bytes.
  return attached_ && ring_.control().writerClosed.load(std::memory_order_acquire) != 0;
}

void RingStream::sayGoodbye() {
  if (!attached_) return;
  // release: orders our last reads before it; the writer relies on nothing else.
  ring_.control().readerClosed.store(1, std::memory_order_release);
  writer_.ring();
}

bool RingStream::canMove() {
  if (!attached_ || parked_) return false;
  return haveHeader_ || ring_.available(kRingUnitBytes) > 0 || ring_.corrupt();
}

Status RingStream::readHeader() {
  ring_.read(&header_, sizeof(header_));
  haveHeader_ = true;
  return checkHeader(from_, header_);
}

Result<bool> RingStream::step(InboundHandler& handler) {
  if (!inPayload_) {
    if (!haveHeader_) {
      if (ring_.available(sizeof(header_)) < sizeof(header_)) return false;
      THESEUS_TRY(readHeader());
    }
    Result<Placement> placement = handler.onHeader(from_, header_);
    if (!placement) return fail(std::move(placement.error()));
    if (placement->later) {
      parked_ = true;
      return false;
    }
    haveHeader_ = false;
    inPayload_ = true;
    destination_ = placement->destination;
    remaining_ = header_.bytes;
  }
  while (remaining_ > 0) {
    const std::size_t wanted = std::min(remaining_, kPieceBytes);
    const std::size_t piece = std::min(wanted, ring_.available(roundUpToRingUnit(wanted)));
    if (piece == 0) return false;
    ring_.read(destination_, piece);
    if (ring_.notGivenBack() >= kPieceBytes) giveBack();
    destination_ += piece;
    remaining_ -= piece;
  }
  inPayload_ = false;
  THESEUS_TRY(handler.onDelivered(from_, header_));
  return true;
}

Result<bool> RingStream::progress(InboundHandler& handler) {
  if (!attached_ || parked_) return false;
  bool moved = false;
  std::size_t delivered = 0;
  for (int i = 0; i < kStepsPerTurn && delivered < kBytesPerTurn; ++i) {
    const std::size_t before = remaining_;
    Result<bool> stepped = step(handler);
    if (!stepped) return stepped;
    if (ring_.corrupt())
      return fail(
          ErrorCode::kTransport,
          fmt::format("the ring from rank {} holds impossible counts: that process overwrote it", from_));
    moved = moved || *stepped || remaining_ != before;
    if (!*stepped) break;
    delivered += sizeof(header_) + header_.bytes;
  }
  // Small segments are given back together: a fence for each would cost more than their copies.
  if (ring_.notGivenBack() > 0) giveBack();
  return moved;
}

}  // namespace theseus::transport
