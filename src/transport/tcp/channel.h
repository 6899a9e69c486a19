// The sending half of tcp: a socket that this rank opened to a peer's listener, and the segments that wait
// for it. Owned by TcpEndpoint; used only by the thread that drives it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "drivers/posix/descriptor.h"
#include "drivers/posix/poller.h"
#include "drivers/posix/socket.h"
#include "transport/channel.h"
#include "transport/greeting.h"
#include "transport/segment.h"

namespace theseus::transport {

/// Ends a stream in order: a header of this magic, all else zero. After it the end of the stream is no crash.
constexpr std::uint32_t kGoodbyeMagic = 0x58534854;  // "THSX"

class TcpChannel final : public Channel {
 public:
  struct Route {
    drivers::SocketAddress address;
    HelloIdentity identity;
    Rank peer = 0;
    std::uint64_t pollKey = 0;
    base::TimePoint deadline{0};  // for the connection
  };
  /// Begins to connect at the next progress. Until the hello is over put() accepts nothing.
  explicit TcpChannel(Route route) : route_(std::move(route)) {}
  ~TcpChannel() override;

  Result<bool> put(const SegmentHeader& header, const std::byte* payload) override;

  void onEvent(const drivers::PollEvent& event);
  bool connecting() const { return state_ == State::kConnecting; }
  bool open() const { return state_ == State::kOpen; }
  /// Drives the connection attempt. Errors: it failed for good.
  Status advanceConnection(drivers::Poller& poller, base::TimePoint now);
  /// When the next attempt is due, if one waits.
  base::TimePoint nextAttempt() const { return greeting_ ? base::TimePoint::max() : nextAttempt_; }

  /// Writes at most `budget` bytes of what is queued. Bytes written; errors: the peer is gone.
  Result<std::size_t> flush(std::size_t budget);
  /// Looks at what the peer says on its way out. Errors: it ended without a goodbye, or while segments
  /// waited.
  Status checkPeer();
  bool queued() const { return count_ > 0; }
  bool canFlush() const { return open() && writable_ && count_ > 0; }
  bool needsCheck() const { return open() && readable_; }
  std::size_t queuedBytes() const { return queuedBytes_; }
  const drivers::FileDescriptor& socket() const { return socket_; }

 private:
  enum class State { kConnecting, kOpen, kPeerClosed, kBroken };
  struct Entry {
    SegmentHeader header;
    const std::byte* payload = nullptr;
  };
  static constexpr std::size_t kQueueSegments = 16;

  Status startAttempt(drivers::Poller& poller, base::TimePoint now);
  Status attemptFailed(const Error& error, base::TimePoint now);
  std::size_t gather(std::span<iovec> pieces, std::size_t budget, std::size_t& bytes) const;
  void sent(std::size_t bytes);
  tl::unexpected<Error> broken(std::string reason);

  Route route_;
  State state_ = State::kConnecting;
  std::unique_ptr<Greeting> greeting_;
  bool attemptConnected_ = false;
  base::TimePoint nextAttempt_{0};
  base::Nanoseconds pause_ = std::chrono::milliseconds(10);
  std::string lastFailure_;
  Error error_;

  drivers::FileDescriptor socket_;
  bool writable_ = true;
  bool readable_ = false;
  std::array<Entry, kQueueSegments> queue_;
  std::size_t front_ = 0;
  std::size_t count_ = 0;
  std::size_t frontSent_ = 0;  // bytes of the front segment, header included, that the kernel has
  std::size_t queuedBytes_ = 0;
  SegmentHeader farewell_;  // what the peer says on its way out
  std::size_t farewellBytes_ = 0;
};

}  // namespace theseus::transport
