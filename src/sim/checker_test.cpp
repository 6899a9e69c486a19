#include "sim/checker.h"

#include <gtest/gtest.h>

#include <limits>

#include "sim/event_queue.h"
#include "sim/hash_tables.h"

namespace theseus::sim {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

control::Entry entryOf(Rank origin, std::uint64_t number, std::string content) {
  const base::Hash128 hash = control::entryHash(control::EntryKind::kSetExo, content);
  return {{origin, 0, number, hash}, control::EntryKind::kSetExo, std::move(content)};
}

/// Two ranks that do everything right in round 1, up to where a test makes one of them go wrong.
class CheckerTest : public ::testing::Test {
 protected:
  CheckerTest() {
    for (const control::Entry* entry : {&first, &second}) checker.proposed(entry->id, entry->content);
    context.round = 1;
    context.logVersion = 2;
    context.ready = control::ReadyBits(0b10);
    context.switchAt = 7;
    context.attributes = {{"hi", {kUnknown, 4}}, {"lo", {3}}};
  }
  void join(Rank rank) {
    if (rank == 0)
      checker.joined(0, {1, 7, control::ReadyBits(0b11), {{"hi", {kUnknown, 2}}, {"lo", {kUnknown}}}}, 10);
    if (rank == 1)
      checker.joined(1, {1, 5, control::ReadyBits(0b10), {{"hi", {kUnknown, 4}}, {"lo", {3}}}}, 20);
  }
  void joinBoth() {
    join(0);
    join(1);
  }
  void expectViolation(const std::string& part) {
    ASSERT_TRUE(checker.violation());
    EXPECT_NE(checker.violation()->find(part), std::string::npos) << *checker.violation();
  }
  Checker checker{2};
  control::Entry first = entryOf(0, 0, "a"), second = entryOf(0, 1, "b");
  std::vector<control::Entry> entries{first, second};
  control::Context context;
};

TEST_F(CheckerTest, AcceptsARightRound) {
  joinBoth();
  EXPECT_TRUE(checker.completed(0, entries, context));
  EXPECT_FALSE(checker.completed(1, entries, context));
  const control::Epoch epoch{1, 7, emptyTable()};
  checker.published(0, epoch, 40);
  checker.published(1, epoch, 50);
  checker.issued(0, 7, epoch, epoch.table->hash());
  checker.issued(1, 7, epoch, epoch.table->hash());
  EXPECT_FALSE(checker.violation()) << *checker.violation();
  EXPECT_EQ(checker.longestRound(), 40u);
}

TEST_F(CheckerTest, CompletionBeforeAllHaveJoined) {
  join(0);
  context.switchAt = 7;
  checker.completed(0, entries, context);
  expectViolation("only 1 of 2 ranks");
}

TEST_F(CheckerTest, WrongSwitchPoint) {
  joinBoth();
  context.switchAt = 5;
  checker.completed(0, entries, context);
  expectViolation("switch point");
}

TEST_F(CheckerTest, ReadyBitThatOneRankLacks) {
  joinBoth();
  context.ready = control::ReadyBits(0b11);
  checker.completed(0, entries, context);
  expectViolation("ready bits");
}

TEST_F(CheckerTest, WrongAttribute) {
  joinBoth();
  context.attributes["hi"][1] = 2;
  checker.completed(0, entries, context);
  expectViolation("attribute");
}

TEST_F(CheckerTest, LogsThatDiffer) {
  joinBoth();
  checker.completed(0, entries, context);
  entries[1].content = "x";
  checker.completed(1, entries, context);
  expectViolation("entry 1 of its log");
}

TEST_F(CheckerTest, AnOriginsOrderTurned) {
  joinBoth();
  std::swap(entries[0], entries[1]);
  checker.completed(0, entries, context);
  expectViolation("entry 1 of rank 0 comes where its entry 0 should");
}

TEST_F(CheckerTest, EntryThatNobodyProposed) {
  joinBoth();
  entries[1] = entryOf(0, 1, "forged");
  checker.completed(0, entries, context);
  expectViolation("never proposed");
}

TEST_F(CheckerTest, TwoTablesForOneCollective) {
  const control::Epoch start{0, 0, emptyTable()}, next{1, 7, emptyTable()};
  checker.issued(0, 9, start, start.table->hash());
  checker.issued(1, 9, next, next.table->hash());
  expectViolation("(a) rank 1 runs collective 9 by the table of round 1, another rank by that of round 0");
}

TEST_F(CheckerTest, SlotThatIsNotReadyEverywhere) {
  joinBoth();
  checker.completed(0, entries, context);
  auto table = std::make_shared<control::DispatchTable>(*emptyTable());
  for (auto& buckets : table->slots) buckets.fill(0);  // ready on rank 0 only
  checker.issued(0, 7, {1, 7, table}, table->hash());
  expectViolation("(b) rank 0 runs collective 7 by slot 0");
}

TEST_F(CheckerTest, DifferentEpochsPublished) {
  joinBoth();
  checker.completed(0, entries, context);
  checker.published(0, {1, 7, emptyTable()}, 0);
  auto table = std::make_shared<control::DispatchTable>(*emptyTable());
  table->schedules.push_back({1, 1});
  checker.published(1, {1, 7, table}, 0);
  expectViolation("another epoch");
}

TEST(HashTables, UseReadySlotsOnlyAndSeeEveryInput) {
  control::Context context;
  context.round = 1;
  context.ready = control::ReadyBits(0b101000);
  context.attributes = {{"a", {1}}};
  const auto draw = [](const std::vector<control::Entry>& entries, const control::Context& given) {
    return HashTables().draw(entries, given);
  };
  const auto table = draw({}, context);
  for (const auto& buckets : table->slots) {
    for (const auto slot : buckets) EXPECT_TRUE(slot == 3 || slot == 5);
  }
  const base::Hash128 hash = table->hash();
  EXPECT_EQ(draw({}, context)->hash(), hash);
  EXPECT_NE(draw({entryOf(0, 0, "a")}, context)->hash(), hash);
  EXPECT_NE(draw({entryOf(0, 0, "a")}, context)->hash(), draw({entryOf(0, 0, "b")}, context)->hash());
  control::Context other = context;
  other.attributes["a"][0] = 2;
  EXPECT_NE(draw({}, other)->hash(), hash);
  other = context;
  other.switchAt = 1;
  EXPECT_NE(draw({}, other)->hash(), hash);
}

TEST(EventQueue, OrderIsTimeThenCreation) {
  EventQueue queue;
  for (const auto& [delay, rank] :
       std::vector<std::pair<Microseconds, Rank>>{{5, 0}, {1, 1}, {5, 2}, {0, 3}, {1, 4}}) {
    Event event;
    event.rank = rank;
    queue.push(delay, std::move(event));
  }
  std::vector<Rank> order;
  while (!queue.empty()) order.push_back(queue.pop().rank);
  EXPECT_EQ(order, (std::vector<Rank>{3, 1, 4, 0, 2}));
  EXPECT_EQ(queue.now(), 5u);
}

TEST(Scenario, SeedsDifferAndSizesSpread) {
  int small = 0, large = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const Scenario scenario = makeScenario(seed, std::nullopt);
    ASSERT_GE(scenario.ranks, 2);
    ASSERT_LE(scenario.ranks, 512);
    small += scenario.ranks < 10 ? 1 : 0;
    large += scenario.ranks > 128 ? 1 : 0;
  }
  EXPECT_GT(small, 1400);
  EXPECT_GT(large, 0);
  EXPECT_EQ(makeScenario(3, 77).ranks, 77);
}

}  // namespace
}  // namespace theseus::sim
