// One rank's side of a transport: its channels to peers, the streams that come in, and a way to sleep until
// something moves. Owned by the communicator. One thread drives it at a time; wake() alone may be called from
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "theseus/result.h"
#include "transport/channel.h"
#include "transport/segment.h"

namespace theseus::transport {

struct Capabilities {
  std::string name;  // "loopback", "shm", "tcp"
  bool crossesHosts = false;
  bool measuresLinks = false;  // takeLinkSample gives rates of a real network
  double latencySeconds = 0;   // prior for the cost model, one segment one way
  double bytesPerSecond = 0;   // prior for the cost model, one rank's port
};

/// Where an arriving segment goes. The transport moves the payload straight there.
struct Placement {
  bool later = false;  // leave it in the stream (it belongs to a collective that this rank has not begun)
  std::byte* destination = nullptr;  // header.bytes long; ignored when header.bytes is 0
};

class InboundHandler {
 public:
  virtual ~InboundHandler() = default;
  /// Asked once for each segment (again after resume() if it said `later`), in order for each peer. An error
  /// stops the endpoint.
  virtual Result<Placement> onHeader(Rank from, const SegmentHeader& header) = 0;
  /// The payload has arrived in full.
  virtual Status onDelivered(Rank from, const SegmentHeader& header) = 0;
};

/// Bytes that left, and the time during which at least one of the flows had bytes waiting and was free to
/// send (the union of busy intervals; time in which the receiver's window was shut is not counted, so a late
/// receiver does not look like a slow link).
struct LinkUse {
  std::uint64_t bytes = 0;
  base::Nanoseconds busy{0};
};
struct LinkSample {
  LinkUse egress;               // all peers together
  std::vector<LinkUse> toPeer;  // by rank
};

struct EndpointOptions {
  Rank rank = 0;
  int size = 1;
  std::string secret;  // shared by the job; a stranger without it is dropped and logged
  std::string job;     // distinguishes jobs on one host
  base::Nanoseconds connectTimeout =
      std::chrono::seconds(10);  // from connect() until the peer has let this rank in
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;

  virtual const Capabilities& capabilities() const = 0;

  /// This rank's address as peers need it; opaque text, exchanged by the bootstrap.
  virtual std::string address() const = 0;
  /// Addresses of all ranks, by rank. Once, before the first connect().
  virtual Status setPeers(std::vector<std::string> addresses) = 0;

  /// The channel to `peer`; opened on first use, then the same object. Borrowed. Never blocks: while the
  /// connection is being made the channel's put() accepts nothing, and progress() makes it or reports, after
  /// connectTimeout at the latest, why not.
  virtual Result<Channel*> connect(Rank peer) = 0;

  /// Moves what can be moved without blocking, out and in. True if anything moved. Errors name the peer. That
  /// a peer crashed or was cut off is reported once for each of its connections, and every put() to it fails;
  /// the others go on. An error of the handler, or a stream that breaks the protocol, stops the endpoint:
  /// every later progress() reports it again.
  virtual Result<bool> progress(InboundHandler& handler) = 0;
  /// Segments answered with `later` are offered again by the next progress().
  virtual void resume() = 0;
  /// Sleeps until something may move, wake() was called, or the time is over. May return early.
  virtual void wait(base::Nanoseconds timeout) = 0;
  virtual void wake() = 0;

  /// Use of the links since the previous call. Zero where capabilities().measuresLinks is false.
  virtual LinkSample takeLinkSample() = 0;
  /// Token bucket on this rank's egress, for machines where no real link can be slowed; 0 = off. tcp only;
  /// others refuse.
  virtual Status emulateLinkRate(double bytesPerSecond) = 0;
};

/// All ranks of a loopback job live in one process and share a hub.
class LoopbackHub;
std::shared_ptr<LoopbackHub> makeLoopbackHub(int size);
std::unique_ptr<Endpoint> makeLoopbackEndpoint(std::shared_ptr<LoopbackHub> hub,
                                               const EndpointOptions& options);

/// Ranks of one host: rings in memfd memory, so that nothing is left behind however a process ends.
Result<std::unique_ptr<Endpoint>> makeShmEndpoint(const EndpointOptions& options);

struct TcpOptions {
  std::string bindAddress;       // numeric; empty = all interfaces
  std::string advertiseAddress;  // numeric; what peers connect to
};
/// Nonblocking sockets, one epoll, no thread.
Result<std::unique_ptr<Endpoint>> makeTcpEndpoint(const EndpointOptions& options, const TcpOptions& tcp);

}  // namespace theseus::transport
