#include "transport/tcp/endpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "transport/ring_endpoint.h"

namespace theseus::transport {
namespace {

enum PollKey : std::uint64_t {
  kWakeKey = 0,
  kListenerKey = 1,
  kGreetingsKey = 2,
  kChannelKeys = 1ull << 32,
  kStreamKeys = 2ull << 32
};

/// A reading of all flows costs a microsecond for each, so this keeps the price below one percent.
constexpr base::Nanoseconds kMeterInterval = std::chrono::milliseconds(1);
/// Fewer bytes than this do not load a link long enough to say anything about it.
constexpr std::size_t kHeavyBytes = 64 * 1024;
/// An emulated link lets go of pieces of at least this size (or all that is queued): a system call for each
/// token would be slow.
constexpr std::size_t kPacedBytes = 16 * 1024;

base::TimePoint clockNow() { return base::SteadyClock::instance().now(); }

Result<drivers::SocketAddress> bindingFor(const TcpOptions& tcp) {
  if (!tcp.bindAddress.empty()) return drivers::SocketAddress::numeric(tcp.bindAddress, 0);
  const bool ipv6 = tcp.advertiseAddress.find(':') != std::string::npos;
  return drivers::SocketAddress::numeric(ipv6 ? "::" : "0.0.0.0", 0);
}

/// What peers are to connect to: as told, else where this rank is bound, else this host alone.
std::string advertisedHost(const TcpOptions& tcp) {
  if (!tcp.advertiseAddress.empty()) return tcp.advertiseAddress;
  const bool everywhere = tcp.bindAddress.empty() || tcp.bindAddress == "0.0.0.0" || tcp.bindAddress == "::";
  return everywhere ? "127.0.0.1" : tcp.bindAddress;
}

}  // namespace

Result<std::unique_ptr<Endpoint>> TcpEndpoint::make(const EndpointOptions& options, const TcpOptions& tcp) {
  Result<drivers::SocketAddress> binding = bindingFor(tcp);
  if (!binding) return fail(std::move(binding.error()));
  Result<drivers::FileDescriptor> listener = drivers::listenOn(*binding);
  if (!listener) return fail(std::move(listener.error()));
  Result<drivers::SocketAddress> bound = drivers::SocketAddress::localOf(*listener);
  if (!bound) return fail(std::move(bound.error()));
  Result<drivers::SocketAddress> advertised =
      drivers::SocketAddress::numeric(advertisedHost(tcp), bound->port());
  if (!advertised) return fail(std::move(advertised.error()));
  Result<drivers::Poller> poller = drivers::Poller::create();
  if (!poller) return fail(std::move(poller.error()));
  Result<drivers::EventCounter> waker = drivers::EventCounter::create();
  if (!waker) return fail(std::move(waker.error()));
  THESEUS_TRY(poller->watch(waker->descriptor(), kWakeKey));
  Admission::Options door{
      .listener = std::move(*listener),
      .identity = {.secret = options.secret, .job = options.job, .self = options.rank, .size = options.size},
      .listenerKey = kListenerKey,
      .greetingsKey = kGreetingsKey};
  Result<Admission> admission = Admission::create(std::move(door), *poller);
  if (!admission) return fail(std::move(admission.error()));
  return std::make_unique<TcpEndpoint>(
      Parts{options, advertised->text(), std::move(*poller), std::move(*waker), std::move(*admission)});
}

TcpEndpoint::TcpEndpoint(Parts parts)
    : options_(std::move(parts.options)),
      address_(std::move(parts.address)),
      capabilities_{.name = "tcp",
                    .crossesHosts = true,
                    .measuresLinks = true,
                    .latencySeconds = 20e-6,
                    .bytesPerSecond = 1.2e9},
      poller_(std::move(parts.poller)),
      waker_(std::move(parts.waker)),
      admission_(std::move(parts.admission)),
      meter_(options_.size) {
  channels_.resize(static_cast<std::size_t>(options_.size));
  streams_.resize(static_cast<std::size_t>(options_.size));
}

Status TcpEndpoint::setPeers(std::vector<std::string> addresses) {
  THESEUS_TRY(checkAddresses(addresses, options_.size));
  std::vector<drivers::SocketAddress> peers;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    Result<drivers::SocketAddress> address = drivers::SocketAddress::parse(addresses[rank]);
    if (!address)
      return fail(address.error().code, fmt::format("address of rank {}: {}", rank, address.error().message));
    peers.push_back(*address);
  }
  peers_ = std::move(peers);
  return {};
}

