#include "demo_pattern.h"

#include <gtest/gtest.h>

#include <vector>

namespace theseus::demo {
namespace {

std::vector<float> exactSum(std::size_t count, int ranks, std::uint64_t collective) {
  std::vector<float> sum(count, 0.0f);
  std::vector<float> input(count);
  for (int rank = 0; rank < ranks; ++rank) {
    fillPattern(input.data(), count, rank, collective);
    for (std::size_t i = 0; i < count; ++i) sum[i] += input[i];
  }
  return sum;
}

TEST(DemoPattern, TheSumOverAllRanksIsRight) {
  for (const int ranks : {1, 2, 3, 8, 64, kMaxPatternRanks}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{1000}}) {
      EXPECT_EQ(countWrong(exactSum(count, ranks, 7).data(), count, ranks, 7), 0u)
          << ranks << " ranks, " << count;
    }
  }
}

TEST(DemoPattern, TheOrderOfSummationDoesNotMatter) {
  constexpr std::size_t kCount = 500;
  std::vector<float> sum(kCount, 0.0f);
  std::vector<float> input(kCount);
  for (int rank = kMaxPatternRanks - 1; rank >= 0; --rank) {
    fillPattern(input.data(), kCount, rank, 3);
    for (std::size_t i = 0; i < kCount; ++i) sum[i] += input[i];
  }
  EXPECT_EQ(countWrong(sum.data(), kCount, kMaxPatternRanks, 3), 0u);
}

TEST(DemoPattern, OneBitIsNoticed) {
  auto sum = exactSum(200, 8, 1);
  sum[130] = -sum[130];
  sum[199] += 1;
  EXPECT_EQ(countWrong(sum.data(), sum.size(), 8, 1), 2u);
}

TEST(DemoPattern, AnEarlierCollectivesResultIsWrong) {
  const auto stale = exactSum(4096, 8, 10);
  EXPECT_GT(countWrong(stale.data(), stale.size(), 8, 11), 4000u);
}

TEST(DemoPattern, AShiftedChunkIsWrong) {
  auto sum = exactSum(8192, 8, 2);
  std::copy(sum.begin(), sum.begin() + 4096, sum.begin() + 4096);
  EXPECT_GT(countWrong(sum.data(), sum.size(), 8, 2), 4000u);
}

TEST(DemoPattern, ARankLeftOutOrCountedTwiceIsWrong) {
  auto sum = exactSum(256, 4, 5);
  std::vector<float> input(256);
  fillPattern(input.data(), input.size(), 2, 5);
  auto without = sum;
  auto twice = sum;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    without[i] -= input[i];
    twice[i] += input[i];
  }
  EXPECT_EQ(countWrong(without.data(), without.size(), 4, 5), 256u);
  EXPECT_EQ(countWrong(twice.data(), twice.size(), 4, 5), 256u);
}

}  // namespace
}  // namespace theseus::demo
