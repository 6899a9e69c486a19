// Builds schedules op by op; what generators and tests use. One thread. Ids are handed out in order, so the same calls
// give the same schedule on every rank.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "schedule/schedule.h"

namespace theseus::schedule {

/// A range of chunks of one of this rank's buffers.
struct ChunkRange {
  BufferKind buffer = BufferKind::kInput;
  std::uint32_t index = 0;
  std::uint32_t size = 1;
};

class Builder;

/// Handle on one thread block of one rank; borrowed from the Builder, valid as long as it lives.
/// `peer` methods use the block's channel to that peer: each (block, peer) pair has a memory channel of its own, the
/// k-th one that either side's blocks open to the other. To pair blocks on two ranks, open them in the same order.
class BlockBuilder {
 public:
  BlockBuilder& copy(ChunkRange source, ChunkRange destination);
  /// destination = sources[0] + sources[1] + ...
  BlockBuilder& reduce(std::vector<ChunkRange> sources, ChunkRange destination);
  /// Writes `source` into `destination` of `peer` (buffer and chunks as the peer numbers them).
  BlockBuilder& put(Rank peer, ChunkRange source, ChunkRange destination);
  BlockBuilder& signal(Rank peer);
  BlockBuilder& wait(Rank peer);
  BlockBuilder& get(Rank peer, ChunkRange source, ChunkRange destination);
  BlockBuilder& acquire(std::uint32_t semaphore);
  BlockBuilder& release(std::uint32_t semaphore);
  BlockBuilder& barrier(std::uint32_t barrierId, std::uint32_t threadBlocks);

 private:
  friend class Builder;
  BlockBuilder(Builder& builder, Rank rank, std::uint32_t block) : builder_(&builder), rank_(rank), block_(block) {}
  std::uint32_t channelPosition(Rank peer);
  std::uint32_t remoteBufferPosition(Rank peer, BufferKind kind);
  Op& append(OpCode code);

  Builder* builder_;
  Rank rank_;
  std::uint32_t block_;
};

class Builder {
 public:
  Builder(std::string name, Collective collective, int ranks);

  /// Chunks of every rank's buffers (scratch may be raised later by scratch()).
  Builder& chunks(std::uint32_t input, std::uint32_t output, std::uint32_t scratch);
  Builder& bufferMode(BufferMode mode);
  Builder& root(Rank root);
  Builder& provenance(std::string key, std::string value);

  /// A new thread block on `rank`.
  BlockBuilder block(Rank rank);
  /// Reserves `count` scratch chunks on `rank`; returns the first index.
  std::uint32_t scratch(Rank rank, std::uint32_t count);
  /// A new semaphore on `rank`; returns its id.
  std::uint32_t semaphore(Rank rank, std::int64_t initial = 0);

  Schedule build() &&;

 private:
  friend class BlockBuilder;
  Schedule schedule_;
};

}  // namespace theseus::schedule
