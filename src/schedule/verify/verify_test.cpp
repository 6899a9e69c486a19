#include "schedule/verify/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/builder.h"
#include "schedule/verify/program.h"

namespace theseus::schedule {
namespace {

constexpr ChunkRange input(std::uint32_t index, std::uint32_t size = 1) {
  return {BufferKind::kInput, index, size};
}
constexpr ChunkRange output(std::uint32_t index, std::uint32_t size = 1) {
  return {BufferKind::kOutput, index, size};
}
constexpr ChunkRange scratch(std::uint32_t index, std::uint32_t size = 1) {
  return {BufferKind::kScratch, index, size};
}

std::string allOf(const Verdict& verdict) {
  std::string text;
  for (const Finding& finding : verdict.findings) text += toString(finding) + "\n";
  return text;
}

std::vector<std::string> kindsOf(const Verdict& verdict) {
  std::vector<std::string> kinds;
  for (const Finding& finding : verdict.findings) kinds.push_back(finding.kind);
  return kinds;
}

/// Ring allreduce out of place: scatter-reduce, then gather, one block a rank.
Schedule ringAllReduce(int ranks) {
  Builder builder("ring", Collective::kAllReduce, ranks);
  const auto chunks = static_cast<std::uint32_t>(ranks);
  builder.chunks(chunks, chunks, chunks);
  std::vector<BlockBuilder> blocks;
  for (Rank rank = 0; rank < ranks; ++rank) blocks.push_back(builder.block(rank));
  const auto chunkAt = [&](Rank rank, int step) {
    return static_cast<std::uint32_t>(((rank - step) % ranks + ranks) % ranks);
  };
  for (int step = 0; step + 1 < ranks; ++step) {
    for (Rank rank = 0; rank < ranks; ++rank) {
      BlockBuilder& block = blocks[static_cast<std::size_t>(rank)];
      const Rank next = (rank + 1) % ranks;
      const Rank previous = (rank + ranks - 1) % ranks;
      const std::uint32_t sent = chunkAt(rank, step);
      block.put(next, step == 0 ? input(sent) : output(sent), scratch(sent)).signal(next);
      const std::uint32_t received = chunkAt(rank, step + 1);
      block.wait(previous).reduce({input(received), scratch(received)}, output(received));
    }
  }
  for (int step = 0; step + 1 < ranks; ++step) {
    for (Rank rank = 0; rank < ranks; ++rank) {
      BlockBuilder& block = blocks[static_cast<std::size_t>(rank)];
      const std::uint32_t sent = chunkAt(rank, step + ranks - 1);
      block.put((rank + 1) % ranks, output(sent), output(sent)).signal((rank + 1) % ranks);
      block.wait((rank + ranks - 1) % ranks);
    }
  }
  return std::move(builder).build();
}

TEST(VerifyTest, RingIsValidForAllSizesAndRanks) {
  for (const int ranks : {2, 3, 5, 8}) {
    const Verdict verdict = verify(ringAllReduce(ranks));
    EXPECT_TRUE(verdict.valid()) << allOf(verdict);
    EXPECT_TRUE(verdict.meaningChecked);
    EXPECT_TRUE(verdict.tailSynchronized);
    EXPECT_FALSE(verdict.usesSwitch);
    EXPECT_FALSE(verdict.unevenFinding) << toString(*verdict.unevenFinding);
    EXPECT_FALSE(verdict.pairwiseFinding) << toString(*verdict.pairwiseFinding);
  }
}

TEST(VerifyTest, JobOfOtherSizeIsRefused) {
  VerifyOptions options;
  options.jobRanks = 4;
  EXPECT_TRUE(verify(ringAllReduce(4), options).valid());
  const Verdict verdict = verify(ringAllReduce(3), options);
  EXPECT_EQ(kindsOf(verdict), std::vector<std::string>{"rank-count"});
  EXPECT_NE(allOf(verdict).find("use a plan made for 4 ranks"), std::string::npos);
}

TEST(VerifyTest, FindingsAreLimitedAndDeterministic) {
  Schedule schedule = ringAllReduce(5);
  for (RankPlan& rank : schedule.ranks) rank.channels.clear();
  VerifyOptions options;
  options.maxFindings = 3;
  const Verdict first = verify(schedule, options);
  EXPECT_EQ(first.findings.size(), 3u);
  EXPECT_EQ(allOf(first), allOf(verify(schedule, options)));
  options.maxFindings = 0;
  EXPECT_EQ(verify(schedule, options).findings.size(), 1u)
      << "a limit of 0 must not make a broken plan valid";
}

TEST(VerifyTest, TailIsOpenWhenNobodyWaitsForThePeersLastRead) {
  // Each rank fetches its peer's input; the peer may end, and reuse its input, before it has been read.
  Builder builder("fetch", Collective::kSendRecv, 2);
  builder.chunks(1, 1, 0);
  for (Rank rank = 0; rank < 2; ++rank) builder.block(rank).get(1 - rank, input(0), output(0));
  const Verdict open = verify(std::move(builder).build());
  EXPECT_TRUE(open.valid()) << allOf(open);
  EXPECT_FALSE(open.tailSynchronized);

  Builder closed("fetch", Collective::kSendRecv, 2);
  closed.chunks(1, 1, 0);
  for (Rank rank = 0; rank < 2; ++rank)
    closed.block(rank).get(1 - rank, input(0), output(0)).signal(1 - rank).wait(1 - rank);
  const Verdict verdict = verify(std::move(closed).build());
  EXPECT_TRUE(verdict.valid()) << allOf(verdict);
  EXPECT_TRUE(verdict.tailSynchronized);
}

/// Rank 0 fetches rank 1's chunk, then both signal; rank 1 overwrites the chunk after its wait.
Schedule readThenOverwrite(OpCode signal, OpCode wait) {
  Builder builder("overwrite", Collective::kCustom, 2);
  builder.chunks(1, 1, 1);
  builder.block(0).get(1, input(0), output(0)).signal(1);
  builder.block(1).wait(0).copy(scratch(0), input(0));
  Schedule schedule = std::move(builder).build();
  schedule.bufferMode = BufferMode::kInPlace;
  schedule.ranks[0].threadBlocks[0].ops[1].code = signal;
  schedule.ranks[1].threadBlocks[0].ops[0].code = wait;
  return schedule;
}

/// Rank 0 puts into rank 1's scratch, then both signal; rank 1 reads it after its wait.
Schedule writeThenRead(OpCode signal, OpCode wait) {
  Builder builder("publish", Collective::kCustom, 2);
  builder.chunks(1, 1, 1);
  builder.block(0).put(1, input(0), scratch(0)).signal(1);
  builder.block(1).wait(0).copy(scratch(0), output(0));
  Schedule schedule = std::move(builder).build();
  schedule.ranks[0].threadBlocks[0].ops[1].code = signal;
  schedule.ranks[1].threadBlocks[0].ops[0].code = wait;
  return schedule;
}

TEST(VerifyTest, RelaxedSignalsOrderReadsBeforeWritesButPublishNothing) {
  constexpr OpCode kStrong[] = {OpCode::kSignal, OpCode::kWait};
  constexpr OpCode kRelaxed[] = {OpCode::kRelaxedSignal, OpCode::kRelaxedWait};
  for (const OpCode signal : {kStrong[0], kRelaxed[0]}) {
    for (const OpCode wait : {kStrong[1], kRelaxed[1]}) {
      EXPECT_TRUE(verify(readThenOverwrite(signal, wait)).valid())
          << allOf(verify(readThenOverwrite(signal, wait)));
      const bool strong = signal == kStrong[0] && wait == kStrong[1];
      const Verdict verdict = verify(writeThenRead(signal, wait));
      EXPECT_EQ(verdict.valid(), strong) << allOf(verdict);
      if (strong) continue;
      EXPECT_NE(allOf(verdict).find("a relaxed signal"), std::string::npos);
      EXPECT_EQ(kindsOf(verdict), std::vector<std::string>{"read-write-race"});
    }
  }
}

/// Rank 0 puts into rank 2 and signals rank 1; rank 1 signals rank 2, which reads.
TEST(VerifyTest, OrderThroughAThirdRankIsNamed) {
  Builder builder("triangle", Collective::kCustom, 3);
  builder.chunks(1, 1, 1);
  builder.block(0).put(2, input(0), scratch(0)).signal(1);
  builder.block(1).wait(0).signal(2);
  builder.block(2).wait(1).copy(scratch(0), output(0));
  const Verdict verdict = verify(std::move(builder).build());
  EXPECT_TRUE(verdict.valid()) << allOf(verdict);
  ASSERT_TRUE(verdict.pairwiseFinding);
  EXPECT_EQ(verdict.pairwiseFinding->place, (OpPlace{2, 0, 1}));
  EXPECT_EQ(verdict.pairwiseFinding->second, (OpPlace{0, 0, 0}));
}

/// Two blocks each fill a chunk and release one semaphore; a third acquires it `acquires` times before it
/// reads both.
Schedule semaphoreFan(int acquires) {
  Builder builder("fan", Collective::kCustom, 1);
  builder.chunks(2, 2, 2);
  const std::uint32_t semaphore = builder.semaphore(0);
  for (std::uint32_t i = 0; i < 2; ++i) builder.block(0).copy(input(i), scratch(i)).release(semaphore);
  auto reader = builder.block(0);
  for (int i = 0; i < acquires; ++i) reader.acquire(semaphore);
  reader.copy(scratch(0, 2), output(0, 2));
  for (int i = acquires; i < 2; ++i) reader.acquire(semaphore);
  return std::move(builder).build();
}

TEST(VerifyTest, OneUnitOfASemaphoreDoesNotProveWhichBlockGaveIt) {
  EXPECT_TRUE(verify(semaphoreFan(2)).valid()) << allOf(verify(semaphoreFan(2)));
  const Verdict verdict = verify(semaphoreFan(1));
  ASSERT_FALSE(verdict.valid());
  EXPECT_EQ(verdict.findings[0].kind, "read-write-race");
}

TEST(VerifyTest, ChunkRangesMayNotBorrowFromOtherBuffers) {
  Schedule schedule = ringAllReduce(3);
  schedule.ranks[1].scratchChunks = 2;
  const Verdict verdict = verify(schedule);
  ASSERT_FALSE(verdict.valid());
  for (const Finding& finding : verdict.findings) EXPECT_EQ(finding.kind, "chunk-range");
}

TEST(VerifyTest, PlansThatAliasAreCheckedInTheirMode) {
  // Out of place this is an allgather; in place the copy would be a no-op on the very same bytes, still
  // right.
  Builder builder("gather", Collective::kAllGather, 2);
  builder.chunks(1, 2, 0).bufferMode(BufferMode::kEither);
  for (Rank rank = 0; rank < 2; ++rank) {
    const auto own = static_cast<std::uint32_t>(rank);
    builder.block(rank)
        .copy(input(0), output(own))
        .put(1 - rank, input(0), output(own))
        .signal(1 - rank)
        .wait(1 - rank);
  }
  const Verdict verdict = verify(std::move(builder).build());
  EXPECT_TRUE(verdict.valid()) << allOf(verdict);
}

TEST(VerifyTest, EvenMeansEqualChunksOnly) {
  const Schedule schedule = ringAllReduce(3);
  EXPECT_TRUE(isEven(schedule, {96, 96, 4}));
  EXPECT_TRUE(isEven(schedule, {12, 12, 4}));
  EXPECT_FALSE(isEven(schedule, {100, 100, 4}));
  EXPECT_FALSE(isEven(schedule, {96, 48, 4})) << "no size of an allreduce";
}

TEST(VerifyTest, ExaminedSizesCoverEvenUnevenAndTheRange) {
  Schedule schedule = ringAllReduce(3);
  auto sizes = verifying::examinedSizes(schedule);
  EXPECT_TRUE(std::any_of(sizes.begin(), sizes.end(), [](const auto& size) { return size.even; }));
  EXPECT_TRUE(std::any_of(sizes.begin(), sizes.end(), [](const auto& size) { return !size.even; }));
  schedule.minMessageBytes = 1 << 20;
  schedule.maxMessageBytes = 1 << 21;
  sizes = verifying::examinedSizes(schedule);
  ASSERT_FALSE(sizes.empty());
  for (const auto& size : sizes) {
    EXPECT_GE(size.size.inputBytes, schedule.minMessageBytes);
    EXPECT_LE(size.size.inputBytes, schedule.maxMessageBytes);
  }
  EXPECT_TRUE(verify(schedule).valid()) << allOf(verify(schedule));
}

TEST(VerifyTest, WordsOfFindings) {
  EXPECT_EQ(toString(OpPlace{}), "the plan");
  EXPECT_EQ(toString(OpPlace{2}), "rank 2");
  EXPECT_EQ(toString(OpPlace{1, 0, 7}), "rank 1 block 0 op 7");
  EXPECT_EQ(toString(OpPlace{0, 1, 3, 2}), "rank 0 block 1 op 3.2");
  const Finding finding{VerifyPass::kRace, "read-write-race", {1, 0, 7}, OpPlace{0, 0, 3}, "why"};
  EXPECT_EQ(toString(finding), "race: rank 1 block 0 op 7: read-write-race with rank 0 block 0 op 3: why");
}

}  // namespace
}  // namespace theseus::schedule
