#include "schedule/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/check.h"
#include "schedule/chunk_layout.h"
#include "schedule/operand_targets.h"
#include "schedule/packet_lengths.h"

namespace theseus::schedule {
namespace {

// Bounds on what one resolution may expand to, so that a small hostile plan cannot ask for all memory. A rank
// of the largest plans we know (32 ranks, 64 blocks) stays below a hundredth of either.
constexpr std::uint64_t kMaxResolvedOps = 1u << 22;
constexpr std::uint64_t kMaxSlotsWalked = 1u << 26;
constexpr std::uint64_t kReuseScratchBytes = 64ull << 20;  // MSCCL++'s fixed scratch of reuse_resources

/// A range in slot space.
struct SlotRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

std::uint64_t ceilDivide(std::uint64_t value, std::uint64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

/// Start of slice `index` of `count` of `units` units: as even as possible, the first ones longer.
std::uint64_t sliceStart(std::uint64_t units, std::uint64_t index, std::uint64_t count) {
  return index * (units / count) + std::min(index, units % count);
}

bool continues(const Extent& before, const Extent& after) {
  return before.buffer == after.buffer && before.rank == after.rank &&
         before.offset + before.bytes == after.offset;
}

/// Adds a piece, or lengthens the last one when every extent goes on where that one ended.
void addPiece(std::vector<Piece>& pieces, Piece piece) {
  if (!pieces.empty() && pieces.back().pair == piece.pair) {
    auto& last = pieces.back();
    const bool joined = std::equal(last.sources.begin(), last.sources.end(), piece.sources.begin(),
                                   piece.sources.end(), continues) &&
                        std::equal(last.destinations.begin(), last.destinations.end(),
                                   piece.destinations.begin(), piece.destinations.end(), continues);
    if (joined) {
      for (std::size_t i = 0; i < piece.sources.size(); ++i) last.sources[i].bytes += piece.sources[i].bytes;
      for (std::size_t i = 0; i < piece.destinations.size(); ++i) {
        last.destinations[i].bytes += piece.destinations[i].bytes;
      }
      return;
    }
  }
  pieces.push_back(std::move(piece));
}

class Resolver {
 public:
  Resolver(const Schedule& schedule, Rank rank, const ChunkLayout& layout, std::uint32_t elementBytes)
      : schedule_(schedule),
        rank_(rank),
        plan_(schedule.ranks[static_cast<std::size_t>(rank)]),
        layout_(layout),
        elementBytes_(elementBytes) {}

  Result<ResolvedRank> run() {
    ResolvedRank result;
    if (__builtin_mul_overflow(layout_.slotBytes(), std::uint64_t{plan_.scratchChunks},
                               &result.scratchBytes)) {
      return fail(ErrorCode::kInvalidSchedule,
                  fmt::format("rank {}: scratch of {} chunks of {} bytes is beyond 64 bits", rank_,
                              plan_.scratchChunks, layout_.slotBytes()));
    }
    result.threadBlocks.resize(plan_.threadBlocks.size());
    for (block_ = 0; block_ < plan_.threadBlocks.size(); ++block_) THESEUS_TRY(resolveBlock(result));
    return result;
  }

 private:
  Status resolveBlock(ResolvedRank& result) {
    const auto& block = plan_.threadBlocks[block_];
    targets_.emplace(schedule_, rank_, block);
    output_ = &result.threadBlocks[block_];
    for (op_ = 0; op_ < block.ops.size(); ++op_) {
      const auto& op = block.ops[op_];
      inner_ = 0;
      iteration_ = 0;
      pipeline_ = nullptr;
      if (op.code == OpCode::kPipeline) {
        THESEUS_TRY(resolvePipeline(op));
      } else {
        THESEUS_TRY(resolveOp(op));
      }
    }
    return {};
  }

  Status resolvePipeline(const Op& op) {
    if (op.pipelineUnitBytes == 0 || op.pipelineUnitBytes % elementBytes_ != 0) {
      return error(fmt::format("pipeline unit_size {} is not a positive multiple of the element's {} bytes",
                               op.pipelineUnitBytes, elementBytes_));
    }
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(layout_.slotBytes(), std::uint64_t{op.pipelineChunks}, &bytes)) {
      return error(fmt::format("pipeline over {} chunks is beyond 64 bits", op.pipelineChunks));
    }
    // An empty message still runs the ops once, so that signals pair up as they were verified.
    const std::uint64_t iterations = std::max<std::uint64_t>(1, ceilDivide(bytes, op.pipelineUnitBytes));
    if (iterations > kMaxResolvedOps) {
      return error(fmt::format("pipeline of {} iterations: unit_size {} is too small for chunks of {} bytes",
                               iterations, op.pipelineUnitBytes, layout_.slotBytes()));
    }
    pipeline_ = &op;
    for (std::uint64_t i = 0; i < iterations; ++i) {
      iteration_ = static_cast<std::uint32_t>(i);
      for (inner_ = 0; inner_ < op.inner.size(); ++inner_) {
        if (op.inner[inner_].code == OpCode::kPipeline) return error("a pipeline within a pipeline");
        THESEUS_TRY(resolveOp(op.inner[inner_]));
      }
    }
    return {};
  }

  Status resolveOp(const Op& op) {
    if (++resolvedOps_ > kMaxResolvedOps) {
      return error(fmt::format("the rank expands to more than {} ops at this size", kMaxResolvedOps));
    }
    ResolvedOp resolved;
    resolved.code = op.code;
    resolved.opIndex = static_cast<std::uint32_t>(op_);
    resolved.innerIndex = static_cast<std::uint32_t>(inner_);
    resolved.iteration = iteration_;
    resolved.channelType = op.channelType.value_or(ChannelType::kMemory);
    resolved.semaphores = op.semaphoreIds;
    resolved.barrierId = op.barrierId.value_or(0);
    resolved.barrierThreadBlocks = op.barrierThreadBlocks.value_or(0);
    THESEUS_TRY(findChannels(op, resolved));
    if (pairsOperands(op)) {
      THESEUS_TRY(resolvePairs(op, resolved));
    } else if (!op.sources.empty() || !op.destinations.empty()) {
      THESEUS_TRY(resolveTogether(op, resolved));
    }
    output_->push_back(std::move(resolved));
    return {};
  }

  Status findChannels(const Op& op, ResolvedOp& resolved) {
    const auto& numbers = targets_->channels(resolved.channelType);
    for (const auto position : op.channelIds) {
      if (position >= numbers.size()) {
        return error(fmt::format("channel {} of {} {} channels", position, numbers.size(),
                                 name(resolved.channelType)));
      }
      resolved.channels.push_back(numbers[position]);
    }
    if (!op.channelIds.empty()) return {};
    for (const auto* list : {&op.sources, &op.destinations}) {
      for (const auto& operand : *list) {
        if (operand.place != Operand::Place::kSwitch) continue;
        const auto& switches = targets_->channels(ChannelType::kSwitch);
        if (operand.id < switches.size()) resolved.channels.push_back(switches[operand.id]);
      }
    }
    return {};
  }

  Status resolvePairs(const Op& op, ResolvedOp& resolved) {
    const auto pairs = std::max(op.sources.size(), op.destinations.size());
    const auto fits = [&](const std::vector<Operand>& list) {
      return list.size() == pairs || list.size() == 1;
    };
    if (!fits(op.sources) || !fits(op.destinations)) {
      return error(fmt::format("{} sources for {} destinations", op.sources.size(), op.destinations.size()));
    }
    for (std::size_t k = 0; k < pairs; ++k) {
      std::vector<Target> targets(2);
      THESEUS_TRY(find(op, op.sources[op.sources.size() == 1 ? 0 : k], targets[0]));
      THESEUS_TRY(find(op, op.destinations[op.destinations.size() == 1 ? 0 : k], targets[1]));
      Piece shape;
      shape.pair = static_cast<std::uint32_t>(k);
      shape.sources.resize(1);
      shape.destinations.resize(1);
      THESEUS_TRY(cut(op, targets, shape, resolved));
    }
    return {};
  }

  Status resolveTogether(const Op& op, ResolvedOp& resolved) {
    std::vector<Target> targets(op.sources.size() + op.destinations.size());
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const bool source = i < op.sources.size();
      THESEUS_TRY(find(op, source ? op.sources[i] : op.destinations[i - op.sources.size()], targets[i]));
    }
    Piece shape;
    shape.sources.resize(op.sources.size());
    shape.destinations.resize(op.destinations.size());
    return cut(op, targets, shape, resolved);
  }

