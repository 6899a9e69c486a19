// Properties of resolution at sizes that MSCCL++ refuses, where no vectors can be had.
#include "schedule/chunk_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "schedule/case_files_for_test.h"
#include "schedule/json.h"
#include "schedule/resolve.h"

namespace theseus::schedule {
namespace {

Schedule emptyPlan(const char* collective, int ranks, std::uint32_t inputChunks, std::uint32_t outputChunks) {
  Schedule plan;
  plan.name = "test";
  plan.collectiveName = collective;
  plan.ranks.resize(static_cast<std::size_t>(ranks));
  for (auto& rank : plan.ranks) {
    rank.inputChunks = inputChunks;
    rank.outputChunks = outputChunks;
    rank.scratchChunks = 3;
  }
  return plan;
}

Operand local(BufferKind kind, std::uint32_t index, std::uint32_t size) {
  return {Operand::Place::kLocal, kind, 0, index, size};
}

Op copy(Operand source, Operand destination) {
  Op op;
  op.code = OpCode::kCopy;
  op.sources = {source};
  op.destinations = {destination};
  return op;
}

/// One rank, one block with `ops`.
Schedule onePlan(std::vector<Op> ops, std::uint32_t chunks) {
  auto plan = emptyPlan("allreduce", 1, chunks, chunks);
  plan.ranks[0].threadBlocks.resize(1);
  plan.ranks[0].threadBlocks[0].ops = std::move(ops);
  return plan;
}

std::string resolveError(const Schedule& plan, const MessageSize& size) {
  const auto resolved = resolve(plan, 0, size);
  return resolved ? "no error" : resolved.error().message;
}

TEST(ChunkLayout, ChunksTileUserBuffersBlockByBlock) {
  std::mt19937 random(7);
  const auto pick = [&](std::uint32_t from, std::uint32_t to) { return from + random() % (to - from + 1); };
  const char* const collectives[] = {"allreduce", "allgather", "reducescatter",
                                     "alltoall",  "broadcast", "sendrecv"};
  for (int round = 0; round < 3000; ++round) {
    const char* const collective = collectives[round % 6];
    const auto ranks = pick(1, 9);
    const auto factor = pick(1, 5);
    const auto kind = *parseCollective(collective);
    const bool split =
        kind == Collective::kAllGather || kind == Collective::kReduceScatter || kind == Collective::kAllToAll;
    const auto input = factor * (split && kind != Collective::kAllGather ? ranks : 1);
    const auto output = factor * (split && kind != Collective::kReduceScatter ? ranks : 1);
    const auto plan = emptyPlan(collective, static_cast<int>(ranks), input, output);
    const auto element = 1u << pick(0, 3);
    const auto size = messageSize(kind, static_cast<int>(ranks), pick(0, 200), element);
    const auto layout = ChunkLayout::make(plan, size);
    ASSERT_TRUE(layout) << layout.error().message;
    EXPECT_EQ(layout->unitBytes() % element, 0u);
    for (const auto buffer : {BufferKind::kInput, BufferKind::kOutput}) {
      const auto bytes = buffer == BufferKind::kInput ? size.inputBytes : size.outputBytes;
      const auto chunks = buffer == BufferKind::kInput ? input : output;
      std::uint64_t at = 0;
      for (std::uint32_t i = 0; i < chunks; ++i) {
        ASSERT_EQ(layout->start(0, buffer, i), at) << collective << " round " << round << " chunk " << i;
        const auto length = layout->length(0, buffer, i);
        ASSERT_LE(length, layout->slotBytes());
        ASSERT_GE(length + layout->unitBytes(), layout->slotBytes());  // as even as units allow
        ASSERT_EQ(length % element, 0u);
        at += length;
        // A block boundary is where what belongs to one rank ends: it never moves with the size.
        if ((i + 1) % factor == 0 && split) {
          ASSERT_EQ(at * (chunks / factor), bytes * ((i + 1) / factor));
        }
      }
      ASSERT_EQ(at, bytes);
    }
    ASSERT_EQ(layout->start(0, BufferKind::kScratch, 2), 2 * layout->slotBytes());
  }
}

TEST(ChunkLayout, RefusesSizesThatDoNotBelongToTheCollective) {
  const auto error = [](const Schedule& plan, const MessageSize& size) {
    const auto layout = ChunkLayout::make(plan, size);
    return layout ? std::string("no error") : layout.error().message;
  };
  EXPECT_NE(error(emptyPlan("allreduce", 2, 2, 2), {64, 32, 4}).find("allreduce over 2 ranks"),
            std::string::npos);
  EXPECT_NE(error(emptyPlan("allgather", 2, 1, 2), {64, 64, 4}).find("2 blocks"), std::string::npos);
  EXPECT_NE(error(emptyPlan("allreduce", 2, 2, 2), {62, 62, 4}).find("4-byte elements"), std::string::npos);
  EXPECT_NE(error(emptyPlan("alltoall", 3, 3, 3), {16, 16, 4}).find("3 blocks"), std::string::npos);
  EXPECT_NE(error(emptyPlan("allreduce", 2, 2, 2), {64, 64, 3}).find("element of 3 bytes"),
            std::string::npos);
  EXPECT_NE(error(emptyPlan("allreduce", 2, 4, 2), {64, 64, 4}).find("one size"), std::string::npos);
  auto bounded = emptyPlan("allgather", 2, 1, 2);
  bounded.minMessageBytes = 64;  // of the output
  bounded.maxMessageBytes = 128;
  EXPECT_EQ(error(bounded, {32, 64, 4}), "no error");
  EXPECT_EQ(error(bounded, {64, 128, 4}), "no error");
  EXPECT_NE(error(bounded, {28, 56, 4}).find("64 to 128 bytes, not 56"), std::string::npos);
  EXPECT_NE(error(bounded, {68, 136, 4}).find("not 136"), std::string::npos);
  bounded.bufferAlignment = 0;
  EXPECT_NE(error(bounded, {32, 64, 4}).find("buffer_alignment is 0"), std::string::npos);
}

TEST(Resolve, UnevenChunksAreClampedAndJoinedWhereTheyTouch) {
  // 10 floats in 4 chunks: 3 3 2 2. Slots of 12 bytes.
  auto plan = onePlan({copy(local(BufferKind::kInput, 1, 3), local(BufferKind::kScratch, 0, 3))}, 4);
  plan.bufferAlignment = 4;
  const auto resolved = resolve(plan, 0, {40, 40, 4});
  ASSERT_TRUE(resolved) << resolved.error().message;
  EXPECT_EQ(resolved->scratchBytes, 36u);
  const auto& pieces = resolved->threadBlocks[0][0].pieces;
  ASSERT_EQ(pieces.size(), 2u);  // chunks 1 and 2 touch on both sides; 3 starts a slot anew
  EXPECT_EQ(pieces[0].sources[0], (Extent{BufferKind::kInput, 0, 12, 20}));
  EXPECT_EQ(pieces[0].destinations[0], (Extent{BufferKind::kScratch, 0, 0, 20}));
  EXPECT_EQ(pieces[1].sources[0], (Extent{BufferKind::kInput, 0, 32, 8}));
  EXPECT_EQ(pieces[1].destinations[0], (Extent{BufferKind::kScratch, 0, 24, 8}));
}

TEST(Resolve, ReductionTakesTheShortestOperandAndKeepsAll) {
  Op op = copy(local(BufferKind::kInput, 3, 1), local(BufferKind::kScratch, 1, 1));
  op.code = OpCode::kReduce;
  op.sources.push_back(local(BufferKind::kScratch, 0, 1));
  const auto resolved = resolve(onePlan({op}, 4), 0, {40, 40, 4});
  ASSERT_TRUE(resolved) << resolved.error().message;
  const auto& pieces = resolved->threadBlocks[0][0].pieces;
  ASSERT_EQ(pieces.size(), 1u);
  ASSERT_EQ(pieces[0].sources.size(), 2u);
  EXPECT_EQ(pieces[0].sources[1], (Extent{BufferKind::kScratch, 0, 0, 8}));
}

TEST(Resolve, PairsAreCutEachForItself) {
  auto plan = onePlan({}, 4);
  plan.bufferAlignment = 4;
  plan.ranks.push_back(plan.ranks[0]);
  plan.ranks[0].remoteBuffers = {{1, BufferKind::kInput, {ChannelType::kMemory}}};
  plan.ranks[0].threadBlocks[0].remoteBuffers = {{ChannelType::kMemory, {0}}};
  Op put;
  put.code = OpCode::kPut;
  put.channelType = ChannelType::kMemory;
  put.sources = {local(BufferKind::kInput, 0, 1), local(BufferKind::kInput, 3, 1)};
  put.destinations = {{Operand::Place::kRemote, BufferKind::kInput, 0, 0, 1},
                      {Operand::Place::kRemote, BufferKind::kInput, 0, 3, 1}};
  plan.ranks[0].threadBlocks[0].ops = {put};
  const auto resolved = resolve(plan, 0, {40, 40, 4});
  ASSERT_TRUE(resolved) << resolved.error().message;
  const auto& pieces = resolved->threadBlocks[0][0].pieces;
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].pair, 0u);
  EXPECT_EQ(pieces[0].sources[0].bytes, 12u);  // not cut to the shorter chunk of the other pair
  EXPECT_EQ(pieces[1].pair, 1u);
  EXPECT_EQ(pieces[1].destinations[0], (Extent{BufferKind::kInput, 1, 32, 8}));
}

