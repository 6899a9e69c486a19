#include "transport/shm/endpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/hmac.h"
#include "drivers/posix/socket.h"

namespace theseus::transport {
namespace {

enum PollKey : std::uint64_t {
  kCounterKey = 0,
  kListenerKey = 1,
  kGreetingsKey = 2,
  kOutboundKeys = 1ull << 32,
  kInboundKeys = 2ull << 32
};

/// Retries of a connection, and patience with strangers, need a look now and then although nothing stirs.
constexpr base::Nanoseconds kLookWhileConnecting = std::chrono::milliseconds(10);
constexpr base::Nanoseconds kLookWhileGreeting = std::chrono::milliseconds(100);

/// Two jobs, or two users, on one host must not meet: the job's name is part of the address, and so is a
/// random part, so that nobody can take the name before the rank does.
std::string socketName(const EndpointOptions& options) {
  std::uint64_t random = 0;
  base::fillRandom(&random, sizeof(random));
  return fmt::format("theseus/{:.40}/{}/{:016x}", options.job, options.rank, random);
}

Error gone(Rank peer, const char* when) {
  return {
      ErrorCode::kTransport,
      fmt::format("rank {} ended without a goodbye{} (crashed or killed?); see its own output", peer, when)};
}

}  // namespace

Result<std::unique_ptr<Endpoint>> ShmEndpoint::make(const EndpointOptions& options) {
  const std::size_t bytes = inboxBytes(options.size);
  const std::string name = socketName(options);
  Memory memory;
  Result<drivers::FileDescriptor> file = drivers::createSealedMemoryFile("theseus-inbox", bytes);
  if (!file) return fail(std::move(file.error()));
  memory.file = std::move(*file);
  Result<drivers::MemoryMapping> mapping = drivers::MemoryMapping::shared(memory.file, bytes);
  if (!mapping) return fail(std::move(mapping.error()));
  memory.inbox = std::move(*mapping);
  Result<drivers::EventCounter> counter = drivers::EventCounter::create();
  if (!counter) return fail(std::move(counter.error()));
  memory.counter = std::make_unique<drivers::EventCounter>(std::move(*counter));
  Result<drivers::SocketAddress> address = drivers::SocketAddress::abstractUnix(name);
  if (!address) return fail(std::move(address.error()));
  Result<drivers::FileDescriptor> listener = drivers::listenOn(*address);
  if (!listener) return fail(std::move(listener.error()));
  Result<drivers::Poller> poller = drivers::Poller::create();
  if (!poller) return fail(std::move(poller.error()));
  THESEUS_TRY(poller->watch(memory.counter->descriptor(), kCounterKey));
  Admission::Options door{
      .listener = std::move(*listener),
      .identity = {.secret = options.secret, .job = options.job, .self = options.rank, .size = options.size},
      .listenerKey = kListenerKey,
      .greetingsKey = kGreetingsKey};
  Result<Admission> admission = Admission::create(std::move(door), *poller);
  if (!admission) return fail(std::move(admission.error()));
  Parts parts{.capabilities = {.name = "shm", .latencySeconds = 1e-6, .bytesPerSecond = 10e9},
              .options = options,
              .poller = std::move(*poller),
              .inbox = inboxHeader(memory.inbox.data()),
              .counter = memory.counter.get()};
  return std::unique_ptr<Endpoint>(
      new ShmEndpoint(std::move(parts), std::move(memory), std::move(*admission), name));
}

ShmEndpoint::ShmEndpoint(Parts parts, Memory memory, Admission admission, std::string address)
    : RingEndpoint(std::move(parts)),
      memory_(std::move(memory)),
      admission_(std::move(admission)),
      address_(std::move(address)) {
  outbound_.resize(static_cast<std::size_t>(size()));
  inbound_.resize(static_cast<std::size_t>(size()));
}

ShmEndpoint::~ShmEndpoint() { sayGoodbyes(); }

Status ShmEndpoint::setPeers(std::vector<std::string> addresses) {
  for (std::size_t peer = 0; peer < addresses.size(); ++peer) {
    Result<drivers::SocketAddress> parsed = drivers::SocketAddress::abstractUnix(addresses[peer]);
    if (!parsed)
      return fail(parsed.error().code, fmt::format("address of rank {}: {}", peer, parsed.error().message));
  }
  return RingEndpoint::setPeers(std::move(addresses));
}

Status ShmEndpoint::openChannel(Rank peer) {
  const auto at = static_cast<std::size_t>(peer);
  Result<drivers::SocketAddress> address = drivers::SocketAddress::abstractUnix(addresses()[at]);
  if (!address) return fail(std::move(address.error()));
  outbound_[at] = std::make_unique<OutboundLink>(OutboundLink::Route{
      .address = *address,
      .identity = {.secret = options().secret, .job = options().job, .self = rank(), .size = size()},
      .peer = peer,
      .pollKey = kOutboundKeys + at,
      .deadline = base::SteadyClock::instance().now() + options().connectTimeout,
      .inboxBytes = inboxBytes(size()),
      .own = {.inboxFile = memory_.file.get(), .counter = memory_.counter->descriptor().get()}});
  ++connecting_;
  return {};
}

bool ShmEndpoint::admit(base::TimePoint now) {
  bool moved = false;
  for (Admission::Admitted& admitted : admission_.advance(poller(), now)) {
    const auto at = static_cast<std::size_t>(admitted.from);
    moved = true;
    (void)poller().rewatch(admitted.socket, kInboundKeys + at);
    inbound_[at] = std::make_unique<InboundLink>(admitted.from, std::move(admitted.socket));
    // First touch is what costs in fresh memory, so this rank takes it before data flows.
    memory_.inbox.populate(ringOffset(admitted.from), kInboxPageBytes + kRingBytes);
    stream(admitted.from).attach(ringIn(memory_.inbox.data(), admitted.from));
    // If it fails the peer has gone, and the socket's end says so next.
    (void)inbound_[at]->socket().give({memory_.file.get(), memory_.counter->descriptor().get()});
  }
  return moved;
}

Result<bool> ShmEndpoint::serviceOutbound(Rank peer, base::TimePoint now) {
  OutboundLink& link = *outbound_[static_cast<std::size_t>(peer)];
  if (link.connecting()) {
    Result<bool> connected = link.advance(poller(), now);
    if (!connected) {
      channel(peer).fail(connected.error());
      return connected;
    }
    if (link.connecting()) ++connecting_;
    if (!*connected) return false;
    link.peer().inbox.populate(ringOffset(rank()), kInboxPageBytes + kRingBytes);
    channel(peer).attach(ringIn(link.peer().inbox.data(), rank()), link.peer().doorbell());
    return true;
  }
  PeerSocket* socket = link.socket();
  if (!socket || !socket->valid() || !socket->ended()) return false;
  socket->close();
  if (channel(peer).readerClosed()) return false;
  channel(peer).fail(gone(peer, ""));
  return fail(gone(peer, ""));
}

Result<bool> ShmEndpoint::serviceInbound(Rank from) {
  InboundLink& link = *inbound_[static_cast<std::size_t>(from)];
  PeerSocket& socket = link.socket();
  if (!socket.valid() || !socket.readable()) return false;
  if (!link.mapped()) {
    Result<std::unique_ptr<MappedPeer>> taken = socket.take(inboxBytes(size()));
    if (!taken) {
      socket.close();
      return fail(std::move(taken.error()));
    }
    if (!*taken) return false;
    link.setPeer(std::move(*taken));
    stream(from).setWriter(link.peer().doorbell());
    return true;
  }
  if (!socket.ended()) return false;
  socket.close();
  if (stream(from).writerClosed()) return false;
  return fail(gone(from, stream(from).insideSegment() ? ", in the middle of a segment" : ""));
}

Result<bool> ShmEndpoint::service(std::span<const drivers::PollEvent> events) {
  for (const drivers::PollEvent& event : events) {
    const auto at = static_cast<std::size_t>(event.key & 0xffffffffu);
    if (event.key == kListenerKey) admission_.onListenerReadable();
    if (event.key >= kInboundKeys) {
      if (inbound_[at]) inbound_[at]->onEvent(event);
    } else if (event.key >= kOutboundKeys) {
      if (outbound_[at]) outbound_[at]->onEvent(event);
    }
  }
  const base::TimePoint now = base::SteadyClock::instance().now();
  bool moved = admit(now);
  connecting_ = 0;
  Result<bool> outcome = false;
  for (Rank peer = 0; peer < size(); ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    if (outbound_[at]) {
      Result<bool> served = serviceOutbound(peer, now);
      if (!served)
        outcome = std::move(served);
      else
        moved = moved || *served;
    }
    if (inbound_[at]) {
      Result<bool> served = serviceInbound(peer);
      if (!served)
        outcome = std::move(served);
      else
        moved = moved || *served;
    }
  }
  if (!outcome) return outcome;
  return moved;
}

base::Nanoseconds ShmEndpoint::sleepLimit() const {
  if (connecting_ > 0) return kLookWhileConnecting;
  return admission_.busy() ? kLookWhileGreeting : base::Nanoseconds::max();
}

Result<std::unique_ptr<Endpoint>> makeShmEndpoint(const EndpointOptions& options) {
  return ShmEndpoint::make(options);
}

}  // namespace theseus::transport
