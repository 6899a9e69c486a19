// One suite for all transports: ranks are threads of this process.
#include "transport/endpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "transport/job_for_test.h"

namespace theseus::transport::testing {
namespace {

class EveryTransport : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transport, EveryTransport, ::testing::Values("loopback", "shm", "tcp"),
                         [](const auto& tested) { return tested.param; });

struct Outgoing {
  Rank to = 0;
  Channel* channel = nullptr;
  std::uint64_t index = 0;
  std::uint64_t count = 0;
  base::Random sizes{0};
  std::vector<std::vector<std::byte>> payloads{};  // kept until completed
  std::size_t nextBytes = 0;
};

/// Sizes that matter: empty, one byte, around the ring's unit, the largest, and anything between.
std::size_t drawSize(base::Random& random) {
  constexpr std::size_t kSpecial[] = {0, 1, 8, 63, 64, 65, 4096, kSegmentBytesMax - 1, kSegmentBytesMax};
  if (random.chance(0.5)) return kSpecial[random.below(std::size(kSpecial))];
  return random.below(kSegmentBytesMax + 1);
}

void offerNext(Rank self, Outgoing& outgoing) {
  if (outgoing.index == outgoing.count) return;
  if (outgoing.payloads.size() == outgoing.index)
    outgoing.payloads.push_back(pattern(self, outgoing.to, outgoing.index, drawSize(outgoing.sizes)));
  const std::vector<std::byte>& payload = outgoing.payloads.back();
  SegmentHeader header;
  header.sequence = outgoing.index;
  header.bytes = static_cast<std::uint32_t>(payload.size());
  Result<bool> accepted = outgoing.channel->put(header, payload.empty() ? nullptr : payload.data());
  ASSERT_TRUE(accepted.has_value()) << accepted.error().message;
  if (*accepted) ++outgoing.index;
  ASSERT_EQ(outgoing.channel->accepted(), outgoing.index);
  // Whatever is complete may be overwritten at once: a transport that still needs it delivers rubbish.
  ASSERT_LE(outgoing.channel->completed(), outgoing.channel->accepted());
  for (std::uint64_t i = 0; i < outgoing.channel->completed(); ++i) outgoing.payloads[i].clear();
}

/// Every rank sends `count` segments to every other and checks what it gets.
void exchangeEverything(Job& job, std::uint64_t count, double parkChance) {
  const int size = static_cast<int>(job.size());
  std::barrier allDone(size);
  onEveryRank(size, [&](int self) {
    Endpoint& endpoint = *job[static_cast<std::size_t>(self)];
    CheckingHandler handler(self, size, static_cast<std::uint64_t>(self) + 77, parkChance);
    std::vector<Outgoing> outgoing;
    for (Rank to = 0; to < size; ++to) {
      if (to == self) continue;
      Result<Channel*> channel = endpoint.connect(to);
      ASSERT_TRUE(channel.has_value()) << channel.error().message;
      outgoing.push_back({.to = to,
                          .channel = *channel,
                          .count = count,
                          .sizes = base::Random(static_cast<std::uint64_t>(self * 100 + to))});
    }
    Drive drive{.endpoint = endpoint, .handler = handler, .limit = std::chrono::seconds(100), .failure = {}};
    const std::uint64_t expected = count * static_cast<std::uint64_t>(size - 1);
    const bool complete = drive.until([&] {
      bool sent = true;
      for (Outgoing& one : outgoing) {
        offerNext(self, one);
        sent = sent && one.channel->completed() == count;
      }
      return sent && handler.receivedInAll() == expected;
    });
    EXPECT_TRUE(complete) << "rank " << self << ": " << drive.failure.message;
    if (parkChance > 0 && count > 20) {
      EXPECT_GT(handler.parked(), 0u);
    }
    allDone.arrive_and_wait();
  });
}

TEST_P(EveryTransport, DeliversInOrderAndUndamaged) {
  Job job = makeJob(GetParam(), 2);
  ASSERT_EQ(job.size(), 2u);
  exchangeEverything(job, 400, 0);
}

TEST_P(EveryTransport, ParkedSegmentsKeepTheirOrder) {
  Job job = makeJob(GetParam(), 3);
  ASSERT_EQ(job.size(), 3u);
  exchangeEverything(job, 150, 0.3);
}

TEST_P(EveryTransport, EightPeersAllToAll) {
  Job job = makeJob(GetParam(), 8);
  ASSERT_EQ(job.size(), 8u);
  exchangeEverything(job, 40, 0.05);
}

TEST_P(EveryTransport, RefusesWhatCannotBe) {
  Job job = makeJob(GetParam(), 2);
  ASSERT_EQ(job.size(), 2u);
  for (Rank peer : {-1, 0, 2}) {
    Result<Channel*> channel = job[0]->connect(peer);
    ASSERT_FALSE(channel.has_value()) << peer;
    EXPECT_EQ(channel.error().code, ErrorCode::kInvalidArgument);
  }
  Result<Channel*> channel = job[0]->connect(1);
  ASSERT_TRUE(channel.has_value()) << channel.error().message;
  EXPECT_EQ(job[0]->connect(1).value(), *channel) << "the same object for the same peer";
  SegmentHeader tooLarge;
  tooLarge.bytes = kSegmentBytesMax + 1;
  EXPECT_FALSE((*channel)->put(tooLarge, nullptr).has_value());
  EXPECT_FALSE(job[0]->setPeers({"one address only"}).has_value());
}

TEST_P(EveryTransport, BackpressureWhenNobodyReads) {
  Job job = makeJob(GetParam(), 2);
  ASSERT_EQ(job.size(), 2u);
  Result<Channel*> channel = job[0]->connect(1);
  ASSERT_TRUE(channel.has_value());
  CountingHandler sender, receiver;
  receiver.park = true;
  const std::vector<std::byte> payload(kSegmentBytesMax);
  SegmentHeader header;
  header.bytes = kSegmentBytesMax;
  // Rank 1 takes the connection but parks the first segment; what rank 0 can put must be bounded.
  std::uint64_t accepted = 0;
  int refusedInARow = 0;
  const base::TimePoint end = base::SteadyClock::instance().now() + std::chrono::seconds(20);
  while (refusedInARow < 200 && base::SteadyClock::instance().now() < end) {
    Result<bool> put = (*channel)->put(header, payload.data());
    ASSERT_TRUE(put.has_value()) << put.error().message;
    refusedInARow = *put ? 0 : refusedInARow + 1;
    if (*put) ++accepted;
    ASSERT_TRUE(job[0]->progress(sender).has_value());
    ASSERT_TRUE(job[1]->progress(receiver).has_value());
    if (!*put && accepted > 0) job[0]->wait(std::chrono::milliseconds(1));
    if (accepted == 0) refusedInARow = 0;  // still connecting
  }
  EXPECT_GE(accepted, 1u);
  EXPECT_LT(accepted, 200u) << "a stalled receiver must stall the sender: 25 MB have gone somewhere";
  EXPECT_LT((*channel)->completed(), accepted);
  EXPECT_EQ(receiver.segments, 0u);
  receiver.park = false;
  job[1]->resume();
  Drive drive{.endpoint = *job[1], .handler = receiver, .limit = std::chrono::seconds(20), .failure = {}};
  EXPECT_TRUE(drive.until([&] {
    return job[0]->progress(sender).has_value() && receiver.segments == accepted;
  })) << receiver.segments
      << " of " << accepted << " " << drive.failure.message;
  EXPECT_EQ((*channel)->completed(), accepted);
}

TEST_P(EveryTransport, WakeEndsAWaitAndAWaitEndsByItself) {
  Job job = makeJob(GetParam(), 2);
  ASSERT_EQ(job.size(), 2u);
  const base::Clock& clock = base::SteadyClock::instance();
  CountingHandler handler;
  ASSERT_TRUE(job[0]->progress(handler).has_value());
  // Early returns are allowed, so look for one wait that lasts.
  base::Nanoseconds longest{0};
  for (int i = 0; i < 5; ++i) {
    const base::TimePoint start = clock.now();
    job[0]->wait(std::chrono::milliseconds(20));
    longest = std::max(longest, clock.now() - start);
    ASSERT_TRUE(job[0]->progress(handler).has_value());
  }
  EXPECT_GE(longest, std::chrono::milliseconds(19)) << "wait() never sleeps";
  EXPECT_LT(longest, std::chrono::seconds(5));

  // A wake before the wait is not lost.
  job[0]->wake();
  const base::TimePoint start = clock.now();
  job[0]->wait(std::chrono::seconds(20));
  EXPECT_LT(clock.now() - start, std::chrono::seconds(10));

  // A wake during the wait ends it.
  for (int i = 0; i < 20; ++i) {
    std::atomic<bool> woken{false};
    std::thread waker([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(i % 3));
      woken.store(true);
      job[0]->wake();
    });
    const base::TimePoint begin = clock.now();
    while (!woken.load() && clock.now() - begin < std::chrono::seconds(10))
      job[0]->wait(std::chrono::seconds(20));
    EXPECT_LT(clock.now() - begin, std::chrono::seconds(10));
    waker.join();
  }
}

