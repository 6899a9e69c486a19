#include "policy/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/clock.h"
#include "policy/force.h"
#include "schedule/json.h"

namespace theseus::policy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kRate = 119.5e6;
constexpr std::uint64_t kLarge = 64ull << 20;

/// A job as the control plane shows it to the engine: every rank builds what is new at once, unless a test
/// holds it back.
class Job {
 public:
  explicit Job(int ranks, PolicyOptions options = {}) : rates_(static_cast<std::size_t>(ranks), kRate) {
    options.ranks = ranks;
    options.link.bytesPerSecond = kRate;
    engine_ = std::make_unique<PolicyEngine>(options);
    table_ = engine_->initialTable();
    readySlots_ = engine_->candidates().size();
  }

  void setRate(Rank rank, double rate) { rates_[static_cast<std::size_t>(rank)] = rate; }
  void append(control::EntryKind kind, std::string content) {
    control::Entry entry;
    entry.id.number = entries_.size();
    entry.kind = kind;
    entry.content = std::move(content);
    entries_.push_back(std::move(entry));
  }

  /// One round, by the readiness of what was known before it.
  void round() {
    control::Context context;
    context.round = ++round_;
    context.logVersion = entries_.size();
    context.switchAt = 10 * round_;
    for (std::size_t slot = 0; slot < readySlots_; ++slot) context.ready.set(slot);
    for (std::size_t slot : refused_) context.ready.reset(slot);
    context.attributes[kLinkRateAttribute] = rates_;
    table_ = engine_->compute(entries_, context);
    if (holdBack_) return;
    for (; readySlots_ < engine_->candidates().size(); ++readySlots_) {
      auto preparation = prepare(engine_->candidates()[readySlots_]);
      if (!preparation) refused_.push_back(readySlots_);
      engine_->provide(static_cast<control::ScheduleSlot>(readySlots_), std::move(preparation));
    }
  }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) round();
  }
  void holdBack(bool hold) { holdBack_ = hold; }

  std::string inForce(std::uint64_t bytes = kLarge, Collective collective = Collective::kAllReduce) const {
    const auto slot = table_->slots[static_cast<std::size_t>(collective)]
                                   [static_cast<std::size_t>(control::sizeBucket(bytes))];
    return slot < 0 ? "none" : engine_->candidates()[static_cast<std::size_t>(slot)].name;
  }
  Explanation explained(const std::string& schedule, std::uint64_t bytes = kLarge) const {
    for (const Explanation& line : engine_->explain(Collective::kAllReduce, bytes)) {
      if (line.schedule == schedule) return line;
    }
    ADD_FAILURE() << "no line for " << schedule;
    return {};
  }
  const SwapRecord& lastSwapOf(std::uint64_t bytes) const {
    const int bucket = control::sizeBucket(bytes);
    for (auto swap = engine_->swaps().rbegin(); swap != engine_->swaps().rend(); ++swap) {
      if (swap->collective == Collective::kAllReduce && swap->firstBucket <= bucket &&
          bucket <= swap->lastBucket)
        return *swap;
    }
    static const SwapRecord none;
    ADD_FAILURE() << "no swap";
    return none;
  }
  PolicyEngine& engine() { return *engine_; }
  const control::DispatchTable& table() const { return *table_; }

 private:
  std::unique_ptr<PolicyEngine> engine_;
  std::shared_ptr<const control::DispatchTable> table_;
  std::vector<control::Entry> entries_;
  std::vector<double> rates_;
  std::size_t readySlots_ = 0;
  std::vector<std::size_t> refused_;  // what prepare() found wrong
  Round round_ = 0;
  bool holdBack_ = false;
};

TEST(PolicyEngine, StartsWithAScheduleForEverySizeOfEveryCollectiveItCanMake) {
  Job job(4);
  for (const Candidate& candidate : job.engine().candidates()) {
    const Collective collective = candidate.schedule->collective();
    for (int bucket = 1; bucket < control::kSizeBuckets; ++bucket) {
      EXPECT_NE(job.inForce(1ull << (bucket - 1), collective), "none")
          << name(collective) << " bucket " << bucket;
    }
    EXPECT_EQ(candidate.hash, base::hash128(synth::toText(*candidate.call)));
    EXPECT_FALSE(candidate.dropped);
  }
  EXPECT_EQ(job.inForce(kLarge, Collective::kCustom), "none");
  EXPECT_TRUE(job.engine().swaps().empty()) << "the first table is no swap";
}

