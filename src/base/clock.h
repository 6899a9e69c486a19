// Time and randomness as interfaces, so that simulated and real runs share the code.
#pragma once

#include <chrono>
#include <cstdint>

namespace theseus::base {

using Nanoseconds = std::chrono::nanoseconds;
/// A point of a monotonic clock, as the time since that clock's own start.
using TimePoint = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

/// CLOCK_MONOTONIC. Stateless; any thread.
class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
  static const SteadyClock& instance();
};

/// SplitMix64 (Steele, Lea, Flood 2014): small, seedable, the same on every machine. One thread.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, bound), bound > 0 (bias below 2^-32 for bounds below 2^32).
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  /// Uniform in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  bool chance(double probability) { return unit() < probability; }

 private:
  std::uint64_t state_;
};

}  // namespace theseus::base
