#include "resource/schedule_node.h"

#include <algorithm>
#include <set>

namespace theseus::resource {
namespace {

using schedule::ChannelType;
using schedule::OpCode;

bool isPlainPut(OpCode code) { return code == OpCode::kPut; }

/// True when `next` is a signal on exactly the channel between this rank and the only destination of `put`.
bool signalFollows(const schedule::ResolvedOp& put, const schedule::ResolvedOp& next,
                   const ScheduleNode& node) {
  const bool isSignal = next.code == OpCode::kSignal || next.code == OpCode::kRelaxedSignal;
  if (!isPlainPut(put.code) || !isSignal || next.channels.size() != 1 || put.pieces.empty()) return false;
  const Rank peer = node.channelEnds(next.channelType)[next.channels[0]].peer;
  return std::all_of(put.pieces.begin(), put.pieces.end(), [peer](const schedule::Piece& piece) {
    return std::all_of(piece.destinations.begin(), piece.destinations.end(),
                       [peer](const schedule::Extent& extent) { return extent.rank == peer; });
  });
}

std::unique_ptr<const Instance> buildInstance(schedule::ResolvedRank resolved, const ScheduleNode& node) {
  auto instance = std::make_unique<Instance>();
  instance->scratchBytes = resolved.scratchBytes;
  for (auto& block : resolved.threadBlocks) {
    auto& ops = instance->threadBlocks.emplace_back();
    std::erase_if(block, [](const schedule::ResolvedOp& op) {
      return op.code == OpCode::kNop;
    });  // a block is one sequential task here
    for (std::size_t i = 0; i < block.size(); ++i) {
      InstanceOp op;
      if (i + 1 < block.size() && signalFollows(block[i], block[i + 1], node)) {
        op.signalsWithLastSegment = true;
        op.signalChannel = block[i + 1].channels[0];
        block[i].channelType = block[i + 1].channelType;
      }
      op.resolved = std::move(block[i]);
      if (op.signalsWithLastSegment) ++i;
      ops.push_back(std::move(op));
    }
  }
  return instance;
}

/// Ranks that `rank`'s part of the schedule touches.
std::set<Rank> touchedBy(const schedule::Schedule& schedule, Rank rank) {
  const schedule::RankPlan& plan = schedule.ranks[static_cast<std::size_t>(rank)];
  std::set<Rank> touched;
  for (ChannelType type : {ChannelType::kMemory, ChannelType::kPort}) {
    for (Rank peer : plan.channelPeers(type)) touched.insert(peer);
  }
  for (const auto& remote : plan.remoteBuffers) touched.insert(remote.rank);
  touched.erase(rank);
  return touched;
}

/// Rank r of the result does what rank r − shift did, with peers shifted alike.
schedule::Schedule rotated(const schedule::Schedule& original, int shift) {
  schedule::Schedule result = original;
  const int ranks = original.rankCount();
  const auto moved = [shift, ranks](Rank rank) { return (rank + shift) % ranks; };
  for (Rank rank = 0; rank < ranks; ++rank) {
    schedule::RankPlan plan = original.ranks[static_cast<std::size_t>(rank)];
    for (auto& declaration : plan.channels) {
      for (Rank& peer : declaration.connectedTo) peer = moved(peer);
    }
    for (auto& remote : plan.remoteBuffers) remote.rank = moved(remote.rank);
    result.ranks[static_cast<std::size_t>(moved(rank))] = std::move(plan);
  }
  result.root = moved(original.root);
  return result;
}

}  // namespace

ScheduleNode::ScheduleNode(std::string name, std::shared_ptr<const schedule::Schedule> schedule, Rank rank,
                           bool tailSynchronized)
    : name_(std::move(name)),
      schedule_(std::move(schedule)),
      hash_(schedule::contentHash(*schedule_)),
      rank_(rank),
      tailSynchronized_(tailSynchronized) {
  const schedule::RankPlan& plan = schedule_->ranks[static_cast<std::size_t>(rank)];
  for (ChannelType type : {ChannelType::kMemory, ChannelType::kPort}) {
    std::map<Rank, std::uint32_t> seen;
    std::uint32_t number = 0;
    for (Rank peer : plan.channelPeers(type)) {
      ends_[static_cast<int>(type)].push_back({peer, seen[peer]++});
      numbersByPeer_[{static_cast<int>(type), peer}].push_back(number++);
    }
  }
  const std::set<Rank> touched = touchedBy(*schedule_, rank);
  peers_.assign(touched.begin(), touched.end());
  for (Rank other = 0; other < schedule_->rankCount(); ++other) {
    if (other != rank && touchedBy(*schedule_, other).contains(rank)) accessors_.push_back(other);
  }
}

std::int64_t ScheduleNode::channelNumber(ChannelType type, Rank peer, std::uint32_t pairIndex) const {
  const auto found = numbersByPeer_.find({static_cast<int>(type), peer});
  if (found == numbersByPeer_.end() || pairIndex >= found->second.size()) return -1;
  return found->second[pairIndex];
}

Result<const Instance*> ScheduleNode::instance(const schedule::MessageSize& size) {
  const SizeKey key{size.inputBytes, size.outputBytes, size.elementBytes};
  if (lastInstance_ != nullptr && key == lastKey_) return lastInstance_;
  auto found = instances_.find(key);
  if (found == instances_.end()) {
    auto resolved = schedule::resolve(*schedule_, rank_, size);
    if (!resolved) return fail(resolved.error());
    if (instances_.size() >= kInstancesMax) evictOldest();
    found = instances_.emplace(key, CachedInstance{buildInstance(std::move(*resolved), *this), 0}).first;
  }
  found->second.lastUse = ++useCounter_;
  lastKey_ = key;
  lastInstance_ = found->second.instance.get();
  return lastInstance_;
}

ScheduleNode& ScheduleNode::forRoot(Rank root) {
  const int ranks = schedule_->rankCount();
  const int shift = (root - schedule_->root + ranks) % ranks;
  if (shift == 0) return *this;
  auto& variant = byRoot_[root];
  if (!variant) {
    auto schedule = std::make_shared<const schedule::Schedule>(rotated(*schedule_, shift));
    variant = std::make_unique<ScheduleNode>(name_, std::move(schedule), rank_, tailSynchronized_);
  }
  return *variant;
}

void ScheduleNode::evictOldest() {
  auto oldest = std::min_element(instances_.begin(), instances_.end(), [](const auto& a, const auto& b) {
    return a.second.lastUse < b.second.lastUse;
  });
  if (oldest->second.instance.get() == lastInstance_) lastInstance_ = nullptr;
  instances_.erase(oldest);
}

}  // namespace theseus::resource
