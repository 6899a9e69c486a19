#include "control/agreement.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/clock.h"

namespace theseus::control {
namespace {

const VectorShape kShape{{}, 8};

RoundVector ownVector(Rank rank) {
  RoundVector vector;
  vector.limit = static_cast<SequenceNumber>(100 + rank);
  vector.version = static_cast<std::uint64_t>(1000 - rank);
  vector.ready.reset(static_cast<std::size_t>(rank % kScheduleSlots));
  return vector;
}

/// Ranks that exchange messages in an order drawn by `random`, each message up to three times.
class Exchange {
 public:
  Exchange(int size, base::Random& random) : random_(random) {
    for (Rank rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<Agreement>(rank, size));
    results.resize(ranks.size());
  }
  void begin(Rank rank) {
    ranks[static_cast<std::size_t>(rank)]->begin(ownVector(rank), 0);
    advance(rank);
  }
  void settle() {
    while (!messages_.empty()) {
      const std::size_t place = random_.below(messages_.size());
      std::swap(messages_[place], messages_.back());
      const Pending pending = messages_.back();
      if (random_.chance(0.7)) messages_.pop_back();
      Agreement& to = *ranks[static_cast<std::size_t>(pending.to)];
      const Status status = to.accept(pending.from, pending.message, {0, pending.message.step});
      ASSERT_TRUE(status) << status.error().message;
      if (to.begunElsewhere()) to.begin(ownVector(pending.to), 0);
      advance(pending.to);
    }
  }
  std::vector<std::unique_ptr<Agreement>> ranks;
  std::vector<std::vector<RoundVector>> results;

 private:
  struct Pending {
    Rank from, to;
    RoundMessage message;
  };
  void advance(Rank rank) {
    auto progress = ranks[static_cast<std::size_t>(rank)]->advance(
        kShape, [&](Rank to, const RoundStep& step, const RoundVector& vector) {
          messages_.push_back({rank, to, {step.round, step.step, step.layout, vector}});
        });
    ASSERT_TRUE(progress);
    if (*progress) results[static_cast<std::size_t>(rank)].push_back(**progress);
  }
  base::Random& random_;
  std::vector<Pending> messages_;
};

TEST(Agreement, EveryRankGetsTheJoinOfAllForEverySize) {
  base::Random random(1);
  for (int size = 1; size <= 67; ++size) {
    Exchange exchange(size, random);
    const auto starter = static_cast<Rank>(random.below(static_cast<std::uint64_t>(size)));
    for (int round = 0; round < 2; ++round) {
      exchange.begin(starter);
      exchange.settle();
    }
    RoundVector expected = ownVector(0);
    for (Rank rank = 1; rank < size; ++rank) joinInto(expected, ownVector(rank), kShape);
    for (const auto& results : exchange.results) {
      ASSERT_EQ(results.size(), 2u) << "size " << size;
      EXPECT_EQ(results[0], expected);
      EXPECT_EQ(results[1], expected);
    }
  }
}

RoundMessage messageOf(Round round, std::uint32_t step) { return {round, step, 0, ownVector(1)}; }

TEST(Agreement, ImpossibleMessagesAreRefusedAndChangeNothing) {
  Agreement rank(2, 5);  // steps 0, 1, 2 come from ranks 1, 0, 3
  EXPECT_FALSE(rank.accept(0, messageOf(1, 0), {})) << "wrong sender of step 0";
  EXPECT_FALSE(rank.accept(1, messageOf(1, 3), {})) << "no such step";
  EXPECT_FALSE(rank.accept(1, messageOf(2, 0), {}))
      << "nobody can be in round 2 before this rank joins round 1";
  EXPECT_FALSE(rank.begunElsewhere());
  ASSERT_TRUE(rank.accept(1, messageOf(1, 0), {1, 1}));
  EXPECT_TRUE(rank.begunElsewhere());
  EXPECT_TRUE(rank.accept(1, messageOf(1, 0), {1, 1})) << "a repetition";
  const Status different = rank.accept(1, messageOf(1, 0), {1, 2});
  ASSERT_FALSE(different);
  EXPECT_EQ(different.error().code, ErrorCode::kMismatch);
  rank.begin(ownVector(2), 0);
  EXPECT_TRUE(rank.accept(1, messageOf(2, 0), {})) << "whoever completed round 1 may be in round 2 now";
  EXPECT_FALSE(rank.accept(1, messageOf(3, 0), {}));
}

TEST(Agreement, OldMessagesDoNothing) {
  Agreement rank(0, 2);
  rank.begin(ownVector(0), 0);
  ASSERT_TRUE(rank.accept(1, messageOf(1, 0), {}));
  auto progress = rank.advance(kShape, [](Rank, const RoundStep&, const RoundVector&) {});
  ASSERT_TRUE(progress && progress->has_value());
  EXPECT_EQ(rank.completed(), 1u);
  EXPECT_TRUE(rank.accept(1, messageOf(1, 0), {9, 9}));
  EXPECT_FALSE(rank.begunElsewhere());
}

TEST(Agreement, DifferentAttributeLayoutsAreNamed) {
  Agreement rank(0, 2);
  rank.begin(ownVector(0), 7);
  RoundMessage message = messageOf(1, 0);
  message.layout = 8;
  ASSERT_TRUE(rank.accept(1, message, {}));
  const auto progress = rank.advance(kShape, [](Rank, const RoundStep&, const RoundVector&) {});
  ASSERT_FALSE(progress);
  EXPECT_NE(progress.error().message.find("rank 1 and rank 0 have different endo attributes"),
            std::string::npos);
}

}  // namespace
}  // namespace theseus::control
