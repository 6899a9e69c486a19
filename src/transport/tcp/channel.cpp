#include "transport/tcp/channel.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "transport/ring_channel.h"
#include "transport/tcp/goodbye.h"

namespace theseus::transport {
namespace {

constexpr base::Nanoseconds kPauseMax = std::chrono::milliseconds(500);

/// cubic: the system's default may be bbr, which paces a loopback stream down to 2.9 GB/s where cubic
/// reaches 7.5. 512 KiB unsent: four of the largest segments. Enough that the link never runs dry between two
/// turns of a busy rank (4 ms at 1 Gbit/s, 100 microseconds at 5 GB/s), little enough that a change of the
/// link shows within milliseconds. Socket buffers stay with the kernel's own tuning, which an explicit size
/// would switch off.
const drivers::TcpTuning kTuning{.congestionControl = "cubic", .unsentBytesMax = 512 * 1024};

std::size_t wireBytes(const SegmentHeader& header) { return sizeof(header) + header.bytes; }

}  // namespace

TcpChannel::~TcpChannel() {
  // In the middle of a segment a goodbye would be taken for payload; the peer then reports a stream that
  // broke off, which it did.
  if (open() && count_ == 0) sayGoodbye(socket_);
}

tl::unexpected<Error> TcpChannel::broken(std::string reason) {
  state_ = State::kBroken;
  error_ = {ErrorCode::kTransport, std::move(reason)};
  socket_.close();
  return fail(error_);
}

Result<bool> TcpChannel::put(const SegmentHeader& header, const std::byte* payload) {
  if (state_ == State::kBroken) return fail(error_);
  if (state_ == State::kPeerClosed)
    return fail(ErrorCode::kTransport,
                fmt::format("cannot send to rank {}: it has closed its endpoint; it must outlive the "
                            "calls of its peers",
                            route_.peer));
  THESEUS_TRY(transport::checkHeader(route_.peer, header));
  if (!open() || count_ == kQueueSegments) return false;
  queue_[(front_ + count_) % kQueueSegments] = {header, payload};
  ++count_;
  queuedBytes_ += wireBytes(header);
  ++accepted_;
  return true;
}

void TcpChannel::onEvent(const drivers::PollEvent& event) {
  writable_ = writable_ || event.writable || event.hangUp;
  readable_ = readable_ || event.readable;
}

Status TcpChannel::startAttempt(drivers::Poller& poller, base::TimePoint now) {
  Result<drivers::FileDescriptor> socket = drivers::startConnect(route_.address);
  if (!socket) return attemptFailed(socket.error(), now);
  THESEUS_TRY(drivers::tuneTcp(*socket, kTuning));
  THESEUS_TRY(poller.watch(*socket, route_.pollKey));
  writable_ = readable_ = attemptConnected_ = false;
  greeting_ = std::make_unique<Greeting>(std::move(*socket),
                                         std::make_unique<ConnectingHandshake>(route_.identity, route_.peer));
  return {};
}

Status TcpChannel::attemptFailed(const Error& error, base::TimePoint now) {
  greeting_.reset();
  lastFailure_ = error.message;
  nextAttempt_ = now + pause_;
  pause_ = std::min(pause_ * 2, kPauseMax);
  return {};
}

Status TcpChannel::advanceConnection(drivers::Poller& poller, base::TimePoint now) {
  if (!connecting()) return {};
  if (now >= route_.deadline)
    return broken(
        fmt::format("no connection to rank {} at {} in time: {}; is that process alive, and its port "
                    "reachable from here?",
                    route_.peer, route_.address.text(), lastFailure_.empty() ? "no answer" : lastFailure_));
  if (!greeting_) {
    if (now < nextAttempt_) return {};
    THESEUS_TRY(startAttempt(poller, now));
    if (!greeting_) return {};
  }
  if (!attemptConnected_) {
    if (!writable_) return {};
    Status outcome = drivers::connectOutcome(greeting_->socket());
    if (!outcome) return attemptFailed(outcome.error(), now);
    attemptConnected_ = true;
  }
  Result<Greeting::State> state = greeting_->advance();
  if (!state)
    return broken(fmt::format("no connection to rank {} at {}: {}", route_.peer, route_.address.text(),
                              state.error().message));
  if (*state == Greeting::State::kEnded)
    return attemptFailed({ErrorCode::kTransport, "the other side hung up during the hello"}, now);
  if (*state == Greeting::State::kPending) return {};
  socket_ = greeting_->takeSocket();
  greeting_.reset();
  state_ = State::kOpen;
  writable_ = true;
  readable_ = true;  // the peer may have left in the meantime
  return {};
}

std::size_t TcpChannel::gather(std::span<iovec> pieces, std::size_t budget, std::size_t& bytes) const {
  std::size_t used = 0;
  std::size_t skip = frontSent_;
  bytes = 0;
  auto add = [&](const void* data, std::size_t length) {
    const std::size_t skipped = std::min(skip, length);
    const std::size_t taken = std::min(length - skipped, budget - bytes);
    skip -= skipped;
    if (taken == 0) return;
    pieces[used++] = {const_cast<std::byte*>(static_cast<const std::byte*>(data)) + skipped, taken};
    bytes += taken;
  };
  for (std::size_t i = 0; i < count_ && bytes < budget; ++i) {
    const Entry& entry = queue_[(front_ + i) % kQueueSegments];
    add(&entry.header, sizeof(entry.header));
    if (entry.header.bytes > 0) add(entry.payload, entry.header.bytes);
  }
  return used;
}

void TcpChannel::sent(std::size_t bytes) {
  queuedBytes_ -= bytes;
  frontSent_ += bytes;
  while (count_ > 0 && frontSent_ >= wireBytes(queue_[front_].header)) {
    frontSent_ -= wireBytes(queue_[front_].header);
    front_ = (front_ + 1) % kQueueSegments;
    --count_;
    ++completed_;
  }
}

Result<std::size_t> TcpChannel::flush(std::size_t budget) {
  std::size_t total = 0;
  while (canFlush() && budget > total) {
    std::array<iovec, 2 * kQueueSegments> pieces;
    std::size_t offered = 0;
    const std::size_t used = gather(pieces, budget - total, offered);
    Result<drivers::Transfer> transfer = drivers::sendGathered(socket_, std::span(pieces.data(), used));
    if (!transfer) {
      // The peer's last words, if any, say more than the error of the system call.
      readable_ = true;
      THESEUS_TRY(checkPeer());
      return broken(fmt::format("the connection to rank {} at {} broke: {}", route_.peer,
                                route_.address.text(), transfer.error().message));
    }
    sent(transfer->bytes);
    total += transfer->bytes;
    if (transfer->bytes < offered) writable_ = false;
  }
  return total;
}

Status TcpChannel::checkPeer() {
  while (needsCheck()) {
    const iovec piece{reinterpret_cast<std::byte*>(&farewell_) + farewellBytes_,
                      sizeof(farewell_) - farewellBytes_};
    const bool goodbye = farewellBytes_ == sizeof(farewell_) && farewell_.magic == kGoodbyeMagic;
    if (goodbye && count_ == 0) {
      state_ = State::kPeerClosed;
      socket_.close();
      return {};
    }
    if (goodbye)
      return broken(
          fmt::format("rank {} closed its endpoint while {} segments for it waited", route_.peer, count_));
    if (piece.iov_len == 0)
      return broken(fmt::format("rank {} says something unknown on a one-way connection", route_.peer));
    Result<drivers::Transfer> got = drivers::receiveScattered(socket_, std::span(&piece, 1));
    if (got && got->blocked) {
      readable_ = false;
      return {};
    }
    if (!got || got->ended)
      return broken(fmt::format(
          "rank {} at {} ended without a goodbye (crashed, killed or cut off?): {}; see its own output",
          route_.peer, route_.address.text(), got ? "end of stream" : got.error().message));
    farewellBytes_ += got->bytes;
  }
  return {};
}

}  // namespace theseus::transport