Result<Channel*> TcpEndpoint::connect(Rank peer) {
  THESEUS_TRY(transport::checkPeer(peer, options_));
  if (peers_.empty())
    return fail(ErrorCode::kInvalidArgument,
                "connect() before setPeers(): the addresses of the peers are not known");
  const auto at = static_cast<std::size_t>(peer);
  if (!channels_[at]) {
    channels_[at] =
        std::make_unique<TcpChannel>(TcpChannel::Route{.address = peers_[at],
                                                       .identity = {.secret = options_.secret,
                                                                    .job = options_.job,
                                                                    .self = options_.rank,
                                                                    .size = options_.size},
                                                       .peer = peer,
                                                       .pollKey = kChannelKeys + at,
                                                       .deadline = clockNow() + options_.connectTimeout});
    ++connecting_;
    // Starts the connection now, so that it is under way before the first progress().
    THESEUS_TRY(channels_[at]->advanceConnection(poller_, clockNow()));
  }
  return channels_[at].get();
}

void TcpEndpoint::dispatch(std::span<const drivers::PollEvent> events) {
  for (const drivers::PollEvent& event : events) {
    const auto at = static_cast<std::size_t>(event.key & 0xffffffffu);
    if (event.key == kListenerKey) admission_.onListenerReadable();
    if (event.key >= kStreamKeys) {
      if (streams_[at]) streams_[at]->onEvent(event);
    } else if (event.key >= kChannelKeys) {
      if (channels_[at]) channels_[at]->onEvent(event);
    }
  }
}

Result<bool> TcpEndpoint::admitAndConnect(base::TimePoint now) {
  bool moved = false;
  for (Admission::Admitted& admitted : admission_.advance(poller_, now)) {
    const auto at = static_cast<std::size_t>(admitted.from);
    // Watched under its own key from now on; that reports its present state as an event, so nothing that came
    // early is missed.
    THESEUS_TRY(poller_.rewatch(admitted.socket, kStreamKeys + at));
    streams_[at] = std::make_unique<TcpStream>(admitted.from, std::move(admitted.socket));
    moved = true;
  }
  if (connecting_ == 0) return moved;
  connecting_ = 0;
  Status failed;
  for (const std::unique_ptr<TcpChannel>& channel : channels_) {
    if (!channel || !channel->connecting()) continue;
    Status advanced = channel->advanceConnection(poller_, now);
    if (!advanced) failed = std::move(advanced);
    if (channel->connecting())
      ++connecting_;
    else
      moved = true;
  }
  if (!failed) return fail(std::move(failed.error()));
  return moved;
}

bool TcpEndpoint::mayFlush(const TcpChannel& channel, base::TimePoint now) {
  if (!channel.canFlush()) return false;
  if (!bucket_.limits()) return true;
  const auto wanted = static_cast<double>(std::min(channel.queuedBytes(), kPacedBytes));
  return bucket_.available(now) >= wanted;
}

Result<bool> TcpEndpoint::sendQueued(base::TimePoint now) {
  bool moved = false;
  std::size_t heaviest = 0;
  const std::size_t count = channels_.size();
  firstToSend_ = (firstToSend_ + 1) % count;
  for (std::size_t i = 0; i < count; ++i) {
    TcpChannel* channel = channels_[(firstToSend_ + i) % count].get();
    if (!channel) continue;
    THESEUS_TRY(channel->checkPeer());
    if (!mayFlush(*channel, now)) continue;
    // An emulated link serves the flows in turns, as a real one does.
    const std::size_t budget = bucket_.limits() ? kPacedBytes : SIZE_MAX;
    Result<std::size_t> written = channel->flush(budget);
    if (!written) return fail(std::move(written.error()));
    if (bucket_.limits()) bucket_.take(*written);
    heaviest = std::max(heaviest, *written);
    moved = moved || *written > 0;
    const Rank peer = static_cast<Rank>((firstToSend_ + i) % count);
    if (*written > 0 && meter_.active() && !meter_.waiting(peer) && readFlow(*channel).waiting)
      meter_.loaded(peer);
  }
  // An emulated link never takes more than its turn at once.
  measureAfter(heaviest >= (bucket_.limits() ? kPacedBytes : kHeavyBytes));
  return moved;
}

Result<bool> TcpEndpoint::receiveArrived(InboundHandler& handler) {
  bool moved = false;
  for (const std::unique_ptr<TcpStream>& stream : streams_) {
    if (!stream || !stream->canMove()) continue;
    Result<bool> delivered = stream->progress(handler);
    if (!delivered) {
      // A peer that died concerns its own streams; anything else stops the endpoint.
      if (!stream->closed()) failure_ = fail(delivered.error());
      return delivered;
    }
    moved = moved || *delivered;
  }
  return moved;
}

