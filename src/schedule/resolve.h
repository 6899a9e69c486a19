// From chunks to bytes: one rank's ops for a given message size. Pure functions, any thread.
// The rules are those of MSCCL++'s loader where it computes (docs/schedule-format.md, "chunks to bytes"),
// extended to sizes that it refuses: user buffers are split evenly in units, scratch slots are as large as
// the largest chunk.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"
#include "theseus/result.h"

namespace theseus::schedule {

/// What a call brings: bytes of one rank's input and output buffers and the element size (1, 2, 4, 8).
struct MessageSize {
  std::uint64_t inputBytes = 0;
  std::uint64_t outputBytes = 0;
  std::uint32_t elementBytes = 4;
};

/// A contiguous range of one buffer. Empty ranges are kept out of ResolvedOp.
struct Extent {
  BufferKind buffer = BufferKind::kInput;
  Rank rank = 0;  // owner: this rank or a peer
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// Operands of one op for one contiguous piece of data: all extents have the same length.
/// An op whose chunks do not lie side by side (uneven sizes) has several pieces.
/// Ops with paired operands (put, get, ppkt, pws, pwsf: "dst[k] = src[k]") have at least one piece for each
/// pair, with one source and one destination. All other ops have every operand in every piece. A switch
/// operand is the extent of this rank's own part; the members lie at the same offset.
struct Piece {
  std::uint32_t pair = 0;  // k; names the op's k-th channel for port ops
  std::vector<Extent> sources;
  std::vector<Extent> destinations;
};

struct ResolvedOp {
  OpCode code = OpCode::kNop;
  std::uint32_t opIndex = 0;     // position in the block's op list (the pipeline's position for inner ops)
  std::uint32_t innerIndex = 0;  // position within a pipeline
  std::uint32_t iteration = 0;   // of a pipeline, else 0
  ChannelType channelType = ChannelType::kMemory;
  std::vector<std::uint32_t>
      channels;  // rank-level channel numbers of channelType (of its operands for a switch)
  std::vector<std::uint32_t> semaphores;
  std::uint32_t barrierId = 0;
  std::uint32_t barrierThreadBlocks = 0;
  std::vector<Piece> pieces;  // empty for sync ops and where the range is empty
};

/// One rank's part, pipelines unrolled.
struct ResolvedRank {
  std::uint64_t scratchBytes = 0;  // what the ops touch (our layout, packets not doubled)
  std::vector<std::vector<ResolvedOp>> threadBlocks;
};

/// Resolves rank `rank`. Errors: wrong buffer sizes for the collective, size out of the plan's range, ids or
/// chunks out of range (a verified plan has none), a plan too large to expand.
Result<ResolvedRank> resolve(const Schedule& schedule, Rank rank, const MessageSize& size);

/// MSCCL++'s own numbers for the same question, for conformance: scratch allocation (doubled for LL and for
/// double scratch, 64 MiB for reuse_resources) and bytes of a scratch chunk.
struct UpstreamScratch {
  std::uint64_t allocationBytes = 0;
  std::uint64_t chunkBytes = 0;
};
Result<UpstreamScratch> upstreamScratch(const Schedule& schedule, Rank rank, const MessageSize& size);

/// Bytes of one rank's input and output for `count` elements as users count them: allReduce, broadcast,
/// reduce: the whole vector; allGather: one rank's contribution; reduceScatter: one rank's result; allToAll:
/// to one peer. Bytes beyond 64 bits saturate, so that no call with them resolves.
MessageSize messageSize(Collective collective, int ranks, std::uint64_t count, std::uint32_t elementBytes);

}  // namespace theseus::schedule
