#include "policy/detector.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace theseus::policy {
namespace {

// What is believed of the noise before there are samples, and how many samples that belief weighs.
constexpr double kPriorDeviation = 0.05;
constexpr double kPriorWeight = 4;
// Beyond this many samples the reference forgets old ones exponentially.
constexpr double kMemory = 64;
// A deviation counts no more than this (in standard deviations) when the reference learns: outliers teach
// nothing.
constexpr double kLearningClip = 3;
// The reference stops learning while a sum has climbed this share of the way to the alarm. Not zero: noise
// alone keeps one of the two sums above zero most of the time, and a reference that never learns is as wrong
// as its first samples were.
constexpr double kFreezeShare = 0.5;
// Errors of the reference that are allowed for, in its standard deviations.
constexpr double kReferenceDoubt = 1;
// How far (in standard deviations of a sample) an exponential mean over kMemory samples wanders by noise
// alone: seven of its own.
constexpr double kReferenceWander = 0.6;
constexpr std::uint64_t kAnchorSamples = 32;
constexpr int kRecent = 5;

double median(std::array<double, kRecent> values, int count) {
  // Insertion by hand: g++ 12 at -O2 sees std::sort read past an array this short.
  for (int i = 1; i < count; ++i) {
    for (int j = i; j > 0 && values[static_cast<std::size_t>(j)] < values[static_cast<std::size_t>(j - 1)];
         --j) {
      std::swap(values[static_cast<std::size_t>(j)], values[static_cast<std::size_t>(j - 1)]);
    }
  }
  const auto middle = static_cast<std::size_t>(count / 2);
  return count % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

LinkDetector::LinkDetector(DetectorOptions options)
    : options_(options), variance_(kPriorDeviation * kPriorDeviation) {}

void LinkDetector::remember(double logRate) {
  recent_[sinceChange_ % kRecent] = logRate;
  ++sinceChange_;
}

double LinkDetector::medianOfLast(int count) const {
  const int have = static_cast<int>(std::min<std::uint64_t>(sinceChange_, static_cast<std::uint64_t>(count)));
  std::array<double, kRecent> values{};
  for (int back = 0; back < have; ++back) {
    values[static_cast<std::size_t>(back)] =
        recent_[(sinceChange_ - 1 - static_cast<std::uint64_t>(back)) % kRecent];
  }
  return median(values, have);
}

std::optional<double> LinkDetector::rate() const {
  if (sinceChange_ == 0) return std::nullopt;
  return std::exp(medianOfLast(kRecent));
}

LinkChange LinkDetector::add(double bytesPerSecond) {
  if (!std::isfinite(bytesPerSecond) || bytesPerSecond <= 0) return LinkChange::kNone;
  const double logRate = std::log(bytesPerSecond);
  remember(logRate);
  if (learnt_ == 0) {
    const int warmup = std::clamp(options_.warmupSamples, 1, kRecent);
    if (sinceChange_ >= static_cast<std::uint64_t>(warmup)) finishWarmup();
    return LinkChange::kNone;
  }
  return weigh(logRate);
}

// Medians, so that one outlier among the first samples spoils neither the reference nor the noise estimate.
void LinkDetector::finishWarmup() {
  const int count = static_cast<int>(std::min<std::uint64_t>(sinceChange_, kRecent));
  reference_ = medianOfLast(count);
  std::array<double, kRecent> deviations{};
  for (int i = 0; i < count; ++i) deviations[static_cast<std::size_t>(i)] = std::abs(recent_[i] - reference_);
  constexpr double kMedianToDeviation = 1.4826;  // of a normal distribution
  const double deviation = kMedianToDeviation * median(deviations, count);
  learnt_ = static_cast<std::uint64_t>(count);
  // What was learnt before a change stays the belief after it: the noise belongs to the way of measuring more
  // than to the rate.
  variance_ = (kPriorWeight * variance_ + count * deviation * deviation) / (kPriorWeight + count);
  anchor_ = reference_;
  down_ = up_ = 0;
}

// Evidence for a change is what both the newest sample and the median of the last three say, so a single
// outlier adds nothing; and one sample adds at most largestStep, so it takes two samples in agreement to
// reach the threshold.
LinkChange LinkDetector::weigh(double logRate) {
  const double variance = std::max(variance_, options_.noiseFloor * options_.noiseFloor);
  const double scale = std::sqrt(variance);
  // A reference that rests on n samples is off by about 1/sqrt(n) itself, sample after sample: not evidence
  // of a change.
  const double slack =
      options_.slack + kReferenceDoubt / std::sqrt(std::min(static_cast<double>(learnt_), kMemory));
  const double middle = medianOfLast(3);
  const double low = (std::max(logRate, middle) - reference_) / scale;   // below zero: both are slower
  const double high = (std::min(logRate, middle) - reference_) / scale;  // above zero: both are faster
  const double step = options_.largestStep;
  down_ = std::max(0.0, down_ + std::min(-low, step) - slack);
  up_ = std::max(0.0, up_ + std::min(high, step) - slack);
  if (down_ > options_.threshold && low < -slack) return restart(LinkChange::kSlower);
  if (up_ > options_.threshold && high > slack) return restart(LinkChange::kFaster);
  if (std::max(down_, up_) > kFreezeShare * options_.threshold) return LinkChange::kNone;
  learn((logRate - reference_) / std::sqrt(variance));
  if (learnt_ < kAnchorSamples) {
    anchor_ = reference_;
    return LinkChange::kNone;
  }
  const double drift = reference_ - anchor_;
  const double tolerated = std::max(std::log1p(options_.driftReport), kReferenceWander * std::sqrt(variance));
  if (std::abs(drift) <= tolerated) return LinkChange::kNone;
  anchor_ = reference_;
  return drift < 0 ? LinkChange::kSlower : LinkChange::kFaster;
}

void LinkDetector::learn(double deviation) {
  const double variance = std::max(variance_, options_.noiseFloor * options_.noiseFloor);
  const double clipped = std::clamp(deviation, -kLearningClip, kLearningClip);
  ++learnt_;
  const double weight = 1 / std::min(static_cast<double>(learnt_), kMemory);
  const double varianceWeight = 1 / std::min(static_cast<double>(learnt_) + kPriorWeight, kMemory);
  reference_ += weight * clipped * std::sqrt(variance);
  variance_ += varianceWeight * (clipped * clipped * variance - variance_);
}

// Keeps those of the last three samples that already lie on the new side: the new reference is known that
// much earlier.
LinkChange LinkDetector::restart(LinkChange change) {
  const double middle = medianOfLast(3);
  std::array<double, 3> kept{};
  std::size_t count = 0;
  for (std::uint64_t back = std::min<std::uint64_t>(3, sinceChange_); back > 0; --back) {
    const double sample = recent_[(sinceChange_ - back) % kRecent];
    if (std::abs(sample - middle) < std::abs(sample - reference_)) kept[count++] = sample;
  }
  sinceChange_ = 0;
  learnt_ = 0;
  for (std::size_t i = 0; i < count; ++i) remember(kept[i]);
  return change;
}

}  // namespace theseus::policy