TEST(Resolve, GroupSlicesTileTheRange) {
  for (const std::uint32_t blocks : {1u, 2u, 3u, 7u}) {
    for (const std::uint64_t bytes : {64u, 4096u, 4100u, 40u}) {
      std::map<std::uint64_t, std::uint64_t> covered;
      std::uint64_t total = 0;
      for (std::uint32_t slice = 0; slice < blocks; ++slice) {
        auto op = copy(local(BufferKind::kInput, 0, 4), local(BufferKind::kOutput, 0, 4));
        op.group = ThreadBlockGroup{slice, blocks};
        const auto resolved = resolve(onePlan({op}, 4), 0, {bytes, bytes, 4});
        ASSERT_TRUE(resolved);
        for (const auto& piece : resolved->threadBlocks[0][0].pieces) {
          EXPECT_EQ(piece.sources[0].offset, piece.destinations[0].offset);
          covered[piece.sources[0].offset] = piece.sources[0].bytes;
          total += piece.sources[0].bytes;
        }
      }
      std::uint64_t at = 0;
      for (const auto& [offset, length] : covered) {
        EXPECT_EQ(offset, at);
        at = offset + length;
      }
      EXPECT_EQ(total, bytes);
    }
  }
}

TEST(Resolve, PipelineIterationsTileTheChunkAndTheLastIsShorter) {
  Op pipeline;
  pipeline.code = OpCode::kPipeline;
  pipeline.pipelineUnitBytes = 48;
  pipeline.pipelineChunks = 1;
  pipeline.inner = {copy(local(BufferKind::kInput, 1, 1), local(BufferKind::kScratch, 1, 1)), {}};
  const auto resolved = resolve(onePlan({pipeline}, 2), 0, {256, 256, 4});
  ASSERT_TRUE(resolved) << resolved.error().message;
  const auto& ops = resolved->threadBlocks[0];
  ASSERT_EQ(ops.size(), 6u);  // 128 bytes by 48: three iterations of two ops
  const std::uint64_t lengths[] = {48, 48, 32};
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ops[2 * i].iteration, i);
    EXPECT_EQ(ops[2 * i + 1].innerIndex, 1u);
    ASSERT_EQ(ops[2 * i].pieces.size(), 1u);
    EXPECT_EQ(ops[2 * i].pieces[0].sources[0], (Extent{BufferKind::kInput, 0, 128 + 48 * i, lengths[i]}));
  }
  for (const std::uint64_t unit : {0u, 6u}) {
    pipeline.pipelineUnitBytes = unit;
    EXPECT_NE(resolveError(onePlan({pipeline}, 2), {256, 256, 4}).find("unit_size"), std::string::npos);
  }
  pipeline.pipelineUnitBytes = 4;
  EXPECT_NE(resolveError(onePlan({pipeline}, 2), {1ull << 40, 1ull << 40, 4}).find("too small"),
            std::string::npos);
}