TEST_P(EveryTransport, ASleeperWakesForEverySegment) {
  // Ping-pong in which both sides always sleep first: a lost wake-up shows as a wait of seconds.
  Job job = makeJob(GetParam(), 2);
  ASSERT_EQ(job.size(), 2u);
  std::barrier allDone(2);
  onEveryRank(2, [&](int self) {
    Endpoint& endpoint = *job[static_cast<std::size_t>(self)];
    Channel* channel = endpoint.connect(1 - self).value();
    CountingHandler handler;
    Drive drive{.endpoint = endpoint, .handler = handler, .limit = std::chrono::seconds(60), .failure = {}};
    const base::Clock& clock = base::SteadyClock::instance();
    base::Nanoseconds longest{0};
    SegmentHeader header;
    for (std::uint64_t round = 0; round < 300; ++round) {
      if (self == 0) {
        ASSERT_TRUE(putAll(drive, *channel, header, nullptr)) << drive.failure.message;
      }
      const base::TimePoint start = clock.now();
      while (handler.segments == round) {
        Result<bool> moved = endpoint.progress(handler);
        ASSERT_TRUE(moved.has_value()) << moved.error().message;
        if (!*moved) endpoint.wait(std::chrono::seconds(10));
        ASSERT_LT(clock.now() - start, std::chrono::seconds(30));
      }
      if (round > 0) longest = std::max(longest, clock.now() - start);
      if (self == 1) {
        ASSERT_TRUE(putAll(drive, *channel, header, nullptr)) << drive.failure.message;
      }
    }
    EXPECT_LT(longest, std::chrono::seconds(5)) << "a wake-up was lost";
    // Flush what the last put left queued before anybody leaves.
    EXPECT_TRUE(drive.until([&] { return channel->completed() == channel->accepted(); }));
    allDone.arrive_and_wait();
  });
}

