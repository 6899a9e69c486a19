#include "schedule/chunk_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace theseus::schedule {
namespace {

std::uint64_t lowestBit(std::uint64_t value) { return value & (~value + 1); }

std::uint64_t ceilDivide(std::uint64_t value, std::uint64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

/// Blocks of a user buffer: what one rank contributes or receives is never split across two of them.
std::uint64_t blockCount(Collective collective, BufferKind kind, std::uint64_t ranks) {
  switch (collective) {
    case Collective::kAllGather:
      return kind == BufferKind::kOutput ? ranks : 1;
    case Collective::kReduceScatter:
      return kind == BufferKind::kInput ? ranks : 1;
    case Collective::kAllToAll:
      return ranks;
    default:
      return 1;
  }
}

/// Bytes that input and output must have in common: a whole buffer times the blocks of the other.
Status checkRelation(Collective collective, std::uint64_t ranks, const MessageSize& size) {
  if (size.inputBytes == 0 || size.outputBytes == 0) return {};  // absent or an alias of the other
  if (collective == Collective::kCustom || collective == Collective::kSendRecv) return {};
  const auto inputBlocks = blockCount(collective, BufferKind::kInput, ranks);
  const auto outputBlocks = blockCount(collective, BufferKind::kOutput, ranks);
  if (size.inputBytes % inputBlocks == 0 && size.outputBytes % outputBlocks == 0 &&
      size.inputBytes / inputBlocks == size.outputBytes / outputBlocks) {
    return {};
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("{} over {} ranks cannot have an input of {} and an output of {} bytes: input is {} and "
                  "output {} blocks of one size",
                  name(collective), ranks, size.inputBytes, size.outputBytes, inputBlocks, outputBlocks));
}

}  // namespace

ChunkLayout::ChunkLayout(const Schedule& schedule, const MessageSize& size) {
  const auto collective = schedule.collective();
  const auto count = schedule.ranks.size();
  ranks_.reserve(count);
  for (const auto& plan : schedule.ranks) {
    RankBuffers buffers;
    buffers.input = {blockCount(collective, BufferKind::kInput, count), size.inputBytes, 0, plan.inputChunks,
                     0};
    buffers.output = {blockCount(collective, BufferKind::kOutput, count), size.outputBytes, 0,
                      plan.outputChunks, 0};
    buffers.scratchChunks = plan.scratchChunks;
    ranks_.push_back(buffers);
  }
}

Result<ChunkLayout> ChunkLayout::make(const Schedule& schedule, const MessageSize& size) {
  ChunkLayout layout(schedule, size);
  THESEUS_TRY(layout.checkSizes(schedule, size));
  if (!layout.fitsBlocks()) {
    // Chunks that span blocks: the one grid of MSCCL++ over the whole buffer.
    for (auto& rank : layout.ranks_) rank.input.blocks = rank.output.blocks = 1;
    if (schedule.collective() != Collective::kCustom) THESEUS_TRY(layout.checkOneChunkSize());
  }
  layout.chooseUnit(schedule.bufferAlignment, size.elementBytes);
  layout.computeSlots();
  return layout;
}

Status ChunkLayout::checkSizes(const Schedule& schedule, const MessageSize& size) const {
  if (size.elementBytes == 0 || size.elementBytes > 8 || (size.elementBytes & (size.elementBytes - 1)) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("an element of {} bytes: must be 1, 2, 4 or 8", size.elementBytes));
  }
  if (schedule.bufferAlignment == 0) {
    return fail(ErrorCode::kInvalidSchedule,
                fmt::format("schedule '{}': buffer_alignment is 0", schedule.name));
  }
  const auto collective = schedule.collective();
  const bool byOutput = collective == Collective::kAllGather || size.inputBytes == 0;
  const std::uint64_t bytes = byOutput ? size.outputBytes : size.inputBytes;
  if (bytes < schedule.minMessageBytes || bytes > schedule.maxMessageBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("schedule '{}' serves messages of {} to {} bytes, not {}", schedule.name,
                            schedule.minMessageBytes, schedule.maxMessageBytes, bytes));
  }
  for (const auto kind : {BufferKind::kInput, BufferKind::kOutput}) {
    const auto whole = kind == BufferKind::kInput ? size.inputBytes : size.outputBytes;
    const auto blocks = blockCount(collective, kind, schedule.ranks.size());
    if (whole % size.elementBytes != 0 || whole / size.elementBytes % blocks != 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("buffer '{}' of {} bytes is not {} blocks of whole {}-byte elements",
                              name(kind), whole, blocks, size.elementBytes));
    }
  }
  return checkRelation(collective, schedule.ranks.size(), size);
}

