// Change detection on one rank's link: two-sided CUSUM on the logarithm of the rate, against a slowly learnt reference. Pure
// state machine, no clock; one thread. Method: Page 1954; constants argued in docs/observation.md.
#pragma once

#include <cstdint>
#include <optional>

namespace theseus::policy {

struct DetectorOptions {
  double noiseFloor = 0.02;     // smallest relative standard deviation that is believed
  double slack = 0.5;           // in standard deviations
  double threshold = 12;        // in standard deviations
  int warmupSamples = 4;        // before the reference is trusted
};

/// What a sample led to.
enum class LinkChange : std::uint8_t { kNone, kSlower, kFaster };

class LinkDetector {
 public:
  explicit LinkDetector(DetectorOptions options = {});
  /// One sample: bytes per second while busy. A change re-learns the reference from the next samples.
  LinkChange add(double bytesPerSecond);
  /// Smoothed current rate; nullopt before the first sample.
  std::optional<double> rate() const;

 private:
  DetectorOptions options_;
  double reference_ = 0;
  double variance_ = 0;
  double down_ = 0;
  double up_ = 0;
  double recent_[5] = {};
  std::uint64_t samples_ = 0;
  std::uint64_t sinceChange_ = 0;
};

}  // namespace theseus::policy
