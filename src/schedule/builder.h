// Builds schedules op by op; what generators and tests use. One thread. Ids are handed out in order, so the
// same calls give the same schedule on every rank.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "schedule/schedule.h"

namespace theseus::schedule {

/// A range of chunks of one of a rank's buffers.
struct ChunkRange {
  BufferKind buffer = BufferKind::kInput;
  std::uint32_t index = 0;
  std::uint32_t size = 1;
};

class Builder;

/// Handle on one thread block of one rank; borrowed from the Builder, valid as long as it lives.
/// `peer` methods use the block's own channel to that peer. Channels pair by number (the k-th that a rank
/// declares to another with the k-th that the other declares back), so which two blocks talk is said with
/// Builder::connect. A block that was not connected opens its channel at first use: then the first block that
/// opens on one side talks with the first that opens on the other, the second with the second, and so on.
class BlockBuilder {
 public:
  BlockBuilder& copy(ChunkRange source, ChunkRange destination);
  /// destination = sources[0] + sources[1] + ...
  BlockBuilder& reduce(std::vector<ChunkRange> sources, ChunkRange destination);
  /// Writes `source` into `destination` of `peer` (buffer and chunks as the peer numbers them).
  BlockBuilder& put(Rank peer, ChunkRange source, ChunkRange destination);
  /// put, then signal: one fused op on a port channel, two ops on a memory channel (MSCCL++ has the fused op
  /// for ports only).
  BlockBuilder& putWithSignal(Rank peer, ChunkRange source, ChunkRange destination);
  BlockBuilder& signal(Rank peer);
  BlockBuilder& wait(Rank peer);
  BlockBuilder& flush(Rank peer);
  /// Reads `source` of `peer` into `destination`.
  BlockBuilder& get(Rank peer, ChunkRange source, ChunkRange destination);
  BlockBuilder& acquire(std::uint32_t semaphore);
  BlockBuilder& release(std::uint32_t semaphore);
  BlockBuilder& barrier(std::uint32_t barrierId, std::uint32_t threadBlocks);
  /// Any other op, made by hand: see channelPosition, localOperand and remoteOperand for its fields.
  BlockBuilder& append(Op op);

  Rank rank() const { return rank_; }
  std::uint32_t number() const { return block_; }
  /// Type and position in this block's list of its channel to `peer`; opens one if there is none.
  struct ChannelPosition {
    ChannelType type;
    std::uint32_t position;
  };
  ChannelPosition channelPosition(Rank peer);
  static Operand localOperand(ChunkRange range);
  Operand remoteOperand(Rank peer, ChunkRange range);

 private:
  friend class Builder;
  BlockBuilder(Builder& builder, Rank rank, std::uint32_t block)
      : builder_(&builder), rank_(rank), block_(block) {}
  ThreadBlock& threadBlock();
  BlockBuilder& sync(OpCode code, Rank peer);

  Builder* builder_;
  Rank rank_;
  std::uint32_t block_;
};

class Builder {
 public:
  Builder(std::string name, Collective collective, int ranks);
  Builder(const Builder&) = delete;  // blocks point to it
  Builder& operator=(const Builder&) = delete;

  /// Chunks of every rank's buffers (scratch may be raised later by scratch()).
  Builder& chunks(std::uint32_t input, std::uint32_t output, std::uint32_t scratch);
  Builder& bufferMode(BufferMode mode);
  Builder& root(Rank root);
  Builder& provenance(std::string key, std::string value);
  /// Type of the channels that are opened from now on; memory unless said otherwise.
  Builder& channelType(ChannelType type);

  /// A new thread block on `rank`.
  BlockBuilder block(Rank rank);
  /// Opens a channel each way between two blocks of different ranks; the blocks must not have one already.
  void connect(BlockBuilder& first, BlockBuilder& second);
  /// Reserves `count` scratch chunks on `rank`; returns the first index.
  std::uint32_t scratch(Rank rank, std::uint32_t count);
  /// A new semaphore on `rank`; returns its id.
  std::uint32_t semaphore(Rank rank, std::int64_t initial = 0);

  /// Ends the construction. A rank that opened fewer channels to a peer than the peer to it gets the missing
  /// ones.
  Schedule build() &&;

 private:
  friend class BlockBuilder;
  struct BlockKey {
    Rank rank;
    std::uint32_t block;
    Rank peer;
    friend auto operator<=>(const BlockKey&, const BlockKey&) = default;
  };
  struct RemoteKey {
    Rank rank;
    Rank peer;
    BufferKind kind;
    friend auto operator<=>(const RemoteKey&, const RemoteKey&) = default;
  };
  struct RankState {
    std::map<std::pair<Rank, ChannelType>, std::uint32_t> channelsTo;  // peer, type -> opened so far
  };

  BlockBuilder::ChannelPosition open(Rank rank, std::uint32_t block, Rank peer);
  std::uint32_t declareChannel(Rank rank, Rank peer, ChannelType type);
  std::uint32_t remoteBuffer(Rank rank, Rank peer, BufferKind kind, ChannelType type);
  std::uint32_t remoteBufferPosition(ThreadBlock& block, std::uint32_t remoteBuffer, ChannelType type);
  void balanceChannels();

  Schedule schedule_;
  ChannelType channelType_ = ChannelType::kMemory;
  std::vector<RankState> states_;
  std::map<BlockKey, BlockBuilder::ChannelPosition> opened_;
  std::map<RemoteKey, std::uint32_t> remoteBuffers_;
};

}  // namespace theseus::schedule
