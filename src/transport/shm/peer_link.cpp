#include "transport/shm/peer_link.h"

#include <fmt/format.h>

#include "base/check.h"

namespace theseus::transport {
namespace {

constexpr std::byte kDescriptorsFollow{'D'};

}  // namespace

Status PeerSocket::give(const OwnDescriptors& own) {
  const std::array<int, 2> descriptors = {own.inboxFile, own.counter};
  return drivers::sendDescriptors(socket_, std::span(&kDescriptorsFollow, 1), descriptors);
}

Result<std::unique_ptr<MappedPeer>> PeerSocket::take(std::size_t bytes) {
  std::byte mark{0};
  Result<drivers::ReceivedDescriptors> received = drivers::receiveDescriptors(socket_, std::span(&mark, 1));
  if (!received) return fail(std::move(received.error()));
  if (received->transfer.blocked) {
    readable_ = false;
    return std::unique_ptr<MappedPeer>();
  }
  if (received->transfer.ended)
    return fail(
        ErrorCode::kTransport,
        fmt::format("rank {} ended without a goodbye (crashed or killed?); see its own output", peer_));
  if (mark != kDescriptorsFollow || received->descriptors.size() != 2)
    return fail(ErrorCode::kTransport,
                fmt::format("rank {} sent {} descriptors instead of its memory and its counter", peer_,
                            received->descriptors.size()));
  THESEUS_TRY(drivers::checkSealedMemoryFile(received->descriptors[0], bytes));
  Result<drivers::MemoryMapping> mapping = drivers::MemoryMapping::shared(received->descriptors[0], bytes);
  if (!mapping) return fail(std::move(mapping.error()));
  auto peer = std::make_unique<MappedPeer>();
  peer->inbox = std::move(*mapping);
  peer->counter = drivers::EventCounter(std::move(received->descriptors[1]));
  return peer;
}

bool PeerSocket::ended() {
  while (readable_) {
    std::byte nothing{0};
    const iovec piece{&nothing, 1};
    Result<drivers::Transfer> got = drivers::receiveScattered(socket_, std::span(&piece, 1));
    // No peer of ours says anything after its descriptors, so bytes are as good as an end.
    if (!got || !got->blocked) return true;
    readable_ = false;
  }
  return false;
}

tl::unexpected<Error> OutboundLink::failForGood(const std::string& reason) {
  failed_ = true;
  greeting_.reset();
  socket_.reset();
  return fail(ErrorCode::kTransport,
              fmt::format("no connection to rank {} at {}: {}", route_.peer, route_.address.text(), reason));
}

Status OutboundLink::greet(drivers::Poller& poller) {
  if (!greeting_) {
    // At once or not at all: a unix socket's connect() does not pend. A full backlog is tried again by the
    // next call.
    Result<drivers::FileDescriptor> socket = drivers::startConnect(route_.address);
    if (!socket) {
      lastFailure_ = socket.error().message;
      return {};
    }
    THESEUS_TRY(poller.watch(*socket, route_.pollKey));
    greeting_ = std::make_unique<Greeting>(
        std::move(*socket), std::make_unique<ConnectingHandshake>(route_.identity, route_.peer));
  }
  Result<Greeting::State> state = greeting_->advance();
  if (!state) return failForGood(state.error().message);
  if (*state == Greeting::State::kEnded) {
    lastFailure_ = "the other side hung up during the hello";
    greeting_.reset();
  }
  if (*state == Greeting::State::kDone) {
    socket_ = std::make_unique<PeerSocket>(route_.peer, greeting_->takeSocket());
    greeting_.reset();
    THESEUS_TRY(socket_->give(route_.own));
  }
  return {};
}

Result<bool> OutboundLink::advance(drivers::Poller& poller, base::TimePoint now) {
  if (!connecting()) return false;
  if (now >= route_.deadline)
    return failForGood("time is over: " + (lastFailure_.empty() ? "no answer" : lastFailure_));
  if (!socket_) {
    Status greeted = greet(poller);
    if (!greeted) return failed_ ? fail(greeted.error()) : failForGood(greeted.error().message);
  }
  if (!socket_ || !socket_->readable()) return false;
  Result<std::unique_ptr<MappedPeer>> taken = socket_->take(route_.inboxBytes);
  if (!taken) return failForGood(taken.error().message);
  if (!*taken) return false;
  peer_ = std::move(*taken);
  return true;
}

}  // namespace theseus::transport
