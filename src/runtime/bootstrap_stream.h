// A non-blocking connection that carries frames: length (4 bytes, little-endian), kind (1 byte), payload.
// Owned by the rendezvous or by the mesh, one thread. Before the handshake is over its raw bytes belong to
// Hello; frames are looked for only afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/bootstrap_socket.h"
#include "theseus/result.h"

namespace theseus::runtime {

struct Frame {
  std::uint8_t kind = 0;
  std::string_view payload;  // valid until the next fill() or nextFrame()
};

class FramedStream {
 public:
  FramedStream(Descriptor socket, std::size_t payloadBytesMax)
      : socket_(std::move(socket)), payloadBytesMax_(payloadBytesMax) {}

  const Descriptor& socket() const { return socket_; }

  void queueRaw(std::string bytes);
  void queueFrame(std::uint8_t kind, std::string payload);
  std::size_t queuedBytes() const { return queuedBytes_; }
  /// Hands the kernel what it takes now.
  Status flush();

  /// Reads what is there now, a bounded amount at a time. False: the other side has closed.
  Result<bool> fill();
  /// The next whole frame, or nullopt. Errors: a frame larger than allowed.
  Result<std::optional<Frame>> nextFrame();
  /// Bytes received before the frames begin, for the handshake.
  std::string& raw() { return input_; }

  /// Says that nothing more will be sent and reads away what is still arriving, so that the kernel does not
  /// discard our last bytes.
  void closeSending();

 private:
  Descriptor socket_;
  std::size_t payloadBytesMax_;
  std::string input_;
  std::size_t consumed_ = 0;
  std::deque<std::string> output_;
  std::size_t sentOfFront_ = 0;
  std::size_t queuedBytes_ = 0;
};

}  // namespace theseus::runtime
