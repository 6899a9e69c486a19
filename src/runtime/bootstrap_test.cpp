#include "runtime/bootstrap.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <optional>

#include "runtime/bootstrap_fixture_for_test.h"
#include "runtime/bootstrap_rendezvous.h"

namespace theseus::runtime {
namespace {

using namespace std::chrono_literals;
using namespace testing;
using Clock = std::chrono::steady_clock;

/// Every rank of `options.size` except `absent` joins; gives each rank's outcome.
std::vector<std::optional<Error>> joinAll(const CommunicatorOptions& options,
                                          const std::vector<int>& absent = {}) {
  std::vector<std::optional<Error>> errors(static_cast<std::size_t>(options.size));
  onThreads(options.size, [&](int rank) {
    if (std::find(absent.begin(), absent.end(), rank) != absent.end()) return;
    CommunicatorOptions own = options;
    own.rank = rank;
    auto joined = makeTcpRendezvous(own);
    if (!joined) errors[static_cast<std::size_t>(rank)] = joined.error();
  });
  return errors;
}

void expectContains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

class Sizes : public ::testing::TestWithParam<int> {};

TEST_P(Sizes, EveryRankGetsAllBlobsAgainAndAgain) {
  const int size = GetParam();
  const CommunicatorOptions options = jobOptions(size, freePortRange(kRendezvousPorts));
  onThreads(size, [&](int rank) {
    CommunicatorOptions own = options;
    own.rank = rank;
    auto joined = makeTcpRendezvous(own);
    ASSERT_TRUE(joined) << joined.error().message;
    for (int round = 0; round < 5; ++round) {
      // Lengths differ, from none to more than a socket takes at once.
      const std::string blob(static_cast<std::size_t>(rank) * (round == 3 ? 300'000u : 10u),
                             static_cast<char>('a' + rank));
      auto all = (*joined)->exchange("round " + std::to_string(round), blob);
      ASSERT_TRUE(all) << all.error().message;
      ASSERT_EQ(static_cast<int>(all->size()), size);
      for (int other = 0; other < size; ++other) {
        const std::string expected(static_cast<std::size_t>(other) * (round == 3 ? 300'000u : 10u),
                                   static_cast<char>('a' + other));
        EXPECT_TRUE((*all)[static_cast<std::size_t>(other)] == expected)
            << "round " << round << " blob of rank " << other;
      }
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Rendezvous, Sizes, ::testing::Values(1, 2, 3, 8));

TEST(Rendezvous, MissingRanksAreNamedOnEveryRank) {
  const auto errors = joinAll(jobOptions(8, freePortRange(kRendezvousPorts), 1500ms), {3, 5});
  for (int rank : {0, 1, 2, 4, 6, 7}) {
    ASSERT_TRUE(errors[static_cast<std::size_t>(rank)]) << rank;
    EXPECT_EQ(errors[static_cast<std::size_t>(rank)]->code, ErrorCode::kTimeout);
    expectContains(errors[static_cast<std::size_t>(rank)]->message, "ranks 3 and 5 of 8 did not join");
  }
}

TEST(Rendezvous, AMissingMasterIsAnErrorInTime) {
  const auto begin = Clock::now();
  const auto errors = joinAll(jobOptions(2, freePortRange(kRendezvousPorts), 700ms), {0});
  EXPECT_LT(Clock::now() - begin, 10s);
  ASSERT_TRUE(errors[1]);
  EXPECT_EQ(errors[1]->code, ErrorCode::kTimeout);
  expectContains(errors[1]->message, "did not find rank 0");
}

TEST(Rendezvous, WrongSecretIsToldOnBothSides) {
  CommunicatorOptions options = jobOptions(3, freePortRange(kRendezvousPorts), 1500ms);
  std::vector<std::string> messages(3);
  onThreads(3, [&](int rank) {
    CommunicatorOptions own = options;
    own.rank = rank;
    if (rank == 2) own.secret = "guess";
    auto joined = makeTcpRendezvous(own);
    ASSERT_FALSE(joined);
    messages[static_cast<std::size_t>(rank)] = joined.error().message;
  });
  expectContains(messages[0], "rank 2 of 3 did not join");
  expectContains(messages[0], "the secrets differ");
  expectContains(messages[1], "rank 2 of 3 did not join");
  expectContains(messages[2], "the secrets differ");
}

TEST(Rendezvous, TwoProcessesWithOneNumberFailAtOnce) {
  const CommunicatorOptions options = jobOptions(4, freePortRange(kRendezvousPorts));
  std::vector<std::string> messages(4);
  const auto begin = Clock::now();
  onThreads(4, [&](int thread) {
    CommunicatorOptions own = options;
    own.rank = thread == 3 ? 2 : thread;  // nobody is rank 3
    auto joined = makeTcpRendezvous(own);
    ASSERT_FALSE(joined);
    messages[static_cast<std::size_t>(thread)] = joined.error().message;
  });
  EXPECT_LT(Clock::now() - begin, 15s);  // long before the time-out of 20 s and its grace
  for (int thread : {0, 1, 2, 3})
    expectContains(messages[static_cast<std::size_t>(thread)], "two processes claim to be rank 2");
}

TEST(Rendezvous, DifferentSizesFailAtOnce) {
  const CommunicatorOptions options = jobOptions(2, freePortRange(kRendezvousPorts));
  std::vector<std::string> messages(2);
  onThreads(2, [&](int rank) {
    CommunicatorOptions own = options;
    own.rank = rank;
    own.size = 2 + rank;
    auto joined = makeTcpRendezvous(own);
    ASSERT_FALSE(joined);
    messages[static_cast<std::size_t>(rank)] = joined.error().message;
  });
  expectContains(messages[0], "rank 1 says that the job has 3 ranks, rank 0 says 2");
  expectContains(messages[1], "WORLD_SIZE");
}

TEST(Rendezvous, RanksOutOfStepAreTold) {
  const CommunicatorOptions options = jobOptions(3, freePortRange(kRendezvousPorts));
  onThreads(3, [&](int rank) {
    CommunicatorOptions own = options;
    own.rank = rank;
    auto joined = makeTcpRendezvous(own);
    ASSERT_TRUE(joined) << joined.error().message;
    auto all = (*joined)->exchange(rank == 2 ? "endpoint" : "mesh", "");
    ASSERT_FALSE(all);
    EXPECT_EQ(all.error().code, ErrorCode::kMismatch);
    expectContains(all.error().message, "out of step");
    EXPECT_FALSE((*joined)->exchange("later", ""));  // and it stays broken
  });
}

TEST(Rendezvous, ARankThatLeavesEndsTheExchangeOfAllAtOnce) {
  const CommunicatorOptions options = jobOptions(4, freePortRange(kRendezvousPorts));
  const auto begin = Clock::now();
  onThreads(4, [&](int rank) {
    CommunicatorOptions own = options;
    own.rank = rank;
    auto joined = makeTcpRendezvous(own);
    ASSERT_TRUE(joined) << joined.error().message;
    if (rank == 3) return;
    auto all = (*joined)->exchange("mesh", "");
    ASSERT_FALSE(all);
    expectContains(all.error().message, "rank 3");
  });
  EXPECT_LT(Clock::now() - begin, 15s);
}

TEST(Rendezvous, ALateRankInAnExchangeIsNamed) {
  const CommunicatorOptions options = jobOptions(3, freePortRange(kRendezvousPorts), 1000ms);
  std::atomic<int> failed{0};
  onThreads(3, [&](int rank) {
    CommunicatorOptions own = options;
    own.rank = rank;
    auto joined = makeTcpRendezvous(own);
    ASSERT_TRUE(joined) << joined.error().message;
    if (rank == 1) {
      while (failed < 2) std::this_thread::yield();  // there, but never calls
      return;
    }
    auto all = (*joined)->exchange("mesh", "");
    ++failed;
    ASSERT_FALSE(all);
    expectContains(all.error().message, "rank 1 of 3 did not reach exchange \"mesh\"");
  });
}

TEST(Rendezvous, TakenPortsAreSkippedAndStrangersThereAreNotMistakenForRankZero) {
  const int port = freePortRange(kRendezvousPorts);
  auto first =
      listenOn(*parseNumericAddress("127.0.0.1", port));  // silent: accepts in the kernel, never answers
  ASSERT_TRUE(first && *first);
  for (const auto& error : joinAll(jobOptions(3, port))) EXPECT_FALSE(error) << error->message;
}

TEST(Rendezvous, AllPortsTakenIsAClearError) {
  const int port = freePortRange(kRendezvousPorts);
  std::vector<Descriptor> taken;
  for (int i = 0; i < kRendezvousPorts; ++i) {
    auto socket = listenOn(*parseNumericAddress("127.0.0.1", port + i));
    ASSERT_TRUE(socket && *socket);
    taken.push_back(std::move(**socket));
  }
  auto joined = makeTcpRendezvous(jobOptions(2, port));
  ASSERT_FALSE(joined);
  expectContains(joined.error().message, "in use by other programs");
}

TEST(Rendezvous, ASecondRankZeroIsAnError) {
  const CommunicatorOptions options = jobOptions(2, freePortRange(kRendezvousPorts), 8000ms);
  std::thread first([&] { EXPECT_FALSE(makeTcpRendezvous(options)); });
  connectBlocking(options.masterPort);  // it listens now
  auto second = makeTcpRendezvous(options);
  first.join();
  ASSERT_FALSE(second);
  expectContains(second.error().message, "already rank 0");
}

TEST(Rendezvous, NonsenseOptionsAreRefused) {
  for (int bad = 0; bad < 4; ++bad) {
    CommunicatorOptions options = jobOptions(2, 29500);
    if (bad == 0) options.rank = 2;
    if (bad == 1) options.size = 0;
    if (bad == 2) options.masterPort = 70000;
    if (bad == 3) options.timeout = 0ms;
    auto joined = makeTcpRendezvous(options);
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Rendezvous, StrangersOfAllKindsDoNotDelayTheJob) {
  const CommunicatorOptions options = jobOptions(4, freePortRange(kRendezvousPorts));
  std::vector<std::optional<Error>> errors(4);
  std::atomic<bool> strangersAreIn{false};
  std::vector<Descriptor> strangers;
  Clock::time_point joinBegins, joinEnds;
  std::thread crowd([&] {
    // The port scanner that hangs up, HTTP, TLS, garbage, half a hello, and silence.
    const std::string half =
        Hello(Hello::Side::kConnector, {HelloPurpose::kRendezvous, 1, 4, options.masterPort}, "x")
            .takeOutput()
            .substr(0, 20);
    for (const std::string& text :
         {std::string(), std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
          std::string("\x16\x03\x01\x02\x00", 5), std::string(100'000, '\xff'), half, std::string("TH")}) {
      for (int i = 0; i < 5; ++i) {
        strangers.push_back(connectBlocking(options.masterPort));
        sendText(strangers.back(), text);
      }
      connectBlocking(options.masterPort);
    }
    strangersAreIn = true;
  });
  onThreads(4, [&](int rank) {
    while (rank != 0 && !strangersAreIn) std::this_thread::yield();
    if (rank == 1) joinBegins = Clock::now();
    CommunicatorOptions own = options;
    own.rank = rank;
    auto joined = makeTcpRendezvous(own);
    if (!joined) errors[static_cast<std::size_t>(rank)] = joined.error();
    if (rank == 1) joinEnds = Clock::now();
  });
  crowd.join();
  for (const auto& error : errors) EXPECT_FALSE(error) << error->message;
  EXPECT_LT(joinEnds - joinBegins, 4s);  // less than the time that one silent stranger is given
}

TEST(Rendezvous, AThousandSilentStrangersDoNotKeepTheJobOut) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, 4096);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur < 2500) GTEST_SKIP() << "needs 2500 open files, the limit is " << limit.rlim_cur;
  const CommunicatorOptions options = jobOptions(3, freePortRange(kRendezvousPorts));
  std::atomic<bool> strangersAreIn{false};
  std::vector<Descriptor> strangers;
  std::vector<std::optional<Error>> errors(3);
  std::thread crowd([&] {
    for (int i = 0; i < 1000; ++i) strangers.push_back(connectBlocking(options.masterPort));
    strangersAreIn = true;
  });
  onThreads(3, [&](int rank) {
    while (rank != 0 && !strangersAreIn) std::this_thread::yield();
    CommunicatorOptions own = options;
    own.rank = rank;
    auto joined = makeTcpRendezvous(own);
    if (!joined) errors[static_cast<std::size_t>(rank)] = joined.error();
  });
  crowd.join();
  for (const auto& error : errors) EXPECT_FALSE(error) << error->message;
}

TEST(RankList, Reads) {
  EXPECT_EQ(rankList({3}), "rank 3");
  EXPECT_EQ(rankList({3, 5}), "ranks 3 and 5");
  EXPECT_EQ(rankList({1, 2, 3}), "ranks 1, 2 and 3");
  std::vector<Rank> many(20);
  for (int i = 0; i < 20; ++i) many[static_cast<std::size_t>(i)] = i;
  EXPECT_NE(rankList(many).find("and 4 more"), std::string::npos);
}

TEST(Frames, LargerThanAllowedIsRefused) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Descriptor other(ends[1]);
  FramedStream stream(Descriptor(ends[0]), 1000);
  sendText(other, std::string("\xe9\x03\x00\x00\x01", 5));  // 1001 bytes
  ASSERT_TRUE(stream.fill());
  EXPECT_FALSE(stream.nextFrame());
}

TEST(Addresses, ReadAndWritten) {
  EXPECT_EQ(endpointText(*parseEndpointText("10.1.2.3:80")), "10.1.2.3:80");
  EXPECT_EQ(endpointText(*parseEndpointText("[::1]:80")), "[::1]:80");
  for (const char* bad : {"", "10.1.2.3", "10.1.2.3:", "10.1.2.3:0", "10.1.2.3:65536", "10.1.2.3:8x",
                          "host.example:80", "[::1:80"}) {
    EXPECT_FALSE(parseEndpointText(bad)) << bad;
  }
  EXPECT_TRUE(namesLoopback("localhost"));
  EXPECT_TRUE(namesLoopback("127.0.0.9"));
  EXPECT_TRUE(namesLoopback("::1"));
  EXPECT_FALSE(namesLoopback("10.0.0.1"));
}

}  // namespace
}  // namespace theseus::runtime
