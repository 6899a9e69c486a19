#include "transport/greeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "drivers/posix/socket.h"
#include "transport/notice.h"

namespace theseus::transport {
namespace {

constexpr int kAcceptsPerTurn = 32;
/// Besides every peer of the job, so that a crowd of strangers cannot take the places of the peers.
constexpr std::size_t kStrangersMax = 64;
constexpr base::Nanoseconds kNoticeInterval = std::chrono::seconds(1);

}  // namespace

Status Greeting::send(const std::vector<std::byte>& message) {
  if (message.empty()) return {};
  const iovec piece{const_cast<std::byte*>(message.data()), message.size()};
  Result<drivers::Transfer> sent = drivers::sendGathered(socket_, std::span(&piece, 1));
  if (!sent) return fail(std::move(sent.error()));
  if (sent->bytes != message.size())
    return fail(ErrorCode::kTransport, "a fresh socket has no room for a short message");
  return {};
}

Result<Greeting::State> Greeting::advance() {
  while (!handshake_->done()) {
    const std::span<std::byte> wanted = handshake_->wanted();
    // Never more than the hello itself, so that what follows stays in the socket for the stream.
    const iovec piece{wanted.data(), wanted.size()};
    Result<drivers::Transfer> got = drivers::receiveScattered(socket_, std::span(&piece, 1));
    if (!got || got->ended) return State::kEnded;
    if (got->blocked) return State::kPending;
    Result<std::vector<std::byte>> answer = handshake_->received(got->bytes);
    if (!answer) {
      (void)send(handshake_->farewell());
      return fail(std::move(answer.error()));
    }
    THESEUS_TRY(send(*answer));
  }
  return State::kDone;
}

Admission::Admission(Options options)
    : options_(std::move(options)),
      known_(std::make_unique<std::vector<bool>>(static_cast<std::size_t>(options_.identity.size), false)) {}

Result<Admission> Admission::create(Options options, drivers::Poller& poller) {
  Admission admission(std::move(options));
  THESEUS_TRY(poller.watch(admission.options_.listener, admission.options_.listenerKey));
  return admission;
}

void Admission::drop(const Visitor& visitor, std::string_view reason) {
  ++dropped_;
  const base::TimePoint now = base::SteadyClock::instance().now();
  if (now - lastNotice_ < kNoticeInterval) return;
  lastNotice_ = now;
  notice(fmt::format("rank {}: dropped a stranger from {}: {} ({} so far); the job goes on",
                     options_.identity.self,
                     drivers::SocketAddress::remoteOf(visitor.greeting->socket()).text(), reason, dropped_));
}

void Admission::acceptSome(drivers::Poller& poller, base::TimePoint now) {
  for (int i = 0; i < kAcceptsPerTurn && callersWait_; ++i) {
    Result<std::optional<drivers::FileDescriptor>> socket = drivers::acceptOne(options_.listener);
    if (!socket)
      notice(fmt::format("rank {}: {}; trying again with the next caller", options_.identity.self,
                         socket.error().message));
    if (!socket || !*socket) {
      callersWait_ = false;
      return;
    }
    if (greetings_.size() >= kStrangersMax + known_->size()) {
      drop(greetings_.front(), "too many callers at once, and it is the one that has been silent longest");
      greetings_.erase(greetings_.begin());
    }
    auto handshake = std::make_unique<AcceptingHandshake>(options_.identity, *known_);
    const std::vector<std::byte> opening = handshake->opening();
    auto greeting = std::make_unique<Greeting>(std::move(**socket), std::move(handshake));
    if (!poller.watch(greeting->socket(), options_.greetingsKey) || !greeting->send(opening)) continue;
    greetings_.push_back({std::move(greeting), now + options_.patience});
  }
}

std::vector<Admission::Admitted> Admission::advance(drivers::Poller& poller, base::TimePoint now) {
  std::vector<Admitted> admitted;
  if (!busy()) return admitted;
  acceptSome(poller, now);
  auto finished = [&](Visitor& visitor) {
    Result<Greeting::State> state = visitor.greeting->advance();
    if (!state) {
      drop(visitor, state.error().message);
      return true;
    }
    if (*state == Greeting::State::kDone) {
      const Rank from = visitor.greeting->peer();
      (*known_)[static_cast<std::size_t>(from)] = true;
      admitted.push_back({from, visitor.greeting->takeSocket()});
      return true;
    }
    if (*state == Greeting::State::kEnded)
      drop(visitor, "it left without a word");
    else if (now >= visitor.deadline)
      drop(visitor, "it said nothing that makes sense in time");
    else
      return false;
    return true;
  };
  std::erase_if(greetings_, finished);
  return admitted;
}

}  // namespace theseus::transport
