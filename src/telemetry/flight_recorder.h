// What happened last, for a look after (or during) the flight: each thread writes its own fixed ring without
// locks, any thread may read all rings at any time. Rings belong to the process and outlive their threads; a
// new thread takes over the ring of one that has ended.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "telemetry/event.h"

namespace theseus::telemetry {

/// A ring of the newest events. One thread records, any thread reads.
class EventRing {
 public:
  static constexpr std::size_t kCapacity = 4096;  // a power of two

  void record(std::int64_t nanoseconds, EventId id, std::uint64_t a, std::uint64_t b);

  /// The events that are still there, oldest first. What is overwritten while it is read is left out, never
  /// torn.
  std::vector<Event> snapshot() const;
  /// Events ever recorded.
  std::uint64_t recorded() const;

 private:
  /// A slot is valid when `stamp` is its position + 1 before and after the other fields are read (a sequence
  /// lock whose data are atomics too, so that reading while writing is no data race).
  struct Slot {
    std::atomic<std::uint64_t> stamp{0};
    std::atomic<std::int64_t> nanoseconds{0};
    std::atomic<std::uint64_t> id{0};
    std::atomic<std::uint64_t> a{0};
    std::atomic<std::uint64_t> b{0};
  };

  std::array<Slot, kCapacity> slots_;
  std::atomic<std::uint64_t> next_{0};
};

/// Events of one thread.
struct ThreadEvents {
  std::string thread;  // as named by nameThread, else "thread N"
  std::vector<Event> events;
};

/// The calling thread's ring.
EventRing& threadRing();

/// Records an event of the calling thread, now. A few nanoseconds and one look at the clock.
inline void record(EventId id, std::uint64_t a = 0, std::uint64_t b = 0) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  threadRing().record(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(), id, a, b);
}

/// How the calling thread is called in traces from now on.
void nameThread(std::string threadName);

/// Copies of all rings, in the order in which the threads first recorded; a ring is written on while it is
/// copied.
std::vector<ThreadEvents> flightRecord();

inline void EventRing::record(std::int64_t nanoseconds, EventId id, std::uint64_t a, std::uint64_t b) {
  // Relaxed: only this thread writes next_.
  const std::uint64_t position = next_.load(std::memory_order_relaxed);
  Slot& slot = slots_[position % kCapacity];
  // Relaxed: the fence below orders it before the fields.
  slot.stamp.store(0, std::memory_order_relaxed);
  // Release fence: a reader that sees one of the fields below and then takes its acquire fence also sees the
  // stamp 0 (or a later one).
  std::atomic_thread_fence(std::memory_order_release);
  // Relaxed: ordered by the fence above and the release below.
  slot.nanoseconds.store(nanoseconds, std::memory_order_relaxed);
  // Relaxed: as above.
  slot.id.store(static_cast<std::uint64_t>(id), std::memory_order_relaxed);
  // Relaxed: as above.
  slot.a.store(a, std::memory_order_relaxed);
  // Relaxed: as above.
  slot.b.store(b, std::memory_order_relaxed);
  // Release: a reader that sees this stamp sees the fields.
  slot.stamp.store(position + 1, std::memory_order_release);
  // Release: a reader that sees the count sees the slots below it.
  next_.store(position + 1, std::memory_order_release);
}

}  // namespace theseus::telemetry
