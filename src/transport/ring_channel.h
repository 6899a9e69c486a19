// One way to a peer through a ring: the sending half (a Channel) and the receiving half, shared by loopback
// and shm. Both belong to a RingEndpoint and are used only by the thread that drives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "theseus/result.h"
#include "transport/channel.h"
#include "transport/endpoint.h"
#include "transport/inbox.h"
#include "transport/ring.h"
#include "transport/segment.h"

namespace theseus::transport {

class RingChannel final : public Channel {
 public:
  explicit RingChannel(Rank peer) : peer_(peer) {}

  /// Before it nothing is accepted: the peer's memory is not mapped yet.
  void attach(RingMemory ring, Doorbell peer);
  bool attached() const { return attached_; }

  Result<bool> put(const SegmentHeader& header, const std::byte* payload) override;

  /// Copies what fits of the segment that is under way. True if anything moved.
  bool advance();
  /// put() reports this from now on: the peer could not be reached, or it died.
  void fail(Error error) { failure_ = std::move(error); }
  /// The peer said goodbye.
  bool readerClosed() const;
  /// Tells the peer that no more will come. Only at the end of a segment, otherwise the peer sees a broken
  /// stream.
  void sayGoodbye();

  /// The owner is about to sleep: have the reader ring when room appears, if somebody here waits for room.
  void announceWait();
  void withdrawWait();
  /// Room has appeared for what was refused or is under way.
  bool canMove();

 private:
  Status checkUsable();

  Rank peer_;
  bool attached_ = false;
  std::optional<Error> failure_;
  bool refused_ = false;  // put() said no for want of room, so the owner wants to know when room appears
  bool announced_ = false;
  RingWriter ring_;
  Doorbell peerDoorbell_;
  const std::byte* payload_ = nullptr;
  std::size_t remaining_ = 0;
};

class RingStream {
 public:
  explicit RingStream(Rank from) : from_(from) {}
  void attach(RingMemory ring) { ring_ = RingReader(ring), attached_ = true; }
  /// The sender's doorbell, rung when room appears.
  void setWriter(Doorbell writer) { writer_ = writer; }

  /// Delivers what has arrived, bounded per call so that no peer starves the others. True if anything moved.
  Result<bool> progress(InboundHandler& handler);
  void resume() { parked_ = false; }
  /// Something has arrived that progress() could move.
  bool canMove();
  /// Tells the sender that nothing will be read any more.
  void sayGoodbye();
  /// The sender has said goodbye (what it published before may still wait in the ring).
  bool writerClosed() const;
  bool insideSegment() const { return inPayload_; }

 private:
  Result<bool> step(InboundHandler& handler);
  Status readHeader();
  void giveBack();

  Rank from_;
  bool attached_ = false;
  bool haveHeader_ = false;  // read from the ring, not yet placed
  bool parked_ = false;      // the handler said `later`
  bool inPayload_ = false;
  RingReader ring_;
  Doorbell writer_;
  SegmentHeader header_;
  std::byte* destination_ = nullptr;
  std::size_t remaining_ = 0;
};

/// Refuses what no sender of ours makes. Shared with tcp.
Status checkHeader(Rank from, const SegmentHeader& header);

}  // namespace theseus::transport