  Status find(const Op& op, const Operand& operand, Target& target) const {
    const auto found = targets_->find(op, operand);
    if (!found) return error(found.error().message);
    target = *found;
    return {};
  }

  /// The op's part of the operands' slot space: the block's slice of it, then the pipeline's iteration of
  /// that.
  Result<SlotRange> slotRange(const Op& op, std::uint64_t chunks) const {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(chunks, layout_.slotBytes(), &bytes))
      return error("an operand beyond 64 bits");
    SlotRange range{0, bytes};
    if (op.group) {
      if (op.group->size == 0 || op.group->index >= op.group->size) {
        return error(fmt::format("slice {} of {} thread blocks", op.group->index, op.group->size));
      }
      const auto unit = layout_.unitBytes();
      range.begin = unit * sliceStart(bytes / unit, op.group->index, op.group->size);
      range.end = unit * sliceStart(bytes / unit, std::uint64_t{op.group->index} + 1, op.group->size);
    }
    if (pipeline_ != nullptr) {
      const auto unit = pipeline_->pipelineUnitBytes;
      range.begin =
          iteration_ > (range.end - range.begin) / unit ? range.end : range.begin + iteration_ * unit;
      range.end = std::min(range.end, range.end - range.begin > unit ? range.begin + unit : range.end);
    }
    return range;
  }

