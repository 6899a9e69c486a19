#include "schedule/packet_lengths.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "schedule/operand_targets.h"

namespace theseus::schedule {
namespace {

constexpr std::uint64_t kMaxChunksVisited = 1u << 27;
constexpr std::uint64_t kMaxScratchChunks = 1u << 24;  // of all ranks

/// Data that moves together: the lengths of `from` bound what the scratch chunks of `to` get.
struct Move {
  std::vector<Target> from;  // sources, and user buffers that are written too
  std::vector<Target> to;    // scratch
};

/// Ops that must not touch what nobody wrote: packets would be awaited for ever, a switch reduces what lies
/// there.
bool needsExactLength(const Op& op) {
  const auto& row = traits(op.code);
  return row.sources == OperandShape::LocalPacket || row.sources == OperandShape::LocalAndPackets ||
         row.sources == OperandShape::Switch || row.destinations == OperandShape::Switch;
}

bool needsExactLengths(const Schedule& schedule) {
  for (const auto& rank : schedule.ranks) {
    for (const auto& block : rank.threadBlocks) {
      for (const auto& op : block.ops) {
        if (needsExactLength(op) || std::any_of(op.inner.begin(), op.inner.end(), needsExactLength))
          return true;
      }
    }
  }
  return false;
}

class MoveCollector {
 public:
  explicit MoveCollector(const Schedule& schedule) : schedule_(schedule) {}

  Result<std::vector<Move>> run() {
    for (Rank rank = 0; rank < schedule_.rankCount(); ++rank) {
      for (const auto& block : schedule_.ranks[static_cast<std::size_t>(rank)].threadBlocks) {
        const OperandTargets targets(schedule_, rank, block);
        for (const auto& op : block.ops) {
          THESEUS_TRY(addOp(op, targets));
          for (const auto& inner : op.inner) THESEUS_TRY(addOp(inner, targets));
        }
      }
    }
    return std::move(moves_);
  }

 private:
  Status addOp(const Op& op, const OperandTargets& targets) {
    if (op.sources.empty() || op.destinations.empty()) return {};
    if (!pairsOperands(op)) {
      Move move;
      for (const auto& operand : op.sources) THESEUS_TRY(addSource(op, operand, targets, move));
      for (const auto& operand : op.destinations) THESEUS_TRY(addDestination(op, operand, targets, move));
      return keep(std::move(move));
    }
    const auto pairs = std::max(op.sources.size(), op.destinations.size());
    for (std::size_t k = 0; k < pairs; ++k) {
      Move move;
      THESEUS_TRY(addSource(op, op.sources[std::min(k, op.sources.size() - 1)], targets, move));
      THESEUS_TRY(
          addDestination(op, op.destinations[std::min(k, op.destinations.size() - 1)], targets, move));
      THESEUS_TRY(keep(std::move(move)));
    }
    return {};
  }

  static Status addSource(const Op& op, const Operand& operand, const OperandTargets& targets, Move& move) {
    const auto found = targets.find(op, operand);
    if (!found) return fail(found.error());
    move.from.push_back(*found);
    if (operand.place != Operand::Place::kSwitch) return {};
    for (const auto member : targets.switchMembers(operand)) {
      if (member == found->rank || found->kind != BufferKind::kScratch) continue;
      move.from.push_back({member, found->kind, found->index, found->size});
    }
    return {};
  }

  static Status addDestination(const Op& op, const Operand& operand, const OperandTargets& targets,
                               Move& move) {
    const auto found = targets.find(op, operand);
    if (!found) return fail(found.error());
    auto& list = found->kind == BufferKind::kScratch ? move.to : move.from;
    list.push_back(*found);
    if (operand.place != Operand::Place::kSwitch || found->kind != BufferKind::kScratch) return {};
    for (const auto member : targets.switchMembers(operand)) {
      if (member == found->rank) continue;
      move.to.push_back({member, found->kind, found->index, found->size});
    }
    return {};
  }

  Status keep(Move move) {
    std::vector<Target> scratch = move.to;
    for (const auto& target : move.from) {
      if (target.kind == BufferKind::kScratch) scratch.push_back(target);
    }
    for (const auto& target : scratch) {
      if (target.rank < 0 || target.rank >= schedule_.rankCount() ||
          target.index + target.size > schedule_.ranks[static_cast<std::size_t>(target.rank)].scratchChunks) {
        return fail(ErrorCode::kInvalidSchedule,
                    fmt::format("schedule '{}': a switch operand past the scratch of rank {}", schedule_.name,
                                target.rank));
      }
    }
    if (!move.to.empty()) moves_.push_back(std::move(move));
    return {};
  }

  const Schedule& schedule_;
  std::vector<Move> moves_;
};

/// Lets lengths flow along the moves until nothing grows. They only grow and take few values, so this ends;
/// chains of forwarders need a round a hop at most.
class LengthFlow {
 public:
  LengthFlow(const Schedule& schedule, const ChunkLayout& layout) : schedule_(schedule), layout_(layout) {
    for (const auto& rank : schedule.ranks) lengths_.emplace_back(rank.scratchChunks, 0);
  }

  Status run(const std::vector<Move>& moves) {
    for (grew_ = true; grew_;) {
      grew_ = false;
      for (const auto& move : moves) {
        for (std::uint64_t k = 0; k < move.to.front().size; ++k) visit(move, k);
        if (visited_ <= kMaxChunksVisited) continue;
        return fail(ErrorCode::kInvalidSchedule,
                    fmt::format("schedule '{}': too large to resolve for uneven chunks", schedule_.name));
      }
    }
    return {};
  }

  std::vector<std::vector<std::uint64_t>> take() && { return std::move(lengths_); }

 private:
  void visit(const Move& move, std::uint64_t k) {
    ++visited_;
    auto length = layout_.slotBytes();
    for (const auto& target : move.from) {
      if (k < target.size) length = std::min(length, lengthOf(target, k));
    }
    for (const auto& target : move.to) {
      if (k >= target.size) continue;
      auto& known = lengths_[static_cast<std::size_t>(target.rank)][target.index + k];
      grew_ = grew_ || known < length;
      known = std::max(known, length);
    }
  }

  std::uint64_t lengthOf(const Target& target, std::uint64_t k) const {
    if (target.kind != BufferKind::kScratch)
      return layout_.length(target.rank, target.kind, target.index + k);
    return lengths_[static_cast<std::size_t>(target.rank)][target.index + k];
  }

  const Schedule& schedule_;
  const ChunkLayout& layout_;
  std::vector<std::vector<std::uint64_t>> lengths_;  // by rank and scratch chunk
  std::uint64_t visited_ = 0;
  bool grew_ = false;
};

}  // namespace

Status shortenPackets(const Schedule& schedule, ChunkLayout& layout) {
  if (layout.uniform() || !needsExactLengths(schedule)) return {};
  std::uint64_t scratchChunks = 0;
  for (const auto& rank : schedule.ranks) scratchChunks += rank.scratchChunks;
  if (scratchChunks > kMaxScratchChunks) {
    return fail(ErrorCode::kInvalidSchedule, fmt::format("schedule '{}': {} scratch chunks; {} are the most",
                                                         schedule.name, scratchChunks, kMaxScratchChunks));
  }
  const auto moves = MoveCollector(schedule).run();
  if (!moves) return fail(moves.error());
  LengthFlow flow(schedule, layout);
  THESEUS_TRY(flow.run(*moves));
  layout.setScratchLengths(std::move(flow).take());
  return {};
}

}  // namespace theseus::schedule
