#include "discovery/discovery.h"

#include <gtest/gtest.h>

namespace theseus::discovery {

TEST(Discovery, TheSamePlaceTwiceAndItsTextForm) {
  const topology::RankPlace place = discoverPlace();
  EXPECT_EQ(place, discoverPlace());
  EXPECT_GE(place.cores, 1);
  auto read = topology::parseRankPlace(topology::toText(place));
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(*read, place);
}

}  // namespace theseus::discovery
