#include "schedule/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace theseus::schedule {
namespace {

using testing::ElementsAre;

TEST(Builder, ConnectedBlocksShareAChannelPairWhateverTheOrderOfUse) {
  Builder builder("pairs", Collective::kAllGather, 3);
  builder.chunks(1, 3, 0);
  BlockBuilder a0 = builder.block(0), a1 = builder.block(0);
  BlockBuilder b0 = builder.block(1), b1 = builder.block(1);
  BlockBuilder c0 = builder.block(2);
  builder.connect(a0, c0);  // puts another peer's channel first in rank 0's list
  builder.connect(a1, b0);
  builder.connect(b1, a0);
  b1.wait(0);
  b0.wait(0);
  a0.signal(1).signal(2);
  a1.signal(1);
  c0.wait(0);
  const Schedule schedule = std::move(builder).build();

  const RankPlan& first = schedule.ranks[0];
  EXPECT_THAT(first.channelPeers(ChannelType::kMemory), ElementsAre(2, 1, 1));
  EXPECT_THAT(schedule.ranks[1].channelPeers(ChannelType::kMemory), ElementsAre(0, 0));
  // First memory channel between 0 and 1: a1 - b0; second: a0 - b1.
  EXPECT_THAT(first.threadBlocks[0].channelIds(ChannelType::kMemory), ElementsAre(0, 2));
  EXPECT_THAT(first.threadBlocks[1].channelIds(ChannelType::kMemory), ElementsAre(1));
  EXPECT_THAT(schedule.ranks[1].threadBlocks[0].channelIds(ChannelType::kMemory), ElementsAre(0));
  EXPECT_THAT(schedule.ranks[1].threadBlocks[1].channelIds(ChannelType::kMemory), ElementsAre(1));
  // a0's signal to rank 1 uses the second channel of its own list.
  EXPECT_THAT(first.threadBlocks[0].ops[0].channelIds, ElementsAre(1));
  EXPECT_THAT(first.threadBlocks[0].ops[1].channelIds, ElementsAre(0));
}

TEST(Builder, FirstUseOpensChannelsInOrder) {
  Builder builder("order", Collective::kAllGather, 2);
  BlockBuilder a0 = builder.block(0), a1 = builder.block(0), b0 = builder.block(1), b1 = builder.block(1);
  a1.signal(1);
  a0.signal(1);
  a1.wait(1);  // no second channel for the same block and peer
  b0.wait(0);
  b1.wait(0);
  const Schedule schedule = std::move(builder).build();
  EXPECT_THAT(schedule.ranks[0].channelPeers(ChannelType::kMemory), ElementsAre(1, 1));
  EXPECT_THAT(schedule.ranks[0].threadBlocks[1].channelIds(ChannelType::kMemory), ElementsAre(0));
  EXPECT_THAT(schedule.ranks[1].threadBlocks[0].channelIds(ChannelType::kMemory), ElementsAre(0));
}

TEST(Builder, OneSidedChannelsAreDeclaredOnBothSides) {
  Builder builder("one-sided", Collective::kBroadcast, 3);
  builder.block(0).put(1, {}, {BufferKind::kOutput}).put(2, {}, {BufferKind::kOutput});
  builder.block(0).put(1, {}, {BufferKind::kOutput});
  const Schedule schedule = std::move(builder).build();
  EXPECT_THAT(schedule.ranks[1].channelPeers(ChannelType::kMemory), ElementsAre(0, 0));
  EXPECT_THAT(schedule.ranks[2].channelPeers(ChannelType::kMemory), ElementsAre(0));
}

TEST(Builder, PutNamesThePeersBufferThroughTheBlocksList) {
  Builder builder("buffers", Collective::kAllReduce, 3);
  BlockBuilder block = builder.block(0);
  block.put(2, {BufferKind::kInput, 4, 2}, {BufferKind::kScratch, 7, 2});
  block.put(1, {}, {BufferKind::kOutput});
  builder.block(0).put(1, {}, {BufferKind::kOutput}).put(2, {}, {BufferKind::kScratch});
  const Schedule schedule = std::move(builder).build();

  const RankPlan& plan = schedule.ranks[0];
  EXPECT_THAT(plan.remoteBuffers, ElementsAre(RemoteBuffer{2, BufferKind::kScratch, {ChannelType::kMemory}},
                                              RemoteBuffer{1, BufferKind::kOutput, {ChannelType::kMemory}}));
  EXPECT_THAT(plan.threadBlocks[0].remoteBufferIds(ChannelType::kMemory), ElementsAre(0, 1));
  EXPECT_THAT(plan.threadBlocks[1].remoteBufferIds(ChannelType::kMemory), ElementsAre(1, 0));
  const Op& put = plan.threadBlocks[0].ops[0];
  EXPECT_THAT(put.channelIds, ElementsAre());  // memory puts name no channel
  EXPECT_THAT(put.sources, ElementsAre(Operand{Operand::Place::kLocal, BufferKind::kInput, 0, 4, 2}));
  EXPECT_THAT(put.destinations, ElementsAre(Operand{Operand::Place::kRemote, BufferKind::kInput, 0, 7, 2}));
  EXPECT_EQ(plan.threadBlocks[1].ops[0].destinations[0].id, 0u);
}

TEST(Builder, PutWithSignalIsOneOpOnAPortAndTwoInMemory) {
  Builder builder("fused", Collective::kBroadcast, 2);
  builder.block(0).putWithSignal(1, {}, {BufferKind::kOutput});
  builder.channelType(ChannelType::kPort);
  builder.block(0).putWithSignal(1, {}, {BufferKind::kOutput}).flush(1);
  const Schedule schedule = std::move(builder).build();

  const auto& memory = schedule.ranks[0].threadBlocks[0].ops;
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory[0].code, OpCode::kPut);
  EXPECT_EQ(memory[1].code, OpCode::kSignal);
  const auto& port = schedule.ranks[0].threadBlocks[1].ops;
  ASSERT_EQ(port.size(), 2u);
  EXPECT_EQ(port[0].code, OpCode::kPutWithSignal);
  EXPECT_EQ(port[0].channelType, ChannelType::kPort);
  EXPECT_THAT(port[0].channelIds, ElementsAre(0));
  EXPECT_EQ(port[1].code, OpCode::kFlush);
  EXPECT_THAT(schedule.ranks[0].remoteBuffers[0].accessTypes,
              ElementsAre(ChannelType::kMemory, ChannelType::kPort));
  EXPECT_THAT(schedule.ranks[1].channelPeers(ChannelType::kPort), ElementsAre(0));
}

