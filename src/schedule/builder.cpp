#include "schedule/builder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace theseus::schedule {
namespace {

/// The entry of `list` for `type`, appended if there is none.
template <class Entry, class Field>
Entry& entryOf(std::vector<Entry>& list, Field field, ChannelType type) {
  for (Entry& entry : list) {
    if (entry.*field == type) return entry;
  }
  Entry& entry = list.emplace_back();
  entry.*field = type;
  return entry;
}

}  // namespace

// --- BlockBuilder
// ---------------------------------------------------------------------------------------------------

ThreadBlock& BlockBuilder::threadBlock() {
  return builder_->schedule_.ranks[static_cast<std::size_t>(rank_)].threadBlocks[block_];
}

Operand BlockBuilder::localOperand(ChunkRange range) {
  return Operand{.place = Operand::Place::kLocal,
                 .buffer = range.buffer,
                 .id = 0,
                 .index = range.index,
                 .size = range.size};
}

Operand BlockBuilder::remoteOperand(Rank peer, ChunkRange range) {
  const ChannelType type = channelPosition(peer).type;
  const std::uint32_t buffer = builder_->remoteBuffer(rank_, peer, range.buffer, type);
  return Operand{.place = Operand::Place::kRemote,
                 .buffer = BufferKind::kInput,
                 .id = builder_->remoteBufferPosition(threadBlock(), buffer, type),
                 .index = range.index,
                 .size = range.size};
}

BlockBuilder::ChannelPosition BlockBuilder::channelPosition(Rank peer) {
  const auto found = builder_->opened_.find({rank_, block_, peer});
  return found != builder_->opened_.end() ? found->second : builder_->open(rank_, block_, peer);
}

BlockBuilder& BlockBuilder::append(Op op) {
  threadBlock().ops.push_back(std::move(op));
  return *this;
}

BlockBuilder& BlockBuilder::sync(OpCode code, Rank peer) {
  const ChannelPosition channel = channelPosition(peer);
  Op op;
  op.code = code;
  op.channelType = channel.type;
  op.channelIds = {channel.position};
  return append(std::move(op));
}

BlockBuilder& BlockBuilder::copy(ChunkRange source, ChunkRange destination) {
  Op op;
  op.code = OpCode::kCopy;
  op.sources = {localOperand(source)};
  op.destinations = {localOperand(destination)};
  return append(std::move(op));
}

BlockBuilder& BlockBuilder::reduce(std::vector<ChunkRange> sources, ChunkRange destination) {
  Op op;
  op.code = OpCode::kReduce;
  for (const ChunkRange& source : sources) op.sources.push_back(localOperand(source));
  op.destinations = {localOperand(destination)};
  return append(std::move(op));
}

BlockBuilder& BlockBuilder::put(Rank peer, ChunkRange source, ChunkRange destination) {
  const ChannelPosition channel = channelPosition(peer);
  Op op;
  op.code = OpCode::kPut;
  op.channelType = channel.type;
  // The format names a port channel for each destination and none for memory, where the buffer alone says
  // where to.
  if (channel.type == ChannelType::kPort) op.channelIds = {channel.position};
  op.sources = {localOperand(source)};
  op.destinations = {remoteOperand(peer, destination)};
  return append(std::move(op));
}

BlockBuilder& BlockBuilder::putWithSignal(Rank peer, ChunkRange source, ChunkRange destination) {
  put(peer, source, destination);
  if (channelPosition(peer).type == ChannelType::kMemory) return signal(peer);
  threadBlock().ops.back().code = OpCode::kPutWithSignal;
  return *this;
}

BlockBuilder& BlockBuilder::signal(Rank peer) { return sync(OpCode::kSignal, peer); }
BlockBuilder& BlockBuilder::wait(Rank peer) { return sync(OpCode::kWait, peer); }
BlockBuilder& BlockBuilder::flush(Rank peer) { return sync(OpCode::kFlush, peer); }

BlockBuilder& BlockBuilder::get(Rank peer, ChunkRange source, ChunkRange destination) {
  const ChannelPosition channel = channelPosition(peer);
  Op op;
  op.code = OpCode::kGet;
  op.channelType = channel.type;
  op.channelIds = {channel.position};
  op.sources = {remoteOperand(peer, source)};
  op.destinations = {localOperand(destination)};
  return append(std::move(op));
}

BlockBuilder& BlockBuilder::acquire(std::uint32_t semaphore) {
  Op op;
  op.code = OpCode::kSemaphoreAcquire;
  op.semaphoreIds = {semaphore};
  return append(std::move(op));
}

BlockBuilder& BlockBuilder::release(std::uint32_t semaphore) {
  Op op;
  op.code = OpCode::kSemaphoreRelease;
  op.semaphoreIds = {semaphore};
  return append(std::move(op));
}

BlockBuilder& BlockBuilder::barrier(std::uint32_t barrierId, std::uint32_t threadBlocks) {
  Op op;
  op.code = OpCode::kBarrier;
  op.barrierId = barrierId;
  op.barrierThreadBlocks = threadBlocks;
  return append(std::move(op));
}

// --- Builder
// --------------------------------------------------------------------------------------------------------

Builder::Builder(std::string name, Collective collective, int ranks) {
  THESEUS_CHECK(ranks > 0, "a schedule has at least one rank");
  schedule_.name = std::move(name);
  schedule_.collectiveName = std::string(theseus::name(collective));
  schedule_.ranks.resize(static_cast<std::size_t>(ranks));
  states_.resize(static_cast<std::size_t>(ranks));
}