TEST_P(EveryTransport, ASenderWakesWhenRoomAppears) {
  Job job = makeJob(GetParam(), 2);
  ASSERT_EQ(job.size(), 2u);
  constexpr std::uint64_t kSegments = 300;
  std::barrier allDone(2);
  std::atomic<int> slowest{0};
  onEveryRank(2, [&](int self) {
    Endpoint& endpoint = *job[static_cast<std::size_t>(self)];
    CountingHandler handler;
    const std::vector<std::byte> payload(kSegmentBytesMax);
    SegmentHeader header;
    header.bytes = kSegmentBytesMax;
    const base::Clock& clock = base::SteadyClock::instance();
    const base::TimePoint end = clock.now() + std::chrono::seconds(60);
    Channel* channel = self == 0 ? endpoint.connect(1).value() : nullptr;
    std::uint64_t sent = 0;
    auto finished = [&] {
      return self == 0 ? channel->completed() == kSegments : handler.segments == kSegments;
    };
    while (!finished() && clock.now() < end) {
      bool moved = endpoint.progress(handler).value();
      while (self == 0 && sent < kSegments && channel->put(header, payload.data()).value())
        ++sent, moved = true;
      const base::TimePoint start = clock.now();
      if (!moved) endpoint.wait(std::chrono::seconds(10));
      if (clock.now() - start > std::chrono::seconds(5)) ++slowest;
    }
    EXPECT_TRUE(finished());
    allDone.arrive_and_wait();
  });
  EXPECT_EQ(slowest.load(), 0) << "a wake-up was lost";
}

