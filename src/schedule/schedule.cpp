#include "schedule/schedule.h"

#include "schedule/json.h"

namespace theseus::schedule {

std::vector<std::uint32_t> ThreadBlock::channelIds(ChannelType type) const {
  std::vector<std::uint32_t> ids;
  for (const auto& list : channels) {
    if (list.type == type) ids.insert(ids.end(), list.ids.begin(), list.ids.end());
  }
  return ids;
}

std::vector<std::uint32_t> ThreadBlock::remoteBufferIds(ChannelType type) const {
  std::vector<std::uint32_t> ids;
  for (const auto& list : remoteBuffers) {
    if (list.accessType == type) ids.insert(ids.end(), list.ids.begin(), list.ids.end());
  }
  return ids;
}

std::vector<Rank> RankPlan::channelPeers(ChannelType type) const {
  std::vector<Rank> peers;
  for (const auto& declaration : channels) {
    if (declaration.type != type) continue;
    peers.insert(peers.end(), declaration.connectedTo.begin(), declaration.connectedTo.end());
  }
  return peers;
}

Collective Schedule::collective() const {
  return parseCollective(collectiveName).value_or(Collective::kCustom);
}

bool Schedule::usesSwitch() const {
  for (const auto& rank : ranks) {
    for (const auto& declaration : rank.channels) {
      if (declaration.type == ChannelType::kSwitch) return true;
    }
  }
  return false;
}

base::Hash128 contentHash(const Schedule& schedule) { return base::hash128(writeJson(schedule)); }

}  // namespace theseus::schedule
