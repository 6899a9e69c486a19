// The receiving half of tcp: a socket that a peer opened to this rank. Payload goes from the kernel straight
// to its destination; only headers, and the little that arrives with them, pass through a staging buffer.
// Owned by TcpEndpoint, one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "drivers/posix/descriptor.h"
#include "drivers/posix/poller.h"
#include "transport/endpoint.h"
#include "transport/segment.h"

namespace theseus::transport {

class TcpStream {
 public:
  TcpStream(Rank from, drivers::FileDescriptor socket) : from_(from), socket_(std::move(socket)) {}
  ~TcpStream();
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;

  void onEvent(const drivers::PollEvent& event);
  /// Delivers what has arrived, bounded per call. True if anything moved.
  /// Errors: the peer ended without a goodbye (closed() is then true, reported once), the stream is broken,
  /// or the handler's own.
  Result<bool> progress(InboundHandler& handler);
  void resume() { parked_ = false; }
  bool canMove() const { return !closed_ && !parked_ && (readable_ || haveHeader_); }
  bool closed() const { return closed_; }

 private:
  static constexpr std::size_t kStagingBytes = 4096;

  Status consumeStaging(InboundHandler& handler);
  Result<bool> takeHeader(InboundHandler& handler);
  Status place(InboundHandler& handler);
  Status receive(std::size_t& received);
  Status ended(const std::string& how);

  Rank from_;
  drivers::FileDescriptor socket_;
  bool readable_ = true;
  bool hangUp_ = false;  // read until the end, a short read does not mean that all is read
  bool parked_ = false;
  bool haveHeader_ = false;  // header_ waits to be placed
  bool inPayload_ = false;
  bool closed_ = false;
  SegmentHeader header_;
  std::byte* destination_ = nullptr;
  std::size_t remaining_ = 0;
  std::array<std::byte, kStagingBytes> staging_;
  std::size_t stagedFrom_ = 0;
  std::size_t stagedTo_ = 0;
};

}  // namespace theseus::transport