TEST_P(EveryTransport, PutToAClosedPeerFailsAndNamesIt) {
  Job job = makeJob(GetParam(), 3);
  ASSERT_EQ(job.size(), 3u);
  Channel* channel = job[0]->connect(2).value();
  CountingHandler sender, receiver;
  SegmentHeader header;
  Drive drive{.endpoint = *job[0], .handler = sender, .limit = std::chrono::seconds(20), .failure = {}};
  bool sent = false;
  ASSERT_TRUE(drive.until([&] {
    if (!sent) sent = channel->put(header, nullptr).value();
    EXPECT_TRUE(job[2]->progress(receiver).has_value());
    return receiver.segments == 1;
  })) << drive.failure.message;
  job[2].reset();
  Error error;
  const base::TimePoint end = base::SteadyClock::instance().now() + std::chrono::seconds(20);
  while (error.message.empty() && base::SteadyClock::instance().now() < end) {
    Result<bool> put = channel->put(header, nullptr);
    if (!put) error = put.error();
    // An orderly goodbye is no error of the whole endpoint, unless data for the peer was still queued.
    Result<bool> moved = job[0]->progress(sender);
    if (!moved) error = moved.error();
  }
  EXPECT_EQ(error.code, ErrorCode::kTransport);
  EXPECT_NE(error.message.find("rank 2"), std::string::npos) << error.message;
}

TEST_P(EveryTransport, AnOrderlyGoodbyeIsNoError) {
  Job job = makeJob(GetParam(), 2);
  ASSERT_EQ(job.size(), 2u);
  CountingHandler sender, receiver;
  const std::vector<std::byte> payload(1000);
  SegmentHeader header;
  header.bytes = 1000;
  Channel* channel = job[0]->connect(1).value();
  Drive drive{.endpoint = *job[0], .handler = sender, .limit = std::chrono::seconds(20), .failure = {}};
  ASSERT_TRUE(drive.until([&] {
    EXPECT_TRUE(job[1]->progress(receiver).has_value());
    if (channel->accepted() == 0) (void)channel->put(header, payload.data()).value();
    return channel->accepted() == 1 && channel->completed() == 1;
  })) << drive.failure.message;
  job[0].reset();  // what was sent must still arrive
  Drive rest{.endpoint = *job[1], .handler = receiver, .limit = std::chrono::seconds(20), .failure = {}};
  EXPECT_TRUE(rest.until([&] { return receiver.segments == 1; })) << rest.failure.message;
  for (int i = 0; i < 50; ++i) {
    Result<bool> moved = job[1]->progress(receiver);
    EXPECT_TRUE(moved.has_value()) << moved.error().message;
    job[1]->wait(std::chrono::microseconds(200));
  }
}

class RefusingHandler final : public InboundHandler {
 public:
  Result<Placement> onHeader(Rank, const SegmentHeader&) override {
    return fail(ErrorCode::kMismatch, "other call");
  }
  Status onDelivered(Rank, const SegmentHeader&) override { return {}; }
};

TEST_P(EveryTransport, AnErrorOfTheHandlerStopsTheEndpoint) {
  Job job = makeJob(GetParam(), 2);
  ASSERT_EQ(job.size(), 2u);
  Channel* channel = job[0]->connect(1).value();
  CountingHandler sender;
  RefusingHandler receiver;
  Error error;
  const base::TimePoint end = base::SteadyClock::instance().now() + std::chrono::seconds(20);
  while (error.message.empty() && base::SteadyClock::instance().now() < end) {
    if (channel->accepted() == 0) (void)channel->put(SegmentHeader{}, nullptr);
    ASSERT_TRUE(job[0]->progress(sender).has_value());
    Result<bool> moved = job[1]->progress(receiver);
    if (!moved) error = moved.error();
  }
  EXPECT_EQ(error.message, "other call");
  Result<bool> again = job[1]->progress(receiver);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().message, "other call");
}

}  // namespace
}  // namespace theseus::transport::testing