  /// Adds the pieces of one group of operands that move together; `shape` has the right numbers of extents.
  Status cut(const Op& op, const std::vector<Target>& targets, const Piece& shape, ResolvedOp& resolved) {
    for (const auto& target : targets) {
      if (target.size != targets[0].size) {
        return error(fmt::format("operands of {} and {} chunks", targets[0].size, target.size));
      }
    }
    const auto range = slotRange(op, targets[0].size);
    if (!range) return fail(range.error());
    if (range->begin == range->end) return {};
    const auto slot = layout_.slotBytes();
    const auto add = [&](std::uint64_t first, std::uint64_t within, std::uint64_t bytes) {
      Piece piece = shape;
      for (std::size_t i = 0; i < targets.size(); ++i) {
        const auto& target = targets[i];
        const auto offset = layout_.start(target.rank, target.kind, target.index + first) + within;
        auto& list = i < piece.sources.size() ? piece.sources : piece.destinations;
        list[i < piece.sources.size() ? i : i - piece.sources.size()] = {target.kind, target.rank, offset,
                                                                         bytes};
      }
      addPiece(resolved.pieces, std::move(piece));
    };
    if (layout_.uniform()) {
      add(range->begin / slot, range->begin % slot, range->end - range->begin);
      return {};
    }
    for (auto k = range->begin / slot; k * slot < range->end; ++k) {
      if (++slotsWalked_ > kMaxSlotsWalked) return error("the rank's operands cover too many chunks");
      const auto from = std::max(range->begin, k * slot) - k * slot;
      auto to = std::min(range->end, (k + 1) * slot) - k * slot;
      for (const auto& target : targets)
        to = std::min(to, layout_.length(target.rank, target.kind, target.index + k));
      if (to > from) add(k, from, to - from);
    }
    return {};
  }

  tl::unexpected<Error> error(const std::string& what) const {
    const auto& block = plan_.threadBlocks[block_];
    const auto code = block.ops[op_].code;
    auto place = fmt::format("rank {} block {} op {}", rank_, block_, op_);
    if (pipeline_ != nullptr) place += fmt::format(".{}", inner_);
    return fail(ErrorCode::kInvalidSchedule,
                fmt::format("schedule '{}': {} ({}): {}", schedule_.name, place, traits(code).name, what));
  }

