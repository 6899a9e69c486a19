#include "policy/force.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace theseus::policy {
namespace {

using ::testing::HasSubstr;

TEST(Force, TravelsAsText) {
  Force force;
  force.collective = Collective::kAllGather;
  force.schedule = "straggler_aware(rank=3,ratio=2)";
  force.minBytes = 1 << 20;
  force.maxBytes = 1 << 30;
  EXPECT_EQ(
      encodeForce(force),
      "collective=allgather min_bytes=1048576 max_bytes=1073741824 schedule=straggler_aware(rank=3,ratio=2)");
  for (const std::string schedule : {"auto", "ring", "my ring for 8", "0123456789abcdef0123456789abcdef"}) {
    force.schedule = schedule;
    EXPECT_EQ(parseForce(encodeForce(force)).value(), force);
  }
}

TEST(Force, KeysComeInAnyOrder) {
  Force expected;
  expected.schedule = "two words";
  expected.minBytes = 5;
  EXPECT_EQ(parseForce("schedule=two words min_bytes=5 collective=allreduce").value(), expected);
  EXPECT_EQ(encodeForce(Force{}), "collective=allreduce schedule=auto");
}

TEST(Force, ErrorsNameTheWord) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "collective= is missing"},
      {"collective=allreduce", "schedule= is missing"},
      {"schedule=ring", "collective= is missing"},
      {"collective=allreduce schedule=", "schedule= is empty"},
      {"collective=sumall schedule=ring", "'sumall'"},
      {"collective=allreduce collective=reduce schedule=ring", "collective= appears twice"},
      {"collective=allreduce min_bytes=x schedule=ring", "min_bytes=x"},
      {"collective=allreduce min_bytes=-1 schedule=ring", "min_bytes=-1"},
      {"collective=allreduce min_bytes=9 max_bytes=8 schedule=ring", "above max_bytes=8"},
      {"collective=allreduce bytes=3 schedule=ring", "'bytes=3'"},
      {"now collective=allreduce schedule=ring", "'now'"},
  };
  for (const auto& [content, expected] : cases) {
    const auto force = parseForce(content);
    ASSERT_FALSE(force.has_value()) << content;
    EXPECT_EQ(force.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(force.error().message, HasSubstr(expected)) << content;
  }
}

}  // namespace
}  // namespace theseus::policy
