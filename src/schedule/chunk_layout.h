// Where the chunks of every rank's buffers lie for one message size. Built once for a resolution, then read
// only. "Slot space": every chunk has a slot of slotBytes(); ranges are cut there, then clamped to what a
// chunk really has.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/resolve.h"
#include "schedule/schedule.h"
#include "theseus/result.h"

namespace theseus::schedule {

class ChunkLayout {
 public:
  /// Errors: buffer sizes that do not belong to the collective, size out of the plan's range.
  static Result<ChunkLayout> make(const Schedule& schedule, const MessageSize& size);

  std::uint64_t unitBytes() const { return unitBytes_; }
  std::uint64_t slotBytes() const { return slotBytes_; }
  /// All chunks of all user buffers fill their slots: any range of chunks is contiguous.
  bool uniform() const { return uniform_; }

  std::uint32_t chunks(Rank rank, BufferKind kind) const;
  std::uint64_t start(Rank rank, BufferKind kind, std::uint64_t chunk) const;
  std::uint64_t length(Rank rank, BufferKind kind, std::uint64_t chunk) const;

  /// By rank and scratch chunk: what is ever written of it, when that is less than the slot.
  void setScratchLengths(std::vector<std::vector<std::uint64_t>> lengths) {
    scratchLengths_ = std::move(lengths);
  }

 private:
  /// One user buffer: `chunksPerBlock` chunks in each block of `blockUnits` units.
  struct UserBuffer {
    std::uint64_t blocks = 1;
    std::uint64_t bytes = 0;
    std::uint64_t blockUnits = 0;
    std::uint32_t chunks = 0;
    std::uint32_t chunksPerBlock = 0;
  };
  struct RankBuffers {
    UserBuffer input;
    UserBuffer output;
    std::uint32_t scratchChunks = 0;
  };

  explicit ChunkLayout(const Schedule& schedule, const MessageSize& size);
  Status checkSizes(const Schedule& schedule, const MessageSize& size) const;
  Status checkOneChunkSize() const;
  bool fitsBlocks() const;
  bool unitFits(std::uint64_t unit, std::uint32_t elementBytes) const;
  void chooseUnit(std::uint64_t alignment, std::uint32_t elementBytes);
  void computeSlots();
  const UserBuffer& user(Rank rank, BufferKind kind) const;

  std::vector<RankBuffers> ranks_;
  std::vector<std::vector<std::uint64_t>> scratchLengths_;  // empty: all slots are full
  std::uint64_t unitBytes_ = 1;
  std::uint64_t slotBytes_ = 0;
  bool uniform_ = true;
};

}  // namespace theseus::schedule