TEST(PolicyEngine, InitialChoiceIsTheFastestByThePrior) {
  Job job(4);
  for (const std::uint64_t bytes : {1ull << 12, 1ull << 20, 1ull << 26}) {
    const std::vector<Explanation> lines = job.engine().explain(Collective::kAllReduce, bytes);
    double best = HUGE_VAL;
    double chosen = HUGE_VAL;
    for (const Explanation& line : lines) {
      if (line.usable) best = std::min(best, line.predictedSeconds);
      if (line.inForce) chosen = line.predictedSeconds;
    }
    EXPECT_EQ(chosen, best) << bytes;
    EXPECT_GT(best, 0);
  }
}

TEST(PolicyEngine, GoesAroundAStragglerAndBack) {
  Job job(8);
  const std::string healthy = job.inForce();
  job.round();
  ASSERT_EQ(job.inForce(), healthy);
  job.setRate(3, kRate / 2);
  const std::size_t known = job.engine().candidates().size();
  job.round();
  EXPECT_EQ(job.inForce(), healthy) << "the new candidate is not ready in the round that finds the straggler";
  ASSERT_EQ(job.engine().candidates().size(), known + 1);
  EXPECT_THAT(job.engine().candidates().back().name,
              AllOf(HasSubstr("straggler_aware"), HasSubstr("rank=3"), HasSubstr("ratio=2")));
  job.round();
  EXPECT_EQ(job.inForce(), job.engine().candidates().back().name);
  const SwapRecord away = job.lastSwapOf(kLarge);
  EXPECT_EQ(away.from, healthy);
  EXPECT_EQ(away.round, 3u);
  EXPECT_EQ(away.switchAt, 30u);
  EXPECT_THAT(away.reason,
              AllOf(HasSubstr("link of rank 3 at 0.50 of its peers' (59.8 of 119.5 MB/s): predicted"),
                    HasSubstr("instead of"), HasSubstr("for 64 MiB")));
  EXPECT_NE(job.inForce(8), job.inForce()) << "small messages are not bound by bandwidth";

  job.setRate(3, kRate);
  job.round();
  EXPECT_EQ(job.inForce(), healthy) << "back in the very next round";
  EXPECT_THAT(job.lastSwapOf(kLarge).reason, HasSubstr("link of rank 3 is as fast as its peers' again"));
  EXPECT_THAT(job.explained(away.to).why, HasSubstr("as fast as its peers'"));

  job.setRate(3, kRate / 2);
  job.round();
  EXPECT_EQ(job.inForce(), away.to) << "the schedule is still there: one round suffices";
  EXPECT_EQ(job.engine().candidates().size(), known + 1);
}

TEST(PolicyEngine, WaitsUntilEveryRankIsReady) {
  Job job(8);
  const std::string healthy = job.inForce();
  job.holdBack(true);
  job.setRate(5, kRate / 2);
  job.rounds(5);
  EXPECT_EQ(job.inForce(), healthy);
  EXPECT_EQ(job.explained(job.engine().candidates().back().name).why, "not ready on every rank");
  job.holdBack(false);
  job.rounds(2);
  EXPECT_THAT(job.inForce(), HasSubstr("rank=5"));
}

TEST(PolicyEngine, NoiseSwapsNothing) {
  Job job(8);
  base::Random random(42);
  const base::Hash128 start = job.table().hash();
  for (int round = 0; round < 10'000; ++round) {
    for (Rank rank = 0; rank < 8; ++rank) {
      const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
      const double normal = radius * std::cos(2 * std::numbers::pi * random.unit());
      job.setRate(rank, kRate * (1 + 0.03 * normal));
    }
    job.round();
    ASSERT_EQ(job.table().hash(), start) << "round " << round << ": " << job.engine().swaps().back().reason;
  }
  EXPECT_TRUE(job.engine().swaps().empty());
}