Result<bool> TcpEndpoint::progress(InboundHandler& handler) {
  if (!failure_) return fail(failure_.error());
  const base::TimePoint now = clockNow();
  dispatch(poller_.poll(base::Nanoseconds{0}));
  Result<bool> met = admitAndConnect(now);
  if (!met) return met;
  measureBefore(now);
  Result<bool> sent = sendQueued(now);
  if (!sent) return sent;
  Result<bool> received = receiveArrived(handler);
  if (!received) return received;
  return *met || *sent || *received;
}

void TcpEndpoint::resume() {
  for (const std::unique_ptr<TcpStream>& stream : streams_)
    if (stream) stream->resume();
}

bool TcpEndpoint::canMoveNow(base::TimePoint now) {
  // relaxed: only says "do not sleep"; what the waker wants seen is ordered by the exchange in wait().
  if (!failure_ || wakeRequested_.load(std::memory_order_relaxed)) return true;
  for (const std::unique_ptr<TcpStream>& stream : streams_)
    if (stream && stream->canMove()) return true;
  for (const std::unique_ptr<TcpChannel>& channel : channels_)
    if (channel && (channel->needsCheck() || mayFlush(*channel, now))) return true;
  return false;
}

/// How long wait() may sleep although no socket stirs.
base::Nanoseconds TcpEndpoint::sleepLimit(base::TimePoint now) {
  base::Nanoseconds limit = base::Nanoseconds::max();
  if (meter_.active()) limit = std::min(limit, meter_.intervalStart() + kMeterInterval - now);
  if (admission_.busy()) limit = std::min<base::Nanoseconds>(limit, std::chrono::milliseconds(100));
  for (const std::unique_ptr<TcpChannel>& channel : channels_) {
    if (!channel) continue;
    if (channel->connecting())
      limit =
          std::min({limit, channel->nextAttempt() - now, base::Nanoseconds(std::chrono::milliseconds(100))});
    if (bucket_.limits() && channel->canFlush())
      limit = std::min(limit, bucket_.untilAvailable(
                                  static_cast<double>(std::min(channel->queuedBytes(), kPacedBytes)), now));
  }
  return limit;
}

void TcpEndpoint::wait(base::Nanoseconds timeout) {
  const base::TimePoint now = clockNow();
  const base::Nanoseconds limit = std::min(timeout, sleepLimit(now));
  if (limit.count() > 0 && !canMoveNow(now)) dispatch(poller_.poll(limit));
  // acq_rel: what the waker did before wake() is visible to the caller of wait().
  wakeRequested_.exchange(false, std::memory_order_acq_rel);
}

void TcpEndpoint::wake() {
  // release: pairs with the exchange in wait(). A request that nobody has seen yet has signalled already.
  if (!wakeRequested_.exchange(true, std::memory_order_acq_rel)) waker_.signal();
}

Status TcpEndpoint::emulateLinkRate(double bytesPerSecond) {
  if (!(bytesPerSecond >= 0))
    return fail(ErrorCode::kInvalidArgument,
                "the rate of an emulated link is positive, or 0 to switch it off");
  bucket_.setRate(bytesPerSecond, clockNow());
  return {};
}

FlowReading TcpEndpoint::readFlow(const TcpChannel& channel) const {
  if (!channel.open()) return {};
  Result<drivers::TcpFlowState> state = drivers::tcpFlowState(channel.socket());
  if (!state) return {};
  // Unsent bytes in the kernel wait for the link. Segments queued here do not count: they may wait for this
  // thread. But behind an emulated link the wait is here, for tokens.
  const bool waiting = state->unsentBytes > 0 || (bucket_.limits() && channel.queued());
  return {.open = true,
          .waiting = waiting,
          .acknowledgedBytes = state->acknowledgedBytes,
          .receiverLimited = state->receiverLimited};
}

std::vector<FlowReading> TcpEndpoint::readFlows() {
  std::vector<FlowReading> readings(channels_.size());
  for (std::size_t peer = 0; peer < channels_.size(); ++peer)
    if (channels_[peer]) readings[peer] = readFlow(*channels_[peer]);
  return readings;
}

/// Before this turn's writes: whatever the kernel still holds unsent now has waited for the link alone.
void TcpEndpoint::measureBefore(base::TimePoint now) {
  if (meter_.active() && now - meter_.intervalStart() >= kMeterInterval) meter_.mark(now, readFlows());
}

void TcpEndpoint::measureAfter(bool heavy) {
  // The writes took their time: a clock read anew keeps it out of the interval.
  if (heavy && !meter_.active()) meter_.begin(clockNow(), readFlows());
}

Result<std::unique_ptr<Endpoint>> makeTcpEndpoint(const EndpointOptions& options, const TcpOptions& tcp) {
  return TcpEndpoint::make(options, tcp);
}

}  // namespace theseus::transport
