#include "synth/generators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "schedule/verify/verify.h"

namespace theseus::synth {
namespace {

using testing::HasSubstr;

TEST(Generators, EveryOneMakesVerifiedSchedulesForEveryRankCount) {
  for (const GeneratorInfo& info : generators()) {
    for (const Collective collective : info.collectives) {
      for (int ranks = info.minRanks; ranks <= 17; ++ranks) {
        const GeneratorCall call{info.name, collective, ranks, {}};
        const auto schedule = generate(call);
        ASSERT_TRUE(schedule.has_value()) << toText(call) << ": " << schedule.error().message;
        EXPECT_EQ(schedule->rankCount(), ranks);
        EXPECT_EQ(schedule->collective(), collective);
        const auto verdict = schedule::verify(*schedule);
        EXPECT_TRUE(verdict.meaningChecked) << toText(call);
        EXPECT_TRUE(verdict.tailSynchronized) << toText(call);
      }
    }
  }
}

}  // namespace
}  // namespace theseus::synth