TEST(PolicyEngine, NoiseOnAStragglerDoesNotFlap) {
  Job job(8);
  base::Random random(43);
  job.setRate(2, kRate / 2);
  job.rounds(3);
  const std::size_t swaps = job.engine().swaps().size();
  for (int round = 0; round < 2'000; ++round) {
    for (Rank rank = 0; rank < 8; ++rank) {
      const double noise = 0.96 + 0.08 * random.unit();
      job.setRate(rank, (rank == 2 ? kRate / 2 : kRate) * noise);
    }
    job.round();
  }
  EXPECT_EQ(job.engine().swaps().size(), swaps);
}

TEST(PolicyEngine, AllSlowTogetherHasNoStraggler) {
  Job job(8);
  const std::size_t known = job.engine().candidates().size();
  for (Rank rank = 0; rank < 8; ++rank) job.setRate(rank, kRate / 3);
  job.rounds(3);
  EXPECT_EQ(job.engine().candidates().size(), known);
  for (const SwapRecord& swap : job.engine().swaps()) {
    EXPECT_THAT(swap.reason, HasSubstr("links at 39.8 MB/s"))
        << "only the balance of latency and bandwidth has moved";
  }
}

TEST(PolicyEngine, OfTwoStragglersTheWorseIsTreatedAndTheOtherNamed) {
  Job job(8);
  job.setRate(1, kRate / 4);
  job.setRate(6, kRate / 1.3);
  job.rounds(2);
  EXPECT_THAT(job.inForce(), HasSubstr("rank=1"));
  EXPECT_THAT(job.lastSwapOf(kLarge).reason,
              AllOf(HasSubstr("link of rank 1 at 0.25"), HasSubstr("also slow: rank 6 at 0.77")));
}

TEST(PolicyEngine, FollowsAStragglerThatMovesOrWorsens) {
  Job job(8);
  job.setRate(3, kRate / 2);
  job.rounds(2);
  const std::string first = job.inForce();
  job.setRate(3, kRate);
  job.setRate(4, kRate / 2);
  job.rounds(2);
  EXPECT_THAT(job.inForce(), HasSubstr("rank=4"));
  job.setRate(4, kRate / 8);
  job.rounds(2);
  EXPECT_THAT(job.inForce(), HasSubstr("rank=4"));
  EXPECT_FALSE(job.explained(first).usable);
}

TEST(PolicyEngine, AnOperatorOverridesUntilAuto) {
  Job job(4);
  const std::string free = job.inForce();
  const Candidate* other = nullptr;
  for (const Candidate& candidate : job.engine().candidates()) {
    if (candidate.schedule->collective() == Collective::kAllReduce && candidate.name != free)
      other = &candidate;
  }
  ASSERT_NE(other, nullptr);
  const std::string otherName = other->name;
  Force force;
  force.schedule = base::toHex(other->hash);
  force.minBytes = 1 << 20;
  job.append(control::EntryKind::kForce, encodeForce(force));
  const std::string smallBefore = job.inForce(1 << 10);
  job.round();
  EXPECT_EQ(job.inForce(), otherName);
  EXPECT_EQ(job.inForce(1 << 10), smallBefore) << "below min_bytes nothing is forced";
  EXPECT_THAT(job.lastSwapOf(kLarge).reason, HasSubstr("forced by an operator"));
  EXPECT_EQ(job.explained(otherName).why, "forced by an operator");
  force.schedule = "auto";
  job.append(control::EntryKind::kForce, encodeForce(force));
  job.round();
  EXPECT_EQ(job.inForce(), free);
}

