#include "policy/detector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "base/clock.h"

namespace theseus::policy {
namespace {

/// Rates around a level with relative normal noise; seeded.
class NoisyLink {
 public:
  NoisyLink(std::uint64_t seed, double sigma) : random_(seed), sigma_(sigma) {}
  double sample(double level) {
    const double radius = std::sqrt(-2 * std::log(1 - random_.unit()));
    const double normal = radius * std::cos(2 * std::numbers::pi * random_.unit());
    return level * std::max(0.01, 1 + sigma_ * normal);
  }
  base::Random& random() { return random_; }

 private:
  base::Random random_;
  double sigma_;
};

constexpr double kFull = 119.5e6;

struct Awaited {
  LinkChange change;
  int limit;
};

/// Feeds `level` until a change is seen; the number of samples it took, 0 = not within the limit.
int samplesUntil(LinkDetector& detector, NoisyLink& link, double level, Awaited awaited) {
  for (int sample = 1; sample <= awaited.limit; ++sample) {
    const LinkChange change = detector.add(link.sample(level));
    if (change == awaited.change) return sample;
    EXPECT_EQ(change, LinkChange::kNone);
  }
  return 0;
}

TEST(LinkDetector, HasNoRateBeforeTheFirstSampleAndIgnoresWhatIsNoRate) {
  LinkDetector detector;
  EXPECT_FALSE(detector.rate().has_value());
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_EQ(detector.add(bad), LinkChange::kNone);
    EXPECT_FALSE(detector.rate().has_value());
  }
  detector.add(5e6);
  EXPECT_NEAR(detector.rate().value(), 5e6, 1);
}

TEST(LinkDetector, FindsHalfTheRateWithinThreeSamplesAndTheWayBack) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    NoisyLink link(seed, 0.03);
    LinkDetector detector;
    for (int i = 0; i < 40; ++i)
      ASSERT_EQ(detector.add(link.sample(kFull)), LinkChange::kNone) << "seed " << seed;
    const int down = samplesUntil(detector, link, kFull / 2, {LinkChange::kSlower, 3});
    ASSERT_NE(down, 0) << "seed " << seed;
    EXPECT_NEAR(detector.rate().value() / (kFull / 2), 1, 0.1) << "only samples after the change count";
    for (int i = 0; i < 20; ++i)
      ASSERT_EQ(detector.add(link.sample(kFull / 2)), LinkChange::kNone) << "seed " << seed;
    ASSERT_NE(samplesUntil(detector, link, kFull, {LinkChange::kFaster, 3}), 0) << "seed " << seed;
    EXPECT_NEAR(detector.rate().value() / kFull, 1, 0.1);
  }
}

TEST(LinkDetector, FindsAnEarlyRecovery) {
  NoisyLink link(7, 0.03);
  LinkDetector detector;
  for (int i = 0; i < 10; ++i) detector.add(link.sample(kFull));
  ASSERT_NE(samplesUntil(detector, link, kFull / 2, {LinkChange::kSlower, 3}), 0);
  for (int i = 0; i < 3; ++i) detector.add(link.sample(kFull / 2));
  EXPECT_NE(samplesUntil(detector, link, kFull, {LinkChange::kFaster, 3}), 0);
}

TEST(LinkDetector, FindsAnEighthLessWithinAboutSixSamples) {
  int total = 0;
  int late = 0;
  constexpr int kSeeds = 200;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    NoisyLink link(seed, 0.03);
    LinkDetector detector;
    for (int i = 0; i < 200; ++i) detector.add(link.sample(kFull));
    const int took = samplesUntil(detector, link, kFull * 0.875, {LinkChange::kSlower, 12});
    ASSERT_NE(took, 0) << "seed " << seed;
    total += took;
    late += took > 7 ? 1 : 0;
  }
  EXPECT_LE(static_cast<double>(total) / kSeeds, 6.0);
  EXPECT_LE(late, kSeeds / 10);
}

TEST(LinkDetector, IsSilentOnNoise) {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u, 5u}) {
    NoisyLink link(seed, 0.03);
    LinkDetector detector;
    for (int i = 0; i < 100'000; ++i) {
      ASSERT_EQ(detector.add(link.sample(kFull)), LinkChange::kNone) << "seed " << seed << " sample " << i;
    }
  }
}

TEST(LinkDetector, IsSilentOnLinksQuieterThanTheNoiseFloor) {
  NoisyLink link(3, 0.002);
  LinkDetector detector;
  for (int i = 0; i < 100'000; ++i) ASSERT_EQ(detector.add(link.sample(kFull)), LinkChange::kNone);
}

TEST(LinkDetector, IsSilentOnSingleOutliers) {
  for (const double factor : {0.2, 5.0}) {
    NoisyLink link(11, 0.03);
    LinkDetector detector;
    for (int i = 0; i < 100'000; ++i) {
      const bool outlier = i % 17 == 2;  // one is among the first samples
      const double level = outlier ? kFull * factor : kFull;
      ASSERT_EQ(detector.add(link.sample(level)), LinkChange::kNone)
          << "sample " << i << " factor " << factor;
      if (i > 2) {
        ASSERT_NEAR(detector.rate().value() / kFull, 1, 0.15) << "sample " << i;
      }
    }
  }
}

TEST(LinkDetector, IsSilentOnTwoOutliersInARow) {
  NoisyLink link(12, 0.03);
  LinkDetector detector;
  for (int i = 0; i < 10'000; ++i) {
    const bool outlier = i >= 50 && i % 50 < 2;
    ASSERT_EQ(detector.add(link.sample(outlier ? kFull / 5 : kFull)), LinkChange::kNone) << "sample " << i;
  }
}

TEST(LinkDetector, StillFindsAChangeAfterALongQuietTime) {
  NoisyLink link(5, 0.03);
  LinkDetector detector;
  for (int i = 0; i < 50'000; ++i) detector.add(link.sample(kFull));
  EXPECT_NE(samplesUntil(detector, link, kFull / 2, {LinkChange::kSlower, 3}), 0);
}

TEST(LinkDetector, ReportsACreepThatNoSingleStepBetrays) {
  NoisyLink link(9, 0.01);
  LinkDetector detector;
  double level = kFull;
  int reports = 0;
  for (int i = 0; i < 3000; ++i) {
    level *= 1 - 1e-4;  // a quarter of the rate is gone at the end
    const LinkChange change = detector.add(link.sample(level));
    ASSERT_NE(change, LinkChange::kFaster);
    reports += change == LinkChange::kSlower ? 1 : 0;
  }
  EXPECT_GE(reports, 3);
  EXPECT_LE(reports, 8);
}

TEST(LinkDetector, LearnsTheNoiseOfARoughLink) {
  NoisyLink link(21, 0.15);
  LinkDetector detector;
  int alarms = 0;
  for (int i = 0; i < 20'000; ++i) alarms += detector.add(link.sample(kFull)) != LinkChange::kNone ? 1 : 0;
  EXPECT_LE(alarms, 4) << "false alarms end once the noise is learnt";
  EXPECT_NE(samplesUntil(detector, link, kFull / 4, {LinkChange::kSlower, 8}), 0);
}

}  // namespace
}  // namespace theseus::policy
