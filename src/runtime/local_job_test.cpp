#include "runtime/local_job.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/bootstrap.h"
#include "runtime/bootstrap_fixture_for_test.h"

namespace theseus {
namespace {

using namespace std::chrono_literals;
using runtime::makeLocalRendezvous;
using runtime::testing::onThreads;

TEST(LocalJob, ExchangesForOneCommunicatorAfterAnother) {
  constexpr int kSize = 5;
  auto job = makeLocalJob(kSize);
  onThreads(kSize, [&](int rank) {
    for (int communicator = 0; communicator < 3; ++communicator) {
      auto rendezvous = makeLocalRendezvous(job, rank);
      for (int round = 0; round < 20; ++round) {
        const std::string tag = std::to_string(communicator) + "." + std::to_string(round);
        auto all = rendezvous->exchange(tag, tag + "/" + std::to_string(rank));
        ASSERT_TRUE(all) << all.error().message;
        ASSERT_EQ(all->size(), static_cast<std::size_t>(kSize));
        for (int other = 0; other < kSize; ++other)
          EXPECT_EQ((*all)[static_cast<std::size_t>(other)], tag + "/" + std::to_string(other));
      }
    }
  });
}

TEST(LocalJob, MissingRanksAreNamed) {
  auto job = makeLocalJob(4);
  onThreads(4, [&](int rank) {
    if (rank == 1 || rank == 2) return;
    auto all = makeLocalRendezvous(job, rank, 200ms)->exchange("mesh", "");
    ASSERT_FALSE(all);
    EXPECT_EQ(all.error().code, ErrorCode::kTimeout);
    EXPECT_NE(all.error().message.find("ranks 1 and 2 of 4"), std::string::npos) << all.error().message;
  });
}

TEST(LocalJob, RanksOutOfStepAreTold) {
  auto job = makeLocalJob(3);
  onThreads(3, [&](int rank) {
    auto all = makeLocalRendezvous(job, rank)->exchange(rank == 1 ? "b" : "a", "");
    ASSERT_FALSE(all);
    EXPECT_EQ(all.error().code, ErrorCode::kMismatch);
  });
}

TEST(LocalJob, NamesDiffer) { EXPECT_NE(makeLocalJob(1)->name(), makeLocalJob(1)->name()); }

}  // namespace
}  // namespace theseus
