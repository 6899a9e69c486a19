// Change detection on one rank's link: two-sided CUSUM on the logarithm of the rate, against a slowly learnt
// reference. Pure state machine, no clock; one thread. Method: Page 1954; constants argued in
// docs/observation.md.
#pragma once

#include <cstdint>
#include <optional>

namespace theseus::policy {

struct DetectorOptions {
  double noiseFloor = 0.02;   // smallest relative standard deviation that is believed
  double slack = 0.5;         // in standard deviations
  double threshold = 12;      // in standard deviations
  double largestStep = 8;     // in standard deviations: what one sample may add at most
  int warmupSamples = 4;      // before the reference is trusted
  double driftReport = 0.05;  // a reference that crept this far (relative) is reported as a change as well
};

/// What a sample led to.
enum class LinkChange : std::uint8_t { kNone, kSlower, kFaster };

class LinkDetector {
 public:
  explicit LinkDetector(DetectorOptions options = {});
  /// One sample: bytes per second while busy. A change re-learns the reference from the next samples. A
  /// sample that is no rate (zero, negative, not finite) is ignored.
  LinkChange add(double bytesPerSecond);
  /// Smoothed current rate (median of the last five since the last change); nullopt before the first sample.
  std::optional<double> rate() const;

 private:
  void remember(double logRate);
  double medianOfLast(int count) const;
  void finishWarmup();
  LinkChange weigh(double logRate);
  void learn(double deviation);
  LinkChange restart(LinkChange change);

  DetectorOptions options_;
  double reference_ = 0;  // logarithm of bytes per second
  double variance_;       // of the logarithm
  double anchor_ = 0;     // the reference as it was when first well known: drift is measured from here
  double down_ = 0;
  double up_ = 0;
  double recent_[5] = {};          // logarithms, a ring
  std::uint64_t sinceChange_ = 0;  // samples, all of them in recent_ when there are at most five
  std::uint64_t learnt_ = 0;       // samples that the reference rests on
};

}  // namespace theseus::policy
