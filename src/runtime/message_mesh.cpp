// The mesh over TCP. A rank uses few connections (about 2 log2 of the number of ranks), so poll(2) over all
// of them is as good as epoll and keeps no registrations that could go stale.
#include "runtime/message_mesh.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>

#include <fmt/format.h>

#include "base/check.h"
#include "runtime/bootstrap_rendezvous.h"
#include "runtime/bootstrap_stream.h"
#include "runtime/hello.h"

namespace theseus::runtime {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kStrangerBound = 5s;
constexpr auto kRetryPause = 50ms;
constexpr std::size_t kPendingMax = 256;
constexpr std::size_t kQueuedBytesMax = 256u << 20;

enum class MeshFrame : std::uint8_t { kMessage = 1, kGoodbye = 2 };

class TcpMesh final : public MessageMesh {
 public:
  explicit TcpMesh(const CommunicatorOptions& options)
      : options_(options),
        peers_(static_cast<std::size_t>(options.size)),
        strangers_(fmt::format("rank {}, messages", options.rank)) {}
  ~TcpMesh() override;

  Status listen();
  std::string address() const override { return address_; }
  Status setPeers(std::vector<std::string> addresses) override;
  Status send(Rank to, std::string message) override;
  void poll(std::chrono::milliseconds timeout, const Receiver& receiver) override;
  void wake() override;

 private:
  /// Either direction; an inbound one is pending (peer unknown) until its handshake is over.
  struct Connection {
    std::unique_ptr<FramedStream> stream;
    std::optional<Hello> hello;  // set while the handshake runs
    std::string address;
    Deadline deadline{};  // of the handshake
    Rank peer = -1;
    bool outbound = false;
    bool connecting = false;
    bool closed = false;
  };
  struct Peer {
    std::optional<SocketAddress> address;
    Connection* outbound = nullptr;
    Connection* inbound = nullptr;
    std::deque<std::string> waiting;  // until the outbound connection has been authenticated
    std::size_t waitingBytes = 0;
    Deadline nextAttempt{};
    std::optional<Deadline> giveUpAt;  // set at the first attempt
    std::string lastProblem;
    bool left = false;  // it has said goodbye
    bool leftReported = false;
    std::optional<std::string> broken;
  };

  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void openConnections();
  void startOutbound(Rank rank);
  int sleepMilliseconds(std::chrono::milliseconds timeout) const;
  void acceptAll();
  void evictOldestPending(const std::string& why);
  void serve(Connection& connection, short events, const Receiver& receiver);
  bool shakeHands(Connection& connection);
  void admit(Connection& connection);
  void outboundReady(Connection& connection);
  void deliver(Connection& connection, const Receiver& receiver);
  void handshakeFailed(Connection& connection, const std::string& why);
  void lost(Connection& connection, const std::string& why);
  void peerLeft(Connection& connection);
  void reportLeft(Rank rank);
  void markBroken(Rank rank, const std::string& why);
  void flushAll();
  void expire();
  void removeClosed();
  void deliverOwn(const Receiver& receiver);

  CommunicatorOptions options_;
  Descriptor listener_;
  Descriptor bell_;
  std::string address_;
  std::vector<Peer> peers_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::deque<std::string> toSelf_;
  StrangerLog strangers_;
  bool inPoll_ = false;
};

Status TcpMesh::listen() {
  bell_ = Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!bell_.valid())
    return fail(ErrorCode::kIo, fmt::format("cannot create an event counter: {}", std::strerror(errno)));
  auto own = chooseOwnAddress(options_);
  if (!own) return fail(own.error());
  auto bindTo = parseNumericAddress(own->bind, 0);
  if (!bindTo) return fail(bindTo.error());
  auto socket = listenOn(*bindTo);
  if (!socket) return fail(socket.error());
  if (!*socket) return fail(ErrorCode::kIo, fmt::format("no free port is left at {}", own->bind));
  listener_ = std::move(**socket);
  auto advertised = parseNumericAddress(own->advertise, localAddress(listener_).port());
  if (!advertised) return fail(advertised.error());
  address_ = endpointText(*advertised);
  return {};
}

