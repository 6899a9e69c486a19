// The sockets beside the rings of shm: how descriptors get to the peer, and how its death is noticed. Owned
// by ShmEndpoint; used only by the thread that drives it.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/clock.h"
#include "drivers/posix/descriptor.h"
#include "drivers/posix/memory_file.h"
#include "drivers/posix/poller.h"
#include "drivers/posix/socket.h"
#include "transport/greeting.h"
#include "transport/inbox.h"

namespace theseus::transport {

/// What one rank gives another: the file of its inbox and the counter that wakes it, mapped here.
struct MappedPeer {
  drivers::MemoryMapping inbox;
  drivers::EventCounter counter;
  Doorbell doorbell() const { return {inboxHeader(inbox.data()), &counter}; }
};

/// This rank's own, to hand out.
struct OwnDescriptors {
  int inboxFile = -1;
  int counter = -1;
};

/// A socket on which descriptors come and whose end tells of the peer's end.
class PeerSocket {
 public:
  PeerSocket(Rank peer, drivers::FileDescriptor socket) : peer_(peer), socket_(std::move(socket)) {}
  void onEvent(const drivers::PollEvent& event) { readable_ = readable_ || event.readable; }
  Status give(const OwnDescriptors& own);
  /// Maps what the peer gave, once it has come. `bytes`: the size that its inbox must have.
  Result<std::unique_ptr<MappedPeer>> take(std::size_t bytes);
  /// The peer has ended (found by reading; false while nothing is known).
  bool ended();
  bool valid() const { return socket_.valid(); }
  bool readable() const { return readable_; }
  void close() { socket_.close(); }

 private:
  Rank peer_;
  drivers::FileDescriptor socket_;
  bool readable_ = true;
};

/// The connection to a peer that this rank sends to: hello, then its descriptors come and ours go.
class OutboundLink {
 public:
  struct Route {
    drivers::SocketAddress address;
    HelloIdentity identity;
    Rank peer = 0;
    std::uint64_t pollKey = 0;
    base::TimePoint deadline{0};
    std::size_t inboxBytes = 0;
    OwnDescriptors own;
  };
  explicit OutboundLink(Route route) : route_(std::move(route)) {}

  void onEvent(const drivers::PollEvent& event) {
    if (socket_) socket_->onEvent(event);
  }
  bool connecting() const { return !failed_ && !peer_; }
  /// True when the peer's memory has just been mapped. Errors: it failed for good.
  Result<bool> advance(drivers::Poller& poller, base::TimePoint now);
  const MappedPeer& peer() const { return *peer_; }
  PeerSocket* socket() { return socket_.get(); }

 private:
  Status greet(drivers::Poller& poller);
  tl::unexpected<Error> failForGood(const std::string& reason);

  Route route_;
  bool failed_ = false;
  std::unique_ptr<Greeting> greeting_;
  std::string lastFailure_;
  std::unique_ptr<PeerSocket> socket_;
  std::unique_ptr<MappedPeer> peer_;
};

/// The connection from a peer that sends to this rank.
class InboundLink {
 public:
  InboundLink(Rank from, drivers::FileDescriptor socket) : socket_(from, std::move(socket)) {}
  void onEvent(const drivers::PollEvent& event) { socket_.onEvent(event); }
  PeerSocket& socket() { return socket_; }
  bool mapped() const { return peer_ != nullptr; }
  void setPeer(std::unique_ptr<MappedPeer> peer) { peer_ = std::move(peer); }
  const MappedPeer& peer() const { return *peer_; }

 private:
  PeerSocket socket_;
  std::unique_ptr<MappedPeer> peer_;
};

}  // namespace theseus::transport
