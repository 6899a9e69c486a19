#include "runtime/epoch_board.h"

#include <gtest/gtest.h>

namespace theseus::runtime {

TEST(EpochBoard, LatestRoundWhoseSwitchPointIsReached) {
  EpochBoard board({0, 0, nullptr});
  EXPECT_EQ(board.find(0).round, 0u);
  board.publish({1, 110, nullptr});
  board.publish({2, 103, nullptr});  // less slack: overtakes round 1
  EXPECT_EQ(board.find(102).round, 0u);
  EXPECT_EQ(board.find(105).round, 2u);
  EXPECT_EQ(board.find(110).round, 2u);
  board.publish({3, 200, nullptr});
  EXPECT_EQ(board.find(199).round, 2u);
  EXPECT_EQ(board.find(200).round, 3u);
  EXPECT_EQ(board.newest().round, 3u);
}

TEST(EpochBoard, PublicationsBetweenTwoReadsAreAllSeen) {
  EpochBoard board({0, 0, nullptr});
  for (Round round = 1; round <= 50; ++round) board.publish({round, round * 10, nullptr});
  EXPECT_EQ(board.find(255).round, 25u);
  EXPECT_EQ(board.find(500).round, 50u);
}

}  // namespace theseus::runtime
