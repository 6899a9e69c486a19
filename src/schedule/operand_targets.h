// Finds what an operand means: which chunks of whose buffer. Internal to this folder; plain reads, one
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "theseus/result.h"

namespace theseus::schedule {

/// Chunks [index, index + size) of a buffer of a rank.
struct Target {
  Rank rank = 0;
  BufferKind kind = BufferKind::kInput;
  std::uint64_t index = 0;
  std::uint64_t size = 0;
};

/// "dst[k] = src[k]": the k-th source belongs to the k-th destination alone.
bool pairsOperands(const Op& op);

/// For one thread block; borrows the schedule. Errors carry what is wrong, the caller knows the place.
class OperandTargets {
 public:
  OperandTargets(const Schedule& schedule, Rank rank, const ThreadBlock& block);

  Result<Target> find(const Op& op, const Operand& operand) const;
  /// Rank-level channel numbers of a type, in the block's order.
  const std::vector<std::uint32_t>& channels(ChannelType type) const {
    return channels_[static_cast<std::size_t>(type)];
  }
  /// Members of the switch group that an operand names; only after find() took it.
  const std::vector<Rank>& switchMembers(const Operand& operand) const;

 private:
  struct Switch {
    BufferKind buffer;
    const ChannelDeclaration::RankGroup* group;
  };

  const Schedule& schedule_;
  Rank rank_;
  const RankPlan& plan_;
  std::vector<Switch> switches_;                 // of the rank, by channel number
  std::vector<std::uint32_t> channels_[3];       // of the block, by type
  std::vector<std::uint32_t> remoteBuffers_[3];  // of the block, by access type
};

}  // namespace theseus::schedule