TEST(Resolve, NothingToMoveLeavesOpsWithoutPieces) {
  Op pipeline;
  pipeline.code = OpCode::kPipeline;
  pipeline.pipelineUnitBytes = 16;
  pipeline.pipelineChunks = 1;
  pipeline.inner = {Op{}};
  const auto resolved =
      resolve(onePlan({copy(local(BufferKind::kInput, 0, 2), local(BufferKind::kOutput, 0, 2)), pipeline}, 2),
              0, {0, 0, 4});
  ASSERT_TRUE(resolved) << resolved.error().message;
  ASSERT_EQ(resolved->threadBlocks[0].size(), 2u);  // the pipeline's sync op still runs once
  EXPECT_TRUE(resolved->threadBlocks[0][0].pieces.empty());
  EXPECT_EQ(resolved->scratchBytes, 0u);
}

TEST(Resolve, OffsetsAreOf64Bits) {
  const std::uint64_t chunk = 5ull << 30;
  const auto resolved =
      resolve(onePlan({copy(local(BufferKind::kInput, 3, 1), local(BufferKind::kScratch, 2, 1))}, 4), 0,
              {4 * chunk, 4 * chunk, 4});
  ASSERT_TRUE(resolved) << resolved.error().message;
  EXPECT_EQ(resolved->threadBlocks[0][0].pieces[0].sources[0],
            (Extent{BufferKind::kInput, 0, 3 * chunk, chunk}));
  EXPECT_EQ(resolved->threadBlocks[0][0].pieces[0].destinations[0],
            (Extent{BufferKind::kScratch, 0, 2 * chunk, chunk}));
}

