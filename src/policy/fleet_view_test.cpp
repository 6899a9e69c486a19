#include "policy/fleet_view.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/clock.h"

namespace theseus::policy {
namespace {

const double kUnknown = std::nan("");

TEST(Quantise, TakesTheNearestLevel) {
  for (int level = 0; level < kSlownessLevelCount; ++level) {
    for (int current = 0; current < kSlownessLevelCount; ++current) {
      EXPECT_EQ(quantise(kSlownessLevels[level], current), level) << "from " << current;
    }
  }
  EXPECT_EQ(quantise(0.5, 3), 0) << "faster than its peers is healthy";
  EXPECT_EQ(quantise(1000, 0), kSlownessLevelCount - 1);
}

TEST(Quantise, IsSlowToEnterAndSlowToLeave) {
  EXPECT_EQ(quantise(1.10, 0), 0);
  EXPECT_EQ(quantise(1.11, 0), 1);
  EXPECT_EQ(quantise(1.05, 1), 1);
  EXPECT_EQ(quantise(1.03, 1), 0);
}

TEST(Quantise, HasNoRatioThatFlaps) {
  for (double ratio = 0.9; ratio < 9; ratio *= 1.003) {
    for (int current = 0; current < kSlownessLevelCount; ++current) {
      const int level = quantise(ratio, current);
      EXPECT_EQ(quantise(ratio, level), level);
      EXPECT_EQ(quantise(ratio * 1.01, level), quantise(ratio * 1.01, quantise(ratio * 1.01, level)));
    }
  }
}

TEST(FleetView, FindsTheRankBehindItsPeers) {
  FleetView fleet(4);
  EXPECT_FALSE(fleet.worst().has_value());
  EXPECT_FALSE(fleet.healthyBytesPerSecond().has_value());
  const double rates[] = {119e6, 120e6, 59.8e6, 121e6};
  fleet.update(rates);
  const auto worst = fleet.worst();
  ASSERT_TRUE(worst.has_value());
  EXPECT_EQ(worst->rank, 2);
  EXPECT_EQ(worst->ratio, 2);
  EXPECT_EQ(worst->bytesPerSecond, 59.8e6);
  EXPECT_EQ(worst->peerBytesPerSecond, 120e6);
  EXPECT_EQ(fleet.healthyBytesPerSecond(), 120e6);
  EXPECT_EQ(fleet.ratio(0), 1);
  const double healed[] = {119e6, 120e6, 118e6, 121e6};
  fleet.update(healed);
  EXPECT_FALSE(fleet.worst().has_value());
}

TEST(FleetView, AllSlowTogetherIsNobodysFault) {
  FleetView fleet(4);
  const double full[] = {100e6, 100e6, 100e6, 100e6};
  const double half[] = {50e6, 51e6, 49e6, 50e6};
  fleet.update(full);
  fleet.update(half);
  EXPECT_TRUE(fleet.stragglers().empty());
  EXPECT_EQ(fleet.healthyBytesPerSecond(), 50e6);
}

TEST(FleetView, TwoRanksAreMeasuredByTheFaster) {
  FleetView fleet(2);
  const double rates[] = {100e6, 50e6};
  fleet.update(rates);
  EXPECT_EQ(fleet.ratio(0), 1);
  EXPECT_EQ(fleet.ratio(1), 2);
}

TEST(FleetView, KeepsTheWorstAmongEquals) {
  FleetView fleet(6);
  const double first[] = {100, 100, 100, 100, 50, 100};
  fleet.update(first);
  ASSERT_EQ(fleet.worst()->rank, 4);
  const double both[] = {100, 49, 100, 100, 50, 100};
  fleet.update(both);
  EXPECT_EQ(fleet.worst()->rank, 4);
  EXPECT_EQ(fleet.stragglers().size(), 2u);
  const double worse[] = {100, 25, 100, 100, 50, 100};
  fleet.update(worse);
  EXPECT_EQ(fleet.worst()->rank, 1);
}

TEST(FleetView, UnknownRanksStayWhatTheyWere) {
  FleetView fleet(4);
  const double rates[] = {kUnknown, 100, 50};  // shorter than the fleet
  fleet.update(rates);
  EXPECT_EQ(fleet.ratio(0), 1);
  EXPECT_EQ(fleet.ratio(3), 1);
  EXPECT_EQ(fleet.worst()->rank, 2);
  const double nothing[] = {kUnknown, -1, 0, HUGE_VAL};
  fleet.update(nothing);
  EXPECT_EQ(fleet.worst()->rank, 2) << "nothing was learnt, so nothing changed";
  EXPECT_EQ(fleet.healthyBytesPerSecond(), 100) << "the last known one";
  const double healed[] = {100, 100, 100, kUnknown};
  fleet.update(healed);
  EXPECT_FALSE(fleet.worst().has_value());
}

TEST(FleetView, HealthyRateFollowsOnlyRealChanges) {
  FleetView fleet(3);
  base::Random random(1);
  const double start[] = {100, 100, 100};
  fleet.update(start);
  for (int round = 0; round < 1000; ++round) {
    const double rates[] = {97 + 6 * random.unit(), 97 + 6 * random.unit(), 97 + 6 * random.unit()};
    fleet.update(rates);
    ASSERT_EQ(fleet.healthyBytesPerSecond(), 100);
    ASSERT_TRUE(fleet.stragglers().empty());
  }
}

}  // namespace
}  // namespace theseus::policy