Builder& Builder::chunks(std::uint32_t input, std::uint32_t output, std::uint32_t scratch) {
  for (RankPlan& rank : schedule_.ranks) {
    rank.inputChunks = input;
    rank.outputChunks = output;
    rank.scratchChunks = scratch;
  }
  return *this;
}

Builder& Builder::bufferMode(BufferMode mode) {
  schedule_.bufferMode = mode;
  return *this;
}

Builder& Builder::root(Rank root) {
  schedule_.root = root;
  return *this;
}

Builder& Builder::provenance(std::string key, std::string value) {
  schedule_.provenance[std::move(key)] = std::move(value);
  return *this;
}

Builder& Builder::channelType(ChannelType type) {
  THESEUS_CHECK(type != ChannelType::kSwitch, "switch channels have groups, not peers");
  channelType_ = type;
  return *this;
}

BlockBuilder Builder::block(Rank rank) {
  auto& blocks = schedule_.ranks.at(static_cast<std::size_t>(rank)).threadBlocks;
  blocks.emplace_back();
  return BlockBuilder(*this, rank, static_cast<std::uint32_t>(blocks.size() - 1));
}

void Builder::connect(BlockBuilder& first, BlockBuilder& second) {
  const bool fresh = !opened_.contains({first.rank_, first.block_, second.rank_}) &&
                     !opened_.contains({second.rank_, second.block_, first.rank_});
  THESEUS_CHECK(fresh, "each of the two blocks may have one channel to the other's rank");
  const auto count = [&](Rank from, Rank to) {
    return states_[static_cast<std::size_t>(from)].channelsTo[{to, channelType_}];
  };
  THESEUS_CHECK(count(first.rank_, second.rank_) == count(second.rank_, first.rank_),
                "channels opened on one side only would be paired with this connection's");
  open(first.rank_, first.block_, second.rank_);
  open(second.rank_, second.block_, first.rank_);
}

std::uint32_t Builder::scratch(Rank rank, std::uint32_t count) {
  RankPlan& plan = schedule_.ranks.at(static_cast<std::size_t>(rank));
  const std::uint32_t first = plan.scratchChunks;
  plan.scratchChunks += count;
  return first;
}

std::uint32_t Builder::semaphore(Rank rank, std::int64_t initial) {
  RankPlan& plan = schedule_.ranks.at(static_cast<std::size_t>(rank));
  plan.semaphores.push_back(initial);
  return static_cast<std::uint32_t>(plan.semaphores.size() - 1);
}

BlockBuilder::ChannelPosition Builder::open(Rank rank, std::uint32_t block, Rank peer) {
  THESEUS_CHECK(peer >= 0 && peer < schedule_.rankCount() && peer != rank, "a channel leads to another rank");
  const std::uint32_t number = declareChannel(rank, peer, channelType_);
  auto& channels = schedule_.ranks[static_cast<std::size_t>(rank)].threadBlocks[block].channels;
  ThreadBlockChannels& list = entryOf(channels, &ThreadBlockChannels::type, channelType_);
  list.ids.push_back(number);
  const BlockBuilder::ChannelPosition position{channelType_, static_cast<std::uint32_t>(list.ids.size() - 1)};
  opened_[{rank, block, peer}] = position;
  return position;
}

std::uint32_t Builder::declareChannel(Rank rank, Rank peer, ChannelType type) {
  RankPlan& plan = schedule_.ranks[static_cast<std::size_t>(rank)];
  ChannelDeclaration& declaration = entryOf(plan.channels, &ChannelDeclaration::type, type);
  declaration.connectedTo.push_back(peer);
  ++states_[static_cast<std::size_t>(rank)].channelsTo[{peer, type}];
  return static_cast<std::uint32_t>(declaration.connectedTo.size() - 1);
}

std::uint32_t Builder::remoteBuffer(Rank rank, Rank peer, BufferKind kind, ChannelType type) {
  auto& buffers = schedule_.ranks[static_cast<std::size_t>(rank)].remoteBuffers;
  const auto [found, isNew] =
      remoteBuffers_.try_emplace({rank, peer, kind}, static_cast<std::uint32_t>(buffers.size()));
  if (isNew) buffers.push_back(RemoteBuffer{peer, kind, {}});
  auto& types = buffers[found->second].accessTypes;
  const auto place = std::lower_bound(types.begin(), types.end(), type);
  if (place == types.end() || *place != type) types.insert(place, type);
  return found->second;
}

std::uint32_t Builder::remoteBufferPosition(ThreadBlock& block, std::uint32_t remoteBuffer,
                                            ChannelType type) {
  auto& ids = entryOf(block.remoteBuffers, &ThreadBlockRemoteBuffers::accessType, type).ids;
  const auto found = std::find(ids.begin(), ids.end(), remoteBuffer);
  const auto position = static_cast<std::uint32_t>(found - ids.begin());
  if (found == ids.end()) ids.push_back(remoteBuffer);
  return position;
}

void Builder::balanceChannels() {
  for (Rank rank = 0; rank < schedule_.rankCount(); ++rank) {
    // A copy: declareChannel below changes the peers' maps, never this one's.
    const auto channelsTo = states_[static_cast<std::size_t>(rank)].channelsTo;
    for (const auto& [key, count] : channelsTo) {
      const auto& [peer, type] = key;
      auto& back = states_[static_cast<std::size_t>(peer)].channelsTo;
      while (back[{rank, type}] < count) declareChannel(peer, rank, type);
    }
  }
}

Schedule Builder::build() && {
  balanceChannels();
  return std::move(schedule_);
}

}  // namespace theseus::schedule
