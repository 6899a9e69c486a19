#include "schedule/operand_targets.h"

#include <fmt/format.h>

namespace theseus::schedule {
namespace {

tl::unexpected<Error> error(std::string what) { return fail(ErrorCode::kInvalidSchedule, std::move(what)); }

std::uint32_t chunksOf(const RankPlan& plan, BufferKind kind) {
  switch (kind) {
    case BufferKind::kInput:
      return plan.inputChunks;
    case BufferKind::kOutput:
      return plan.outputChunks;
    case BufferKind::kScratch:
      return plan.scratchChunks;
  }
  return 0;
}

}  // namespace

bool pairsOperands(const Op& op) {
  const auto& row = traits(op.code);
  const bool forward = row.sources == OperandShape::LocalEach && row.destinations == OperandShape::RemoteEach;
  const bool backward =
      row.sources == OperandShape::RemoteEach && row.destinations == OperandShape::LocalEach;
  return forward || backward;
}

OperandTargets::OperandTargets(const Schedule& schedule, Rank rank, const ThreadBlock& block)
    : schedule_(schedule), rank_(rank), plan_(schedule.ranks[static_cast<std::size_t>(rank)]) {
  for (const auto& declaration : plan_.channels) {
    if (declaration.type != ChannelType::kSwitch) continue;
    for (const auto& group : declaration.rankGroups) switches_.push_back({declaration.switchBuffer, &group});
  }
  for (const auto type : {ChannelType::kMemory, ChannelType::kPort, ChannelType::kSwitch}) {
    channels_[static_cast<std::size_t>(type)] = block.channelIds(type);
    remoteBuffers_[static_cast<std::size_t>(type)] = block.remoteBufferIds(type);
  }
}

Result<Target> OperandTargets::find(const Op& op, const Operand& operand) const {
  Target target{rank_, operand.buffer, operand.index, operand.size};
  if (operand.place == Operand::Place::kRemote) {
    const auto& refs =
        remoteBuffers_[static_cast<std::size_t>(op.channelType.value_or(ChannelType::kMemory))];
    if (operand.id >= refs.size() || refs[operand.id] >= plan_.remoteBuffers.size()) {
      return error(fmt::format("remote buffer {}: the block refers to {}", operand.id, refs.size()));
    }
    const auto& remote = plan_.remoteBuffers[refs[operand.id]];
    if (remote.rank < 0 || remote.rank >= schedule_.rankCount()) {
      return error(fmt::format("remote buffer of rank {}, which the plan does not have", remote.rank));
    }
    target.rank = remote.rank;
    target.kind = remote.kind;
  } else if (operand.place == Operand::Place::kSwitch) {
    const auto& numbers = channels(ChannelType::kSwitch);
    if (operand.id >= numbers.size() || numbers[operand.id] >= switches_.size()) {
      return error(fmt::format("switch channel {}: the block has {}", operand.id, numbers.size()));
    }
    target.kind = switches_[numbers[operand.id]].buffer;
  }
  const auto chunks = chunksOf(schedule_.ranks[static_cast<std::size_t>(target.rank)], target.kind);
  if (target.index + target.size > chunks) {
    return error(fmt::format("chunks {} to {} of buffer '{}' of rank {}, which has {}", target.index,
                             target.index + target.size, name(target.kind), target.rank, chunks));
  }
  return target;
}

const std::vector<Rank>& OperandTargets::switchMembers(const Operand& operand) const {
  return switches_[channels(ChannelType::kSwitch)[operand.id]].group->ranks;
}

}  // namespace theseus::schedule