TEST(Resolve, ErrorsNameTheOp) {
  const MessageSize size{64, 64, 4};
  EXPECT_EQ(
      resolveError(
          onePlan({Op{}, copy(local(BufferKind::kInput, 3, 2), local(BufferKind::kOutput, 0, 2))}, 4), size),
      "schedule 'test': rank 0 block 0 op 1 (copy): chunks 3 to 5 of buffer 'i' of rank 0, which has 4");
  EXPECT_NE(resolveError(
                onePlan({copy(local(BufferKind::kInput, 0, 2), local(BufferKind::kOutput, 0, 1))}, 4), size)
                .find("operands of 2 and 1 chunks"),
            std::string::npos);
  Op signal;
  signal.code = OpCode::kSignal;
  signal.channelIds = {0};
  EXPECT_NE(resolveError(onePlan({signal}, 4), size).find("channel 0 of 0 memory channels"),
            std::string::npos);
  auto remote =
      copy({Operand::Place::kRemote, BufferKind::kInput, 2, 0, 1}, local(BufferKind::kOutput, 0, 1));
  remote.code = OpCode::kGet;
  EXPECT_NE(resolveError(onePlan({remote}, 4), size).find("remote buffer 2: the block refers to 0"),
            std::string::npos);
  remote.sources[0].place = Operand::Place::kSwitch;
  EXPECT_NE(resolveError(onePlan({remote}, 4), size).find("switch channel 2: the block has 0"),
            std::string::npos);
  auto sliced = copy(local(BufferKind::kInput, 0, 1), local(BufferKind::kOutput, 0, 1));
  sliced.group = ThreadBlockGroup{2, 2};
  EXPECT_NE(resolveError(onePlan({sliced}, 4), size).find("slice 2 of 2"), std::string::npos);
  Op outer;
  outer.code = OpCode::kPipeline;
  outer.pipelineUnitBytes = 16;
  outer.pipelineChunks = 1;
  outer.inner = {outer};
  EXPECT_NE(resolveError(onePlan({outer}, 4), size).find("a pipeline within a pipeline"), std::string::npos);
  EXPECT_FALSE(resolve(onePlan({}, 4), 1, size));
  auto huge = onePlan({}, 1);
  huge.ranks[0].scratchChunks = 4000000000u;
  EXPECT_NE(resolveError(huge, {1ull << 40, 1ull << 40, 4}).find("beyond 64 bits"), std::string::npos);
}

TEST(MessageSizes, CountsAreMeantAsTheCallsMeanThem) {
  const auto check = [](Collective collective, std::uint64_t input, std::uint64_t output) {
    const auto size = messageSize(collective, 3, 10, 4);
    EXPECT_EQ(size.inputBytes, input) << name(collective);
    EXPECT_EQ(size.outputBytes, output) << name(collective);
    EXPECT_EQ(size.elementBytes, 4u);
  };
  check(Collective::kAllReduce, 40, 40);
  check(Collective::kBroadcast, 40, 40);
  check(Collective::kReduce, 40, 40);
  check(Collective::kAllGather, 40, 120);
  check(Collective::kReduceScatter, 120, 40);
  check(Collective::kAllToAll, 120, 120);
  check(Collective::kBarrier, 0, 0);
  EXPECT_FALSE(ChunkLayout::make(emptyPlan("allreduce", 2, 1, 1),
                                 messageSize(Collective::kAllReduce, 2, 1ull << 63, 4)));
}

// ---- real plans at sizes of every remainder
// ----------------------------------------------------------------------

