#include "topology/topology.h"

#include <gtest/gtest.h>

namespace theseus::topology {

TEST(Topology, TextRoundTripAndDomains) {
  const Topology topology({{"a", "m1", 2}, {"b", "m2", 4}, {"a", "m1", 2}});
  auto read = parseTopology(toText(topology));
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(*read, topology);
  EXPECT_FALSE(topology.allShareMemory());
  EXPECT_TRUE(topology.shareMemory(0, 2));
  EXPECT_EQ(topology.domains(), (std::vector<std::vector<Rank>>{{0, 2}, {1}}));
}

TEST(Topology, BadTextIsNamed) {
  for (const char* text : {"", "rank 1 domain=x", "rank 0 host=x", "rank 0 domain=x cores=0",
                           "rank 0 domain=x colour=red", "nonsense"}) {
    auto read = parseTopology(text);
    ASSERT_FALSE(read.has_value()) << text;
    EXPECT_FALSE(read.error().message.empty());
  }
}

}  // namespace theseus::topology
