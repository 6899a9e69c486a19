// The memory that one rank receives through: a word that says whether it sleeps, and one ring for each
// sender. Loopback keeps it on the heap, shm in a memfd that the senders map. Layout: docs/wire-format.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "drivers/posix/poller.h"
#include "transport/ring.h"

namespace theseus::transport {

/// 256 KiB: two of the largest segments, so that one is copied in while the other is copied out, and yet the
/// ring stays in the second-level cache, where the copies run at three times the speed of memory.
constexpr std::size_t kRingBytes = 256 * 1024;
constexpr std::size_t kInboxPageBytes = 4096;

struct InboxHeader {
  alignas(
      64) std::atomic<std::uint32_t> sleeping;  // 1: the owner sleeps, or is about to; ring its event counter
};

constexpr std::size_t inboxBytes(int ranks) {
  return kInboxPageBytes + static_cast<std::size_t>(ranks) * (kInboxPageBytes + kRingBytes);
}

/// Offset of the ring from rank `from`: a page for its control, then its bytes.
constexpr std::size_t ringOffset(int from) {
  return kInboxPageBytes + static_cast<std::size_t>(from) * (kInboxPageBytes + kRingBytes);
}

inline InboxHeader* inboxHeader(std::byte* inbox) { return reinterpret_cast<InboxHeader*>(inbox); }

inline RingMemory ringIn(std::byte* inbox, int from) {
  std::byte* start = inbox + ringOffset(from);
  return {.control = reinterpret_cast<RingControl*>(start),
          .bytes = start + kInboxPageBytes,
          .capacity = kRingBytes};
}

/// How to wake the owner of an inbox. Costs a fence and a load while the owner is awake, one system call when
/// it sleeps.
///
/// Why no wake-up is lost (Dekker): the waker stores its news, fences, loads `sleeping`; the sleeper stores
/// `sleeping`, fences, looks for news once more. The two fences are totally ordered, so at least one of the
/// two loads sees the other's store: the waker signals, or the sleeper finds the news and stays awake.
class Doorbell {
 public:
  Doorbell() = default;
  Doorbell(InboxHeader* header, const drivers::EventCounter* counter) : header_(header), counter_(counter) {}

  void ring() const {
    if (!header_) return;
    // seq_cst: orders the news stored before against the load below, see above.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    // relaxed: ordered by the fence; the value guards nothing else.
    if (header_->sleeping.load(std::memory_order_relaxed) == 0) return;
    // relaxed: only picks which of several wakers makes the system call, and that call orders everything
    // before it.
    if (header_->sleeping.exchange(0, std::memory_order_relaxed) != 0) counter_->signal();
  }

  void prepareSleep() const {
    // relaxed: ordered by the fence.
    header_->sleeping.store(1, std::memory_order_relaxed);
    // seq_cst: orders the store above against the sleeper's last look for news, see above.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void endSleep() const {
    // relaxed: a waker that still sees 1 makes a needless system call, no more.
    header_->sleeping.store(0, std::memory_order_relaxed);
  }

 private:
  InboxHeader* header_ = nullptr;
  const drivers::EventCounter* counter_ = nullptr;
};

}  // namespace theseus::transport