bool packetSource(OperandShape shape, std::size_t i) {
  return shape == OperandShape::LocalPacket || (shape == OperandShape::LocalAndPackets && i > 0);
}

/// Every extent within its buffer, all of a piece as long as each other, and no packet read that nobody
/// writes (which an executor would wait for without end).
class PlanCheck {
 public:
  PlanCheck(const Schedule& plan, const MessageSize& size) : size_(size) {
    for (Rank rank = 0; rank < plan.rankCount(); ++rank) {
      auto resolved = resolve(plan, rank, size);
      EXPECT_TRUE(resolved) << resolved.error().message;
      if (resolved) ranks_.push_back(std::move(*resolved));
    }
    complete_ = ranks_.size() == plan.ranks.size();
  }

  void run() {
    ASSERT_TRUE(complete_);
    for (const auto& rank : ranks_) {
      for (const auto& block : rank.threadBlocks) checkBlock(block);
    }
    for (const auto& [extent, op] : awaited_) {
      const auto& bytes = written_[extent.rank];
      ASSERT_LE(extent.offset + extent.bytes, bytes.size()) << op;
      const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(extent.offset);
      const auto last = first + static_cast<std::ptrdiff_t>(extent.bytes);
      ASSERT_EQ(std::find(first, last, false), last)
          << op << " of rank " << extent.rank << " waits for what nobody sends";
    }
  }

 private:
  void checkBlock(const std::vector<ResolvedOp>& block) {
    for (const auto& op : block) {
      for (const auto& piece : op.pieces) checkPiece(op, piece);
    }
  }

  void checkPiece(const ResolvedOp& op, const Piece& piece) {
    const auto bytes = piece.sources.front().bytes;
    for (std::size_t i = 0; i < piece.sources.size(); ++i) {
      checkExtent(piece.sources[i], bytes);
      if (!packetSource(traits(op.code).sources, i)) continue;
      awaited_.emplace_back(piece.sources[i],
                            std::string(traits(op.code).name) + " op " + std::to_string(op.opIndex));
    }
    for (const auto& extent : piece.destinations) {
      checkExtent(extent, bytes);
      if (extent.buffer == BufferKind::kScratch) mark(extent);
    }
  }

  void checkExtent(const Extent& extent, std::uint64_t bytes) const {
    const auto limit = extent.buffer == BufferKind::kScratch
                           ? ranks_[static_cast<std::size_t>(extent.rank)].scratchBytes
                       : extent.buffer == BufferKind::kInput ? size_.inputBytes
                                                             : size_.outputBytes;
    EXPECT_GT(extent.bytes, 0u);
    EXPECT_EQ(extent.bytes, bytes);
    EXPECT_LE(extent.offset + extent.bytes, limit);
  }

  void mark(const Extent& extent) {
    auto& bytes = written_[extent.rank];
    if (bytes.size() < extent.offset + extent.bytes) bytes.resize(extent.offset + extent.bytes);
    for (std::uint64_t i = 0; i < extent.bytes; ++i) bytes[extent.offset + i] = true;
  }

  MessageSize size_;
  bool complete_ = false;
  std::vector<ResolvedRank> ranks_;
  std::map<Rank, std::vector<bool>> written_;  // scratch
  std::vector<std::pair<Extent, std::string>> awaited_;
};

TEST(RealPlansAtAnySize, StayInBoundsAndAwaitOnlyWhatIsSent) {
  THESEUS_SKIP_WITHOUT_CASES();
  int plans = 0, sizes = 0;
  for (const char* folder : {"mscclpp", "mscclpp-vectors"}) {
    for (const auto& file : testing::caseFiles(folder, ".json")) {
      auto plan = readJson(testing::readFile(file));
      ASSERT_TRUE(plan) << plan.error().message;
      if (plan->usesSwitch()) continue;
      SCOPED_TRACE(file.string());
      ++plans;
      plan->minMessageBytes = 0;
      const std::uint64_t step = plan->rankCount() > 8 ? 37 : 5;
      for (std::uint64_t count = 0; count <= 160; count += step) {
        SCOPED_TRACE("count " + std::to_string(count));
        PlanCheck(*plan, messageSize(plan->collective(), plan->rankCount(), count, 4)).run();
        if (::testing::Test::HasFailure()) return;
        ++sizes;
      }
    }
  }
  std::printf("[          ] %d plans at %d sizes\n", plans, sizes);
  EXPECT_GE(plans, 25);
}

}  // namespace
}  // namespace theseus::schedule