TEST(PolicyEngine, AForcedScheduleThatCannotServeIsExplained) {
  Job job(8);
  job.holdBack(true);
  job.append(control::EntryKind::kNewSchedule,
             R"({"generator":"ring","collective":"allreduce","ranks":8,"channels":3})");
  job.append(control::EntryKind::kForce, "collective=allreduce schedule=ring(channels=3)");
  const std::string before = job.inForce();
  job.round();
  EXPECT_EQ(job.inForce(), before);
  EXPECT_EQ(job.explained("ring(channels=3)").why, "forced by an operator, but not ready on every rank");
  job.holdBack(false);
  job.rounds(2);
  EXPECT_EQ(job.inForce(), "ring(channels=3)");
}

TEST(PolicyEngine, DroppedSchedulesKeepTheirSlotAndCanComeBack) {
  Job job(4);
  const std::string first = job.inForce();
  std::size_t slot = 0;
  while (job.engine().candidates()[slot].name != first ||
         job.engine().candidates()[slot].schedule->collective() != Collective::kAllReduce)
    ++slot;
  const Candidate dropped = job.engine().candidates()[slot];
  job.append(control::EntryKind::kDropSchedule, base::toHex(dropped.hash));
  job.round();
  EXPECT_NE(job.inForce(), first);
  EXPECT_TRUE(job.engine().candidates()[slot].dropped);
  EXPECT_EQ(job.engine().candidates()[slot].name, first);
  EXPECT_THAT(job.lastSwapOf(kLarge).reason, HasSubstr("cannot serve any more (dropped)"));
  const std::size_t count = job.engine().candidates().size();
  job.append(control::EntryKind::kNewSchedule, synth::toText(*dropped.call));
  job.round();
  EXPECT_EQ(job.engine().candidates().size(), count) << "known by its content";
  EXPECT_FALSE(job.engine().candidates()[slot].dropped);
  EXPECT_TRUE(job.explained(first).usable);
}

TEST(PolicyEngine, PlansFromTheLogAreVerifiedAndRangesRespected) {
  Job job(4);
  auto plan = synth::generate({"ring", Collective::kAllReduce, 4, {{"channels", 2}}});
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  plan->name = "mine";
  plan->minMessageBytes = 1 << 20;
  plan->maxMessageBytes = (1 << 24) - 1;
  job.append(control::EntryKind::kNewSchedule, schedule::writeJson(*plan));
  job.append(control::EntryKind::kForce, "collective=allreduce schedule=mine");
  job.rounds(2);
  EXPECT_EQ(job.inForce(1 << 20), "mine");
  EXPECT_EQ(job.inForce((1 << 24) - 1), "mine");
  EXPECT_NE(job.inForce(1 << 24), "mine");
  EXPECT_NE(job.inForce((1 << 20) - 1), "mine");
  EXPECT_THAT(job.explained("mine", 1 << 24).why, HasSubstr("serves 1048576 to 16777215 bytes"));
  plan->name = "with a rule";
  plan->usable = "bytes > 5";
  job.append(control::EntryKind::kNewSchedule, schedule::writeJson(*plan));
  job.rounds(2);
  EXPECT_EQ(job.explained("with a rule", 1 << 20).why, "expressions are not supported yet");
}

TEST(PolicyEngine, BadEntriesAreRemarksAndNothingElse) {
  Job job(4);
  const std::size_t count = job.engine().candidates().size();
  const base::Hash128 before = job.table().hash();
  auto broken = synth::generate({"ring", Collective::kAllReduce, 4, {}});
  ASSERT_TRUE(broken.has_value());
  broken->ranks[0].threadBlocks[0].ops.pop_back();
  const std::pair<control::EntryKind, std::string> entries[] = {
      {control::EntryKind::kNewSchedule, "nonsense"},
      {control::EntryKind::kNewSchedule, R"({"generator":"no such","collective":"allreduce","ranks":4})"},
      {control::EntryKind::kNewSchedule, R"({"generator":"ring","collective":"allreduce","ranks":5})"},
      {control::EntryKind::kNewSchedule, schedule::writeJson(*broken)},
      {control::EntryKind::kDropSchedule, "ffffffffffffffffffffffffffffffff"},
      {control::EntryKind::kForce, "everything=ring"},
      {control::EntryKind::kSetExo, "=5"},
      {control::EntryKind::kSetExo, "link_nominal_bps=fast"},
  };
  for (const auto& [kind, content] : entries) job.append(kind, content);
  job.rounds(2);
  EXPECT_EQ(job.engine().candidates().size(), count + 1)
      << "a plan that can be read is known, but what the verifier refuses is never used";
  EXPECT_FALSE(job.engine().explain(Collective::kAllReduce, kLarge).back().usable);
  EXPECT_EQ(job.table().hash(), before);
  EXPECT_EQ(job.engine().remarks().size(), std::size(entries))
      << ::testing::PrintToString(job.engine().remarks());
}

