#include "transport/ring_endpoint.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "base/check.h"

namespace theseus::transport {
namespace {

/// A message between two cores takes 0.3 to 1 microsecond and a reduction of a segment ten: spinning this
/// long catches the answers of a running collective, and an idle rank gives its core away soon.
constexpr base::Nanoseconds kSpinTime{20'000};
/// Then others may run first, at 1 microsecond a turn, before a sleep and its wake-up of ten are worth it.
constexpr base::Nanoseconds kYieldTime{50'000};
constexpr int kLooksPerClock = 16;
/// Sockets are looked at once in so many turns while nothing is urgent: a system call against that many looks
/// at memory.
constexpr unsigned kTurnsPerService = 64;

base::TimePoint now() { return base::SteadyClock::instance().now(); }

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Status checkPeer(Rank peer, const EndpointOptions& options) {
  if (peer < 0 || peer >= options.size)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("no rank {}: ranks are 0 to {}", peer, options.size - 1));
  if (peer == options.rank)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rank {} has no channel to itself: copy locally", peer));
  return {};
}

Status checkAddresses(const std::vector<std::string>& addresses, int size) {
  if (addresses.size() == static_cast<std::size_t>(size)) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} addresses for {} ranks: pass one for each rank", addresses.size(), size));
}

RingEndpoint::RingEndpoint(Parts parts)
    : capabilities_(std::move(parts.capabilities)),
      options_(std::move(parts.options)),
      poller_(std::move(parts.poller)),
      doorbell_(parts.inbox, parts.counter),
      // With more ranks than cores a spinning rank keeps the very peer that it waits for off the processor.
      maySpin_(options_.size <= drivers::availableCores()) {
  channels_.resize(static_cast<std::size_t>(options_.size));
  for (Rank from = 0; from < options_.size; ++from) streams_.push_back(std::make_unique<RingStream>(from));
}

RingEndpoint::~RingEndpoint() = default;

Status RingEndpoint::setPeers(std::vector<std::string> addresses) {
  THESEUS_TRY(checkAddresses(addresses, options_.size));
  addresses_ = std::move(addresses);
  return {};
}

Result<Channel*> RingEndpoint::connect(Rank peer) {
  THESEUS_TRY(checkPeer(peer, options_));
  if (addresses_.empty())
    return fail(ErrorCode::kInvalidArgument,
                "connect() before setPeers(): the addresses of the peers are not known");
  std::unique_ptr<RingChannel>& slot = channels_[static_cast<std::size_t>(peer)];
  if (!slot) {
    slot = std::make_unique<RingChannel>(peer);
    Status opened = openChannel(peer);
    if (!opened) {
      slot.reset();
      return fail(std::move(opened.error()));
    }
  }
  return slot.get();
}

Result<bool> RingEndpoint::serviceNow() {
  const std::span<const drivers::PollEvent> events = poller_.poll(base::Nanoseconds{0});
  seenAsleep_.insert(seenAsleep_.end(), events.begin(), events.end());
  std::vector<drivers::PollEvent> all;
  all.swap(seenAsleep_);
  return service(all);
}

Result<bool> RingEndpoint::progress(InboundHandler& handler) {
  if (!failure_) return fail(failure_.error());
  bool moved = false;
  if (++turns_ % kTurnsPerService == 0 || serviceIsUrgent() || !seenAsleep_.empty()) {
    Result<bool> served = serviceNow();
    if (!served) return served;
    moved = *served;
  }
  for (const std::unique_ptr<RingChannel>& outbound : channels_)
    if (outbound && outbound->advance()) moved = true;
  for (const std::unique_ptr<RingStream>& inbound : streams_) {
    Result<bool> delivered = inbound->progress(handler);
    if (!delivered) {
      failure_ = fail(delivered.error());
      return delivered;
    }
    moved = moved || *delivered;
  }
  return moved;
}

void RingEndpoint::resume() {
  for (const std::unique_ptr<RingStream>& inbound : streams_) inbound->resume();
}

bool RingEndpoint::somethingCanMove() {
  // relaxed: only says "look again"; what the waker wants seen is ordered by its own means.
  if (wakeRequested_.load(std::memory_order_relaxed)) return true;
  for (const std::unique_ptr<RingStream>& inbound : streams_)
    if (inbound->canMove()) return true;
  for (const std::unique_ptr<RingChannel>& outbound : channels_)
    if (outbound && outbound->canMove()) return true;
  return false;
}

bool RingEndpoint::awaitWithoutSleeping(base::TimePoint end) {
  const base::TimePoint start = now();
  const base::TimePoint spinEnd = maySpin_ ? std::min(end, start + kSpinTime) : start;
  const base::TimePoint yieldEnd = std::min(end, spinEnd + kYieldTime);
  for (base::TimePoint time = start; time < spinEnd; time = now())
    for (int look = 0; look < kLooksPerClock; ++look) {
      if (somethingCanMove()) return true;
      relax();
    }
  while (now() < yieldEnd) {
    if (somethingCanMove()) return true;
    ::sched_yield();
  }
  return false;
}

void RingEndpoint::sleep(base::TimePoint end) {
  for (const std::unique_ptr<RingChannel>& outbound : channels_)
    if (outbound) outbound->announceWait();
  doorbell_.prepareSleep();
  const base::TimePoint time = now();
  if (!somethingCanMove() && time < end) {
    const std::span<const drivers::PollEvent> events = poller_.poll(end - time);
    seenAsleep_.assign(events.begin(), events.end());
  }
  doorbell_.endSleep();
  for (const std::unique_ptr<RingChannel>& outbound : channels_)
    if (outbound) outbound->withdrawWait();
}

void RingEndpoint::wait(base::Nanoseconds timeout) {
  const base::TimePoint end = now() + std::min(timeout, sleepLimit());
  // progress() has work that no ring shows: what the last sleep saw, or a failure to report.
  if (seenAsleep_.empty() && failure_ && !somethingCanMove() && !awaitWithoutSleeping(end)) sleep(end);
  // acq_rel: what the waker did before wake() is visible to the caller of wait().
  wakeRequested_.exchange(false, std::memory_order_acq_rel);
}

void RingEndpoint::wake() {
  // release: pairs with the exchange in wait().
  wakeRequested_.store(true, std::memory_order_release);
  doorbell_.ring();
}

LinkSample RingEndpoint::takeLinkSample() {
  return {.egress = {}, .toPeer = std::vector<LinkUse>(static_cast<std::size_t>(options_.size))};
}

Status RingEndpoint::emulateLinkRate(double bytesPerSecond) {
  if (bytesPerSecond == 0) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{} has no link to slow down: use --transport tcp to emulate a slow link",
                          capabilities_.name));
}

void RingEndpoint::sayGoodbyes() {
  for (const std::unique_ptr<RingChannel>& outbound : channels_)
    if (outbound) outbound->sayGoodbye();
  for (const std::unique_ptr<RingStream>& inbound : streams_) inbound->sayGoodbye();
}

}  // namespace theseus::transport