TcpMesh::~TcpMesh() {
  // What was queued goes out if the peers take it soon; then a goodbye on every connection, in both
  // directions, so that nobody takes the end of this rank's communicator for a failure.
  const Deadline deadline = Clock::now() + 500ms;
  for (auto& connection : connections_) {
    if (!connection->hello && !connection->closed)
      connection->stream->queueFrame(static_cast<std::uint8_t>(MeshFrame::kGoodbye), "");
  }
  while (true) {
    std::vector<pollfd> entries;
    for (auto& connection : connections_) {
      if (connection->hello || connection->closed || !connection->stream->flush()) continue;
      if (connection->stream->queuedBytes() > 0)
        entries.push_back({connection->stream->socket().get(), POLLOUT, 0});
    }
    const int left = remainingMilliseconds(deadline);
    if (entries.empty() || left == 0) break;
    (void)::poll(entries.data(), entries.size(), left);
  }
  for (auto& connection : connections_) {
    if (!connection->hello && !connection->closed) connection->stream->closeSending();
  }
}

Status TcpMesh::setPeers(std::vector<std::string> addresses) {
  if (addresses.size() != peers_.size()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} addresses were given for a job of {} ranks",
                                                         addresses.size(), peers_.size()));
  }
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    auto parsed = parseEndpointText(addresses[rank]);
    if (!parsed)
      return fail(parsed.error().code,
                  fmt::format("the address of rank {} is unusable: {}", rank, parsed.error().message));
    peers_[rank].address = *parsed;
  }
  return {};
}

Status TcpMesh::send(Rank to, std::string message) {
  if (to < 0 || to >= options_.size) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("there is no rank {} in a job of {}", to, options_.size));
  }
  if (message.size() > kMessageBytesMax)
    return fail(ErrorCode::kInvalidArgument, "a message is larger than 64 MiB");
  if (to == options_.rank) {
    toSelf_.push_back(std::move(message));
    return {};
  }
  Peer& target = peer(to);
  if (target.broken)
    return fail(ErrorCode::kTransport,
                fmt::format("the connection to rank {} is broken: {}", to, *target.broken));
  if (target.left) return {};
  if (!target.address) return fail(ErrorCode::kInvalidArgument, "setPeers() comes before send()");
  const bool ready = target.outbound != nullptr && !target.outbound->hello;
  const std::size_t queued = ready ? target.outbound->stream->queuedBytes() : target.waitingBytes;
  if (queued + message.size() > kQueuedBytesMax) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("rank {} does not take its messages: {} bytes wait for it", to, queued));
  }
  if (ready) {
    target.outbound->stream->queueFrame(static_cast<std::uint8_t>(MeshFrame::kMessage), std::move(message));
  } else {
    target.waitingBytes += message.size();
    target.waiting.push_back(std::move(message));
  }
  return {};
}

void TcpMesh::wake() {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the sleeper wakes anyway.
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof(one));
}

void TcpMesh::openConnections() {
  const auto now = Clock::now();
  for (Rank rank = 0; rank < options_.size; ++rank) {
    Peer& target = peer(rank);
    if (target.waiting.empty() || target.outbound != nullptr || target.broken || target.left ||
        now < target.nextAttempt)
      continue;
    if (!target.giveUpAt) target.giveUpAt = now + options_.timeout;
    if (now >= *target.giveUpAt) {
      markBroken(rank, fmt::format("rank {} cannot be reached at {} within {}: {}", rank,
                                   endpointText(*target.address), secondsText(options_.timeout),
                                   target.lastProblem));
      continue;
    }
    startOutbound(rank);
  }
}

void TcpMesh::startOutbound(Rank rank) {
  Peer& target = peer(rank);
  target.nextAttempt = Clock::now() + kRetryPause;
  auto socket = startConnect(*target.address);
  if (!socket) {
    target.lastProblem = socket.error().message;
    return;
  }
  setDeadPeerBound(*socket, options_.timeout);
  auto connection = std::make_unique<Connection>();
  connection->stream = std::make_unique<FramedStream>(std::move(*socket), kMessageBytesMax);
  connection->hello.emplace(
      Hello::Side::kConnector,
      HelloIdentity{HelloPurpose::kMessages, options_.rank, options_.size, options_.masterPort},
      options_.secret);
  connection->address = endpointText(*target.address);
  connection->deadline = *target.giveUpAt;
  connection->peer = rank;
  connection->outbound = true;
  connection->connecting = true;
  target.outbound = connection.get();
  connections_.push_back(std::move(connection));
}

