// Where the control thread publishes epochs and the calling thread reads them: one atomic load for each
// collective, a lock only after a publication. Epochs that no later collective can need are forgotten.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "control/control_plane.h"

namespace theseus::runtime {

class EpochBoard {
 public:
  explicit EpochBoard(control::Epoch first) : shared_{first}, local_{std::move(first)} {}

  /// Control thread. Epochs come in order of rounds.
  void publish(const control::Epoch& epoch) {
    std::scoped_lock lock(mutex_);
    shared_.push_back(epoch);
    // Release: whoever sees the new generation finds the epoch under the lock (and the gate orders it before
    // lift()).
    generation_.fetch_add(1, std::memory_order_release);
  }

  /// Calling thread: the epoch of collective `number`, the latest whose switch point is not above it. Numbers
  /// never go back.
  const control::Epoch& find(SequenceNumber number) {
    // Acquire pairs with publish().
    const std::uint64_t generation = generation_.load(std::memory_order_acquire);
    if (generation != seen_) refresh(generation);
    // The latest round whose switch point is not above the number, wherever it stands: a later round may have
    // an earlier switch point (its ranks chose less slack), and then it overtakes the one before it.
    for (std::size_t last = local_.size() - 1; last > 0; --last) {
      if (local_[last].switchAt > number) continue;
      local_.erase(local_.begin(), local_.begin() + static_cast<std::ptrdiff_t>(last));
      break;
    }
    THESEUS_CHECK(local_.front().switchAt <= number, "no epoch covers this collective");
    return local_.front();
  }

  /// Any thread: the newest epoch.
  control::Epoch newest() const {
    std::scoped_lock lock(mutex_);
    return shared_.back();
  }

 private:
  void refresh(std::uint64_t generation) {
    std::scoped_lock lock(mutex_);
    for (const control::Epoch& epoch : shared_) {
      if (epoch.round > local_.back().round) local_.push_back(epoch);
    }
    shared_.erase(shared_.begin(), shared_.end() - 1);  // the calling thread has them now
    seen_ = generation;
  }

  mutable std::mutex mutex_;
  std::vector<control::Epoch> shared_;  // protected by mutex_
  std::atomic<std::uint64_t> generation_{0};
  std::vector<control::Epoch> local_;  // calling thread only
  std::uint64_t seen_ = 0;             // calling thread only
};

}  // namespace theseus::runtime
