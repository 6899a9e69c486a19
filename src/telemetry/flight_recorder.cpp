#include "telemetry/flight_recorder.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

namespace theseus::telemetry {
namespace {

struct NamedRing {
  std::string name;
  std::unique_ptr<EventRing> ring = std::make_unique<EventRing>();
  bool taken = true;
};

struct Registry {
  std::mutex mutex;
  std::vector<NamedRing> rings;
};

/// Never destroyed: threads may record while the process ends.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

/// A thread's hold on a ring; gives it back when the thread ends.
class Lease {
 public:
  Lease() {
    Registry& all = registry();
    std::scoped_lock lock(all.mutex);
    const auto free =
        std::find_if(all.rings.begin(), all.rings.end(), [](const NamedRing& ring) { return !ring.taken; });
    position_ = static_cast<std::size_t>(free - all.rings.begin());
    if (free == all.rings.end()) {
      all.rings.emplace_back();
    } else {
      free->taken = true;
    }
    all.rings[position_].name = "thread " + std::to_string(position_);
    ring_ = all.rings[position_].ring.get();
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    std::scoped_lock lock(registry().mutex);
    registry().rings[position_].taken = false;
  }
  EventRing& ring() { return *ring_; }
  void rename(std::string threadName) {
    std::scoped_lock lock(registry().mutex);
    registry().rings[position_].name = std::move(threadName);
  }

 private:
  std::size_t position_ = 0;
  EventRing* ring_ = nullptr;
};

Lease& lease() {
  thread_local Lease mine;
  return mine;
}

}  // namespace

std::uint64_t EventRing::recorded() const {
  // Acquire: pairs with the release in record().
  return next_.load(std::memory_order_acquire);
}

std::vector<Event> EventRing::snapshot() const {
  const std::uint64_t end = recorded();
  const std::uint64_t start = end > kCapacity ? end - kCapacity : 0;
  std::vector<Event> events;
  events.reserve(end - start);
  for (std::uint64_t position = start; position < end; ++position) {
    const Slot& slot = slots_[position % kCapacity];
    // Acquire: the fields of this stamp are visible.
    if (slot.stamp.load(std::memory_order_acquire) != position + 1) continue;
    Event event;
    // Relaxed: ordered by the acquire above and the fence below.
    event.nanoseconds = slot.nanoseconds.load(std::memory_order_relaxed);
    // Relaxed: as above.
    event.id = static_cast<EventId>(slot.id.load(std::memory_order_relaxed));
    // Relaxed: as above.
    event.a = slot.a.load(std::memory_order_relaxed);
    // Relaxed: as above.
    event.b = slot.b.load(std::memory_order_relaxed);
    // Acquire fence: had a field come from a later event, the stamp below could no longer be the old one.
    std::atomic_thread_fence(std::memory_order_acquire);
    // Relaxed: ordered by the fence.
    if (slot.stamp.load(std::memory_order_relaxed) == position + 1) events.push_back(event);
  }
  return events;
}

EventRing& threadRing() {
  thread_local EventRing& mine = lease().ring();
  return mine;
}

void nameThread(std::string threadName) { lease().rename(std::move(threadName)); }

std::vector<ThreadEvents> flightRecord() {
  Registry& all = registry();
  std::scoped_lock lock(all.mutex);
  std::vector<ThreadEvents> threads;
  for (const NamedRing& named : all.rings) threads.push_back({named.name, named.ring->snapshot()});
  return threads;
}

}  // namespace theseus::telemetry