TEST(PolicyEngine, AttributesFromOutsideAreKeptAndTheNominalRateCounts) {
  PolicyOptions options;
  options.ranks = 4;
  options.link.bytesPerSecond = kRate;
  PolicyEngine engine(options);
  const auto before = engine.initialTable();
  control::Entry colour;
  colour.kind = control::EntryKind::kSetExo;
  colour.content = "colour=blue=green";
  control::Entry nominal;
  nominal.kind = control::EntryKind::kSetExo;
  nominal.content = "link_nominal_bps=1e9";
  const double slow = engine.explain(Collective::kAllReduce, kLarge).front().predictedSeconds;
  control::Context context;
  context.round = 1;
  context.logVersion = 2;
  context.ready.set();
  engine.compute({colour, nominal}, context);
  EXPECT_EQ(engine.exoAttributes().at("colour"), "blue=green");
  EXPECT_NEAR(slow / engine.explain(Collective::kAllReduce, kLarge).front().predictedSeconds, 1e9 / kRate,
              0.2);
}

TEST(PolicyEngine, EntriesBeyondTheAgreedVersionDoNotExist) {
  PolicyOptions options;
  options.ranks = 4;
  PolicyEngine engine(options);
  engine.initialTable();
  control::Entry entry;
  entry.kind = control::EntryKind::kSetExo;
  entry.content = "a=1";
  control::Context context;
  context.round = 1;
  context.ready.set();
  engine.compute({entry}, context);
  EXPECT_TRUE(engine.exoAttributes().empty());
  context.round = 2;
  context.logVersion = 1;
  engine.compute({entry}, context);
  EXPECT_EQ(engine.exoAttributes().size(), 1u);
}

TEST(PolicyEngine, DwellKeepsANewChoice) {
  PolicyOptions options;
  options.dwellRounds = 10;
  Job job(8, options);
  job.rounds(1);
  const std::string healthy = job.inForce();
  job.setRate(3, kRate / 2);
  job.rounds(8);
  EXPECT_EQ(job.inForce(), healthy) << "round 9: the first table is kept ten rounds";
  job.rounds(1);
  EXPECT_THAT(job.inForce(), HasSubstr("rank=3"));
}

TEST(PolicyEngine, EqualHistoriesGiveEqualTablesAndCandidates) {
  Job first(5);
  Job second(5);
  base::Random random(7);
  for (int round = 0; round < 40; ++round) {
    const auto rank = static_cast<Rank>(random.below(5));
    const double rate = kRate / (1 + 3 * random.unit());
    const bool heal = random.chance(0.5);
    for (Job* job : {&first, &second}) {
      job->setRate(rank, heal ? kRate : rate);
      if (round == 20)
        job->append(control::EntryKind::kNewSchedule,
                    R"({"generator":"ring","collective":"allreduce","ranks":5,"channels":2})");
      job->round();
    }
    ASSERT_EQ(first.table().hash(), second.table().hash()) << "round " << round;
    ASSERT_EQ(first.engine().candidates().size(), second.engine().candidates().size());
    for (std::size_t slot = 0; slot < first.engine().candidates().size(); ++slot) {
      ASSERT_EQ(first.engine().candidates()[slot].hash, second.engine().candidates()[slot].hash);
    }
  }
  EXPECT_FALSE(first.engine().swaps().empty());
}

TEST(PolicyEngine, OneRankAloneNeedsNoSchedule) {
  Job job(1);
  job.round();
  EXPECT_TRUE(job.engine().swaps().empty());
}

}  // namespace
}  // namespace theseus::policy