TEST(Builder, LocalOpsAndReservations) {
  Builder builder("local", Collective::kAllReduce, 2);
  builder.chunks(4, 4, 2).root(1).bufferMode(BufferMode::kEither).provenance("generator", "test");
  EXPECT_EQ(builder.scratch(1, 3), 2u);
  EXPECT_EQ(builder.scratch(1, 1), 5u);
  EXPECT_EQ(builder.semaphore(0), 0u);
  EXPECT_EQ(builder.semaphore(0, 2), 1u);
  builder.block(0)
      .copy({BufferKind::kInput, 1}, {BufferKind::kOutput, 2})
      .reduce({{BufferKind::kInput, 0}, {BufferKind::kScratch, 1}}, {BufferKind::kOutput, 0})
      .release(1)
      .acquire(0)
      .barrier(3, 2);
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(schedule.ranks[0].scratchChunks, 2u);
  EXPECT_EQ(schedule.ranks[1].scratchChunks, 6u);
  EXPECT_THAT(schedule.ranks[0].semaphores, ElementsAre(0, 2));
  const auto& ops = schedule.ranks[0].threadBlocks[0].ops;
  EXPECT_EQ(ops[1].sources.size(), 2u);
  EXPECT_THAT(ops[2].semaphoreIds, ElementsAre(1));
  EXPECT_EQ(ops[4].barrierId, 3u);
  EXPECT_EQ(ops[4].barrierThreadBlocks, 2u);
  EXPECT_EQ(schedule.collective(), Collective::kAllReduce);
}

TEST(BuilderDeathTest, RefusesAmbiguousPairs) {
  Builder builder("ambiguous", Collective::kAllReduce, 2);
  BlockBuilder a0 = builder.block(0), a1 = builder.block(0), b0 = builder.block(1);
  a0.signal(1);
  EXPECT_DEATH(builder.connect(a1, b0), "paired with this connection");
  EXPECT_DEATH(builder.connect(a0, b0), "one channel to the other's rank");
  EXPECT_DEATH(a1.signal(0), "another rank");
}

}  // namespace
}  // namespace theseus::schedule
