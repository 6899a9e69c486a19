// Numbers the collectives of a communicator and holds them at a limit while a round of agreement asks for it
// (docs/agreement.md). issue() is for the thread that makes the calls; promise() and lift() for the control
// thread; the rest for any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>

#include "base/clock.h"
#include "base/ids.h"

namespace theseus::runtime {

class SequenceGate {
 public:
  static constexpr SequenceNumber kNoLimit = std::numeric_limits<SequenceNumber>::max();

  /// Takes the next number. The caller must not run that collective before mayRun() or waitUntilAllowed()
  /// says so.
  SequenceNumber issue() {
    const SequenceNumber number = next_.load(std::memory_order_relaxed);  // only this thread writes it
    // Sequentially consistent, as is promise(): of this store and the load in mayRun() on one side, and
    // promise()'s store of the limit and its second load of next_ on the other, at least one side sees the
    // other's store.
    next_.store(number + 1, std::memory_order_seq_cst);
    return number;
  }

  bool mayRun(SequenceNumber number) const {
    // See issue(). It also acquires what was published before lift().
    return number < limit_.load(std::memory_order_seq_cst);
  }

  /// Waits at the limit. False when `timeout` ran out or stop() was called.
  bool waitUntilAllowed(SequenceNumber number, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return stopped_ || mayRun(number); }) && !stopped_;
  }

  /// A limit L such that no collective >= L has been issued without seeing it; L is at least `slack` (>= 1)
  /// above what was issued.
  SequenceNumber promise(SequenceNumber slack) {
    std::scoped_lock lock(mutex_);
    while (true) {
      const SequenceNumber limit = next_.load(std::memory_order_seq_cst) + slack;
      limit_.store(limit, std::memory_order_seq_cst);  // order argued in issue()
      if (next_.load(std::memory_order_seq_cst) <= limit) {
        changed_
            .notify_all();  // an earlier turn of this loop may have stopped a caller below the final limit
        return limit;
      }
    }
  }

  void lift() {
    std::scoped_lock lock(mutex_);
    // Everything that was published before is visible to whoever reads this value (release is part of
    // seq_cst).
    limit_.store(kNoLimit, std::memory_order_seq_cst);
    changed_.notify_all();
  }

  /// Wakes a caller that waits at the limit for good (the communicator is broken).
  void stop() {
    std::scoped_lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  /// Collectives issued so far. A statistic, hence relaxed.
  SequenceNumber issued() const { return next_.load(std::memory_order_relaxed); }

 private:
  std::atomic<SequenceNumber> next_{0};
  std::atomic<SequenceNumber> limit_{kNoLimit};
  std::mutex mutex_;  // protects stopped_ and the condition
  std::condition_variable changed_;
  bool stopped_ = false;
};

}  // namespace theseus::runtime
