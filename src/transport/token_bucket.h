// A shallow token bucket: how fast an emulated link lets bytes go. Pure; time comes in. One thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace theseus::transport {

class TokenBucket {
 public:
  /// Idle time banks at most this much, otherwise the pauses of a collective would hide the slow link.
  static constexpr double kBurstBytes = 256 * 1024;

  /// 0 = no limit.
  void setRate(double bytesPerSecond, base::TimePoint now) {
    rate_ = bytesPerSecond;
    tokens_ = kBurstBytes;
    filledAt_ = now;
  }
  bool limits() const { return rate_ > 0; }

  double available(base::TimePoint now) {
    if (now > filledAt_) {
      const double seconds = std::chrono::duration<double>(now - filledAt_).count();
      tokens_ = std::min(kBurstBytes, tokens_ + rate_ * seconds);
      filledAt_ = now;
    }
    return tokens_;
  }
  void take(std::uint64_t bytes) { tokens_ -= static_cast<double>(bytes); }
  /// Until `bytes` (at most the burst) are available.
  base::Nanoseconds untilAvailable(double bytes, base::TimePoint now) {
    const double missing = std::min(bytes, kBurstBytes) - available(now);
    if (missing <= 0 || !limits()) return base::Nanoseconds{0};
    return base::Nanoseconds{static_cast<std::int64_t>(missing / rate_ * 1e9) + 1};
  }

 private:
  double rate_ = 0;
  double tokens_ = 0;
  base::TimePoint filledAt_{0};
};

}  // namespace theseus::transport
