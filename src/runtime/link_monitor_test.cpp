#include "runtime/link_monitor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/clock.h"

namespace theseus::runtime {
namespace {

constexpr double kFast = 119e6;
constexpr double kSlow = 59.5e6;

transport::LinkUse use(double rate, double busySeconds) {
  const auto busy = std::chrono::duration_cast<base::Nanoseconds>(std::chrono::duration<double>(busySeconds));
  return {static_cast<std::uint64_t>(rate * busySeconds), busy};
}

transport::LinkSample sample(double rate, double busySeconds) {
  transport::LinkSample links;
  links.egress = use(rate, busySeconds);
  links.toPeer.resize(4);
  links.toPeer[1] = links.egress;
  return links;
}

TEST(LinkMonitor, ReportsRatesAndTheDrop) {
  LinkMonitor monitor(0, 4);
  EXPECT_FALSE(monitor.rates().has_value());
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(monitor.add(0, sample(kFast, 0.2), 0.25));
  ASSERT_TRUE(monitor.rates().has_value());
  EXPECT_NEAR((*monitor.rates())[0], kFast, 1e6);
  EXPECT_NEAR((*monitor.rates())[1], kFast, 1e6);
  EXPECT_TRUE(std::isnan((*monitor.rates())[2]));
  int samples = 0;
  while (!monitor.add(0, sample(kSlow, 0.45), 0.5))
    ASSERT_LT(++samples, 4) << "a halved link must be noticed within a few collectives";
  EXPECT_NEAR((*monitor.rates())[0], kSlow, 1e6);
}

TEST(LinkMonitor, SmallOrShortBurstsSayNothing) {
  LinkMonitor monitor(0, 4);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(monitor.add(0, sample(kFast, 0.002), 0.25));
  EXPECT_FALSE(monitor.rates().has_value());
}

TEST(LinkMonitor, ALinkThatIsSparedIsTakenForHealedOnceItsOldBoundIsBroken) {
  LinkMonitor monitor(0, 4);
  for (int i = 0; i < 6; ++i) monitor.add(0, sample(kFast, 0.2), 0.25);
  monitor.restart();
  // Another schedule, made for the slow link: it is what everything waits for.
  for (int i = 0; i < 8; ++i) monitor.add(7, sample(kSlow, 0.28), 0.31);
  EXPECT_NEAR((*monitor.rates())[0], kSlow, 1e6);
  // Healed: bursts end early, and TCP never gets up to speed; the lower bound alone would not look healthy.
  bool changed = false;
  for (int i = 0; i < 6; ++i) changed |= monitor.add(7, sample(1.3 * kSlow, 0.15), 0.29);
  EXPECT_TRUE(changed);
  EXPECT_NEAR((*monitor.rates())[0], kFast, 1e6);
}

TEST(LinkMonitor, TheOldBoundStaysKnownWhenTheTableChangesForOtherSizes) {
  LinkMonitor monitor(0, 4);
  for (int i = 0; i < 6; ++i) monitor.add(0, sample(kFast, 0.2), 0.25);
  monitor.restart();
  for (int i = 0; i < 8; ++i) monitor.add(7, sample(kSlow, 0.28), 0.31);
  monitor.add(7, sample(1.3 * kSlow, 0.15), 0.29);
  monitor.restart();  // slot 7 is still in force
  bool changed = false;
  for (int i = 0; i < 6; ++i) changed |= monitor.add(7, sample(1.3 * kSlow, 0.15), 0.29);
  EXPECT_TRUE(changed);
  EXPECT_NEAR((*monitor.rates())[0], kFast, 1e6);
  monitor.restart();
  for (int i = 0; i < 6; ++i) monitor.add(7, sample(1.3 * kSlow, 0.15), 0.29);
  EXPECT_NEAR((*monitor.rates())[0], kFast, 1e6) << "until the link is seen in full use, the hope stands";
}

TEST(LinkMonitor, AVainHopeIsNotReportedAgainAtOnce) {
  LinkMonitor monitor(0, 4);
  for (int i = 0; i < 6; ++i) monitor.add(0, sample(kFast, 0.2), 0.25);
  monitor.restart();
  for (int i = 0; i < 8; ++i) monitor.add(7, sample(kSlow, 0.28), 0.31);
  for (int i = 0; i < 6; ++i) monitor.add(7, sample(1.3 * kSlow, 0.15), 0.29);
  monitor.restart();
  for (int i = 0; i < 4; ++i) monitor.add(0, sample(kSlow, 0.45), 0.5);
  EXPECT_NEAR((*monitor.rates())[0], kSlow, 1e6);
  monitor.restart();
  for (int i = 0; i < 4; ++i) monitor.add(7, sample(1.3 * kSlow, 0.15), 0.29);
  EXPECT_LT((*monitor.rates())[0], 1.4 * kSlow);
}

TEST(LinkMonitor, AStarvedProcessIsNotAHealedLink) {
  LinkMonitor monitor(0, 4);
  for (int i = 0; i < 6; ++i) monitor.add(0, sample(kFast, 0.2), 0.25);
  monitor.restart();
  for (int i = 0; i < 8; ++i) monitor.add(7, sample(kSlow, 0.28), 0.31);
  // The link idles because nobody fills it, but what it carries it carries as slowly as before.
  for (int i = 0; i < 50; ++i) monitor.add(7, sample(kSlow, 0.28), 0.6);
  EXPECT_NEAR((*monitor.rates())[0], kSlow, 1e6);
}

}  // namespace
}  // namespace theseus::runtime