int TcpMesh::sleepMilliseconds(std::chrono::milliseconds timeout) const {
  if (!toSelf_.empty()) return 0;
  Deadline until = Clock::now() + std::clamp<std::chrono::milliseconds>(timeout, 0ms, 60s);
  for (const auto& connection : connections_) {
    if (connection->hello) until = std::min(until, connection->deadline);
  }
  for (const Peer& target : peers_) {
    if (!target.waiting.empty() && target.outbound == nullptr && !target.broken)
      until = std::min(until, target.nextAttempt);
  }
  return remainingMilliseconds(until, 60'000);
}

void TcpMesh::poll(std::chrono::milliseconds timeout, const Receiver& receiver) {
  THESEUS_CHECK(!inPoll_, "the receiver must not call poll()");
  inPoll_ = true;
  openConnections();
  flushAll();
  removeClosed();
  std::vector<pollfd> entries;
  for (const auto& connection : connections_) {
    const bool writes = connection->connecting || connection->stream->queuedBytes() > 0;
    entries.push_back(
        {connection->stream->socket().get(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
  }
  entries.push_back({bell_.get(), POLLIN, 0});
  entries.push_back({listener_.get(), POLLIN, 0});
  if (::poll(entries.data(), entries.size(), sleepMilliseconds(timeout)) > 0) {
    std::uint64_t rings = 0;
    if (entries[entries.size() - 2].revents != 0) [[maybe_unused]]
      const ssize_t drained = ::read(bell_.get(), &rings, sizeof(rings));
    const std::size_t known =
        connections_.size();  // the receiver may send, which opens nothing before the next poll
    for (std::size_t i = 0; i < known; ++i) {
      if (entries[i].revents != 0 && !connections_[i]->closed)
        serve(*connections_[i], entries[i].revents, receiver);
    }
    if ((entries.back().revents & POLLIN) != 0) acceptAll();
  }
  deliverOwn(receiver);
  expire();
  flushAll();
  removeClosed();
  inPoll_ = false;
}

void TcpMesh::deliverOwn(const Receiver& receiver) {
  // Only those that are there now: one that the receiver sends to itself comes with the next poll().
  for (std::size_t left = toSelf_.size(); left > 0; --left) {
    const std::string message = std::move(toSelf_.front());
    toSelf_.pop_front();
    receiver(options_.rank, message);
  }
}

void TcpMesh::acceptAll() {
  for (std::size_t accepted = 0; accepted < kPendingMax; ++accepted) {
    auto socket = acceptOne(listener_);
    if (!socket) {
      evictOldestPending(socket.error().message);
      return;
    }
    if (!*socket) return;
    const auto pending = std::count_if(connections_.begin(), connections_.end(), [](const auto& connection) {
      return !connection->outbound && connection->hello && !connection->closed;
    });
    if (static_cast<std::size_t>(pending) >= kPendingMax)
      evictOldestPending("too many connections wait for their handshake");
    setDeadPeerBound(**socket, options_.timeout);
    auto connection = std::make_unique<Connection>();
    connection->address = endpointText(peerAddress(**socket));
    connection->stream = std::make_unique<FramedStream>(std::move(**socket), kMessageBytesMax);
    connection->hello.emplace(
        Hello::Side::kAcceptor,
        HelloIdentity{HelloPurpose::kMessages, options_.rank, options_.size, options_.masterPort},
        options_.secret);
    connection->deadline = Clock::now() + kStrangerBound;
    connections_.push_back(std::move(connection));
  }
}

void TcpMesh::evictOldestPending(const std::string& why) {
  for (auto& connection : connections_) {
    if (connection->outbound || !connection->hello || connection->closed) continue;
    handshakeFailed(*connection, why);
    connection->stream.reset();  // the descriptor is needed now
    return;
  }
}

void TcpMesh::serve(Connection& connection, short events, const Receiver& receiver) {
  if (connection.connecting) {
    if ((events & (POLLOUT | POLLERR | POLLHUP)) == 0) return;
    if (const int error = connectError(connection.stream->socket()); error != 0) {
      return handshakeFailed(connection, std::strerror(error));
    }
    connection.connecting = false;
  }
  auto filled = connection.stream->fill();
  const std::string end = !filled ? filled.error().message : "the connection was closed without a goodbye";
  const bool open = filled.has_value() && *filled;
  if (connection.hello && !shakeHands(connection)) {
    if (!open && !connection.closed)
      handshakeFailed(connection, "the connection was closed during the handshake");
    return;
  }
  deliver(connection, receiver);
  if (!open && !connection.closed) lost(connection, end);
}

/// True once the handshake is over and frames may follow.
bool TcpMesh::shakeHands(Connection& connection) {
  auto fed = connection.hello->feed(connection.stream->raw());
  connection.stream->queueRaw(connection.hello->takeOutput());
  (void)connection.stream->flush();
  if (!fed) {
    handshakeFailed(connection, fed.error().message);
    return false;
  }
  if (!connection.hello->done()) return false;
  if (connection.outbound) {
    if (connection.hello->peer().rank != connection.peer) {
      handshakeFailed(connection, fmt::format("rank {} answers there", connection.hello->peer().rank));
      return false;
    }
    outboundReady(connection);
  } else {
    admit(connection);
  }
  return !connection.closed;
}

void TcpMesh::outboundReady(Connection& connection) {
  connection.hello.reset();
  Peer& target = peer(connection.peer);
  for (std::string& message : target.waiting) {
    connection.stream->queueFrame(static_cast<std::uint8_t>(MeshFrame::kMessage), std::move(message));
  }
  target.waiting.clear();
  target.waitingBytes = 0;
}

void TcpMesh::admit(Connection& connection) {
  const Rank rank = connection.hello->peer().rank;
  Peer& source = peer(rank);
  if (rank == options_.rank || source.inbound != nullptr || source.broken) {
    return handshakeFailed(
        connection, fmt::format("it claims to be rank {}, which has or had its connection already", rank));
  }
  connection.hello.reset();
  connection.peer = rank;
  source.inbound = &connection;
}

void TcpMesh::deliver(Connection& connection, const Receiver& receiver) {
  while (!connection.closed) {
    auto frame = connection.stream->nextFrame();
    if (!frame) return lost(connection, frame.error().message);
    if (!*frame) return;
    if ((*frame)->kind == static_cast<std::uint8_t>(MeshFrame::kGoodbye)) return peerLeft(connection);
    if (connection.outbound || (*frame)->kind != static_cast<std::uint8_t>(MeshFrame::kMessage)) {
      return lost(connection, "the peer broke the protocol of the mesh");
    }
    receiver(connection.peer, (*frame)->payload);
  }
}

void TcpMesh::handshakeFailed(Connection& connection, const std::string& why) {
  connection.closed = true;
  if (!connection.outbound) return strangers_.dropped(connection.address, why);
  Peer& target = peer(connection.peer);
  target.outbound = nullptr;
  target.lastProblem = why;
}

void TcpMesh::lost(Connection& connection, const std::string& why) {
  connection.closed = true;
  const Rank rank = connection.peer;
  if (!peer(rank).left) {
    return markBroken(
        rank, fmt::format("the connection with rank {} at {} broke: {}", rank, connection.address, why));
  }
  reportLeft(rank);  // the other connection may still hold messages that were sent before the goodbye
}

void TcpMesh::peerLeft(Connection& connection) {
  peer(connection.peer).left = true;
  connection.closed = true;
  reportLeft(connection.peer);
}

void TcpMesh::reportLeft(Rank rank) {
  Peer& gone = peer(rank);
  if (gone.leftReported || gone.broken || (gone.inbound != nullptr && !gone.inbound->closed)) return;
  gone.leftReported = true;
  gone.waiting.clear();
  gone.waitingBytes = 0;
  if (onLeft) onLeft(rank);
}

void TcpMesh::markBroken(Rank rank, const std::string& why) {
  Peer& target = peer(rank);
  for (Connection* connection : {target.outbound, target.inbound}) {
    if (connection != nullptr) connection->closed = true;
  }
  target.outbound = nullptr;
  target.inbound = nullptr;
  target.waiting.clear();
  target.waitingBytes = 0;
  if (target.broken) return;
  target.broken = why;
  if (onBroken) onBroken(rank, why);
}

void TcpMesh::flushAll() {
  for (auto& connection : connections_) {
    if (connection->closed || connection->connecting) continue;
    // A failure is not acted on here: reading says whether the peer left in good order or broke.
    (void)connection->stream->flush();
  }
}

void TcpMesh::expire() {
  const auto now = Clock::now();
  for (auto& connection : connections_) {
    if (!connection->closed && connection->hello && now >= connection->deadline) {
      handshakeFailed(*connection, "it did not complete the handshake in time");
    }
  }
}

void TcpMesh::removeClosed() {
  std::erase_if(connections_, [&](const std::unique_ptr<Connection>& connection) {
    if (!connection->closed) return false;
    for (Peer& target : peers_) {
      if (target.outbound == connection.get()) target.outbound = nullptr;
      if (target.inbound == connection.get()) target.inbound = nullptr;
    }
    return true;
  });
}

}  // namespace

Result<std::unique_ptr<MessageMesh>> makeTcpMesh(const CommunicatorOptions& options) {
  auto mesh = std::make_unique<TcpMesh>(options);
  THESEUS_TRY(mesh->listen());
  return std::unique_ptr<MessageMesh>(std::move(mesh));
}

}  // namespace theseus::runtime