  const Schedule& schedule_;
  Rank rank_;
  const RankPlan& plan_;
  const ChunkLayout& layout_;
  std::uint32_t elementBytes_;

  // Where the walk stands.
  std::size_t block_ = 0;
  std::size_t op_ = 0;
  std::size_t inner_ = 0;
  std::uint32_t iteration_ = 0;
  const Op* pipeline_ = nullptr;
  std::optional<OperandTargets> targets_;  // of the block
  std::vector<ResolvedOp>* output_ = nullptr;
  std::uint64_t resolvedOps_ = 0;
  std::uint64_t slotsWalked_ = 0;
};

Status checkRank(const Schedule& schedule, Rank rank) {
  if (rank >= 0 && rank < schedule.rankCount()) return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format("schedule '{}' has {} ranks, not rank {}",
                                                       schedule.name, schedule.ranks.size(), rank));
}

std::uint64_t saturatingMultiply(std::uint64_t left, std::uint64_t right) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(left, right, &product) ? std::numeric_limits<std::uint64_t>::max() : product;
}

std::uint64_t roundUp(std::uint64_t value, std::uint64_t unit) {
  return saturatingMultiply(ceilDivide(value, unit), unit);
}

}  // namespace

Result<ResolvedRank> resolve(const Schedule& schedule, Rank rank, const MessageSize& size) {
  THESEUS_TRY(checkRank(schedule, rank));
  auto layout = ChunkLayout::make(schedule, size);
  if (!layout) return fail(layout.error());
  THESEUS_TRY(shortenPackets(schedule, *layout));
  return Resolver(schedule, rank, *layout, size.elementBytes).run();
}

Result<UpstreamScratch> upstreamScratch(const Schedule& schedule, Rank rank, const MessageSize& size) {
  THESEUS_TRY(checkRank(schedule, rank));
  const auto& plan = schedule.ranks[static_cast<std::size_t>(rank)];
  const auto chunks = plan.inputChunks != 0 ? plan.inputChunks : plan.outputChunks;
  if (chunks == 0 || schedule.bufferAlignment == 0) {
    return fail(ErrorCode::kInvalidSchedule,
                fmt::format("schedule '{}': rank {} has no input or output chunks to size scratch by",
                            schedule.name, rank));
  }
  const std::uint64_t factor = schedule.doubleScratch ? 2 : 1;
  UpstreamScratch result;
  if (schedule.reuseResources) {
    result.allocationBytes = kReuseScratchBytes;
  } else {
    const auto bytes =
        std::min(plan.inputChunks != 0 ? size.inputBytes : size.outputBytes, schedule.maxMessageBytes);
    const auto packets = schedule.protocol == "LL" ? 2 : 1;
    const auto once = saturatingMultiply(ceilDivide(bytes, chunks), plan.scratchChunks);
    result.allocationBytes = roundUp(saturatingMultiply(once, packets * factor), schedule.bufferAlignment);
  }
  if (plan.scratchChunks != 0) {
    const auto share = ceilDivide(result.allocationBytes / factor, plan.scratchChunks);
    result.chunkBytes = roundUp(share, schedule.bufferAlignment);
  }
  return result;
}

MessageSize messageSize(Collective collective, int ranks, std::uint64_t count, std::uint32_t elementBytes) {
  const auto one = saturatingMultiply(count, elementBytes);
  const auto all = saturatingMultiply(one, static_cast<std::uint64_t>(std::max(ranks, 0)));
  switch (collective) {
    case Collective::kAllGather:
      return {one, all, elementBytes};
    case Collective::kReduceScatter:
      return {all, one, elementBytes};
    case Collective::kAllToAll:
      return {all, all, elementBytes};
    case Collective::kBarrier:
      return {0, 0, elementBytes};
    default:
      return {one, one, elementBytes};
  }
}

}  // namespace theseus::schedule