/// Every buffer has whole chunks in each block, as many in every buffer.
bool ChunkLayout::fitsBlocks() const {
  std::uint64_t perBlock = 0;
  for (const auto& rank : ranks_) {
    for (const auto* buffer : {&rank.input, &rank.output}) {
      if (buffer->chunks == 0) continue;
      if (buffer->chunks % buffer->blocks != 0) return false;
      const auto here = buffer->chunks / buffer->blocks;
      if (perBlock != 0 && here != perBlock) return false;
      perBlock = here;
    }
  }
  return true;
}

/// bytes / chunks is the same everywhere; without it "chunk" would mean two sizes.
Status ChunkLayout::checkOneChunkSize() const {
  const UserBuffer* first = nullptr;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const auto* buffer : {&ranks_[rank].input, &ranks_[rank].output}) {
      if (buffer->chunks == 0) continue;
      if (first == nullptr) first = buffer;
      const auto left = static_cast<unsigned __int128>(buffer->bytes) * first->chunks;
      const auto right = static_cast<unsigned __int128>(first->bytes) * buffer->chunks;
      if (left == right) continue;
      return fail(
          ErrorCode::kInvalidSchedule,
          fmt::format("rank {}: a buffer of {} bytes in {} chunks beside one of {} bytes in {} chunks: all "
                      "chunks of a plan must have one size",
                      rank, buffer->bytes, buffer->chunks, first->bytes, first->chunks));
    }
  }
  return {};
}

bool ChunkLayout::unitFits(std::uint64_t unit, std::uint32_t elementBytes) const {
  if (unit % elementBytes != 0) return false;
  for (const auto& rank : ranks_) {
    for (const auto* buffer : {&rank.input, &rank.output}) {
      if (buffer->bytes % unit != 0) return false;
      if (buffer->chunks != 0 && buffer->bytes / unit % buffer->chunks != 0) return false;
    }
  }
  return true;
}

void ChunkLayout::chooseUnit(std::uint64_t alignment, std::uint32_t elementBytes) {
  unitBytes_ = alignment;
  if (unitFits(alignment, elementBytes)) return;
  std::uint64_t bits = alignment;
  for (const auto& rank : ranks_)
    bits |= rank.input.bytes / rank.input.blocks | rank.output.bytes / rank.output.blocks;
  unitBytes_ = std::max<std::uint64_t>(lowestBit(bits), elementBytes);
}

void ChunkLayout::computeSlots() {
  std::uint64_t slotUnits = 0;
  for (auto& rank : ranks_) {
    for (auto* buffer : {&rank.input, &rank.output}) {
      if (buffer->chunks == 0) continue;
      buffer->blockUnits = buffer->bytes / buffer->blocks / unitBytes_;
      buffer->chunksPerBlock = static_cast<std::uint32_t>(buffer->chunks / buffer->blocks);
      slotUnits = std::max(slotUnits, ceilDivide(buffer->blockUnits, buffer->chunksPerBlock));
    }
  }
  slotBytes_ = slotUnits * unitBytes_;
  for (const auto& rank : ranks_) {
    for (const auto* buffer : {&rank.input, &rank.output}) {
      if (buffer->chunks != 0 && buffer->blockUnits != slotUnits * buffer->chunksPerBlock) uniform_ = false;
    }
  }
}

const ChunkLayout::UserBuffer& ChunkLayout::user(Rank rank, BufferKind kind) const {
  const auto& buffers = ranks_[static_cast<std::size_t>(rank)];
  return kind == BufferKind::kInput ? buffers.input : buffers.output;
}

std::uint32_t ChunkLayout::chunks(Rank rank, BufferKind kind) const {
  THESEUS_CHECK(rank >= 0 && static_cast<std::size_t>(rank) < ranks_.size(), "rank outside the schedule");
  if (kind == BufferKind::kScratch) return ranks_[static_cast<std::size_t>(rank)].scratchChunks;
  return user(rank, kind).chunks;
}

std::uint64_t ChunkLayout::start(Rank rank, BufferKind kind, std::uint64_t chunk) const {
  if (kind == BufferKind::kScratch) return chunk * slotBytes_;
  const auto& buffer = user(rank, kind);
  const auto block = chunk / buffer.chunksPerBlock;
  const auto within = chunk % buffer.chunksPerBlock;
  const auto units = buffer.blockUnits / buffer.chunksPerBlock;
  const auto longer = buffer.blockUnits % buffer.chunksPerBlock;
  return unitBytes_ * (block * buffer.blockUnits + within * units + std::min(within, longer));
}

std::uint64_t ChunkLayout::length(Rank rank, BufferKind kind, std::uint64_t chunk) const {
  if (kind == BufferKind::kScratch) {
    return scratchLengths_.empty() ? slotBytes_ : scratchLengths_[static_cast<std::size_t>(rank)][chunk];
  }
  const auto& buffer = user(rank, kind);
  const auto within = chunk % buffer.chunksPerBlock;
  const auto units = buffer.blockUnits / buffer.chunksPerBlock;
  return unitBytes_ * (units + (within < buffer.blockUnits % buffer.chunksPerBlock ? 1 : 0));
}

}  // namespace theseus::schedule
