// Level L1 of the resource tree: one schedule made ready for this rank, and below it (L3) its instances for
// message sizes. Built by whichever thread materializes it; afterwards used only by the thread that runs the
// communicator's collectives.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "schedule/resolve.h"
#include "schedule/schedule.h"
#include "theseus/result.h"

namespace theseus::resource {

/// This rank's end of a channel between two ranks.
struct ChannelEnd {
  Rank peer = 0;
  std::uint32_t pairIndex = 0;  // the k-th channel of its type between the two ranks
};

/// A resolved op with what the executor wants to know without looking around.
struct InstanceOp {
  schedule::ResolvedOp resolved;
  bool signalsWithLastSegment =
      false;  // a put whose very next op signals the same channel: one segment carries both
  std::uint32_t signalChannel = 0;  // rank-level channel number of that signal
};

/// Level L3: the schedule for one message size.
struct Instance {
  std::uint64_t scratchBytes = 0;
  std::vector<std::vector<InstanceOp>> threadBlocks;
};

class ScheduleNode {
 public:
  /// `tailSynchronized`: the verifier's word that no closing handshake is needed.
  ScheduleNode(std::string name, std::shared_ptr<const schedule::Schedule> schedule, Rank rank,
               bool tailSynchronized);

  const std::string& name() const { return name_; }
  const schedule::Schedule& schedule() const { return *schedule_; }
  const base::Hash128& hash() const { return hash_; }
  /// What goes on the wire as the identity of the schedule.
  std::uint64_t wireId() const { return hash_.low; }
  Rank rank() const { return rank_; }
  bool tailSynchronized() const { return tailSynchronized_; }
  /// Ranks whose buffers or counters this rank touches, ascending.
  const std::vector<Rank>& peers() const { return peers_; }
  /// Ranks that touch this rank's, ascending.
  const std::vector<Rank>& accessors() const { return accessors_; }
  /// Ends of the rank-level channels of a type, by channel number.
  const std::vector<ChannelEnd>& channelEnds(schedule::ChannelType type) const {
    return ends_[static_cast<int>(type)];
  }
  /// The channel number on this rank of the k-th channel of `type` from `peer`; -1 if there is none.
  std::int64_t channelNumber(schedule::ChannelType type, Rank peer, std::uint32_t pairIndex) const;

  /// The instance for a message size; resolved from the parsed schedule at first use, then found again.
  Result<const Instance*> instance(const schedule::MessageSize& size);
  std::size_t instanceCount() const { return instances_.size(); }

  /// The same schedule for another root: ranks play the parts of others, shifted round. This node when the
  /// roots are equal.
  ScheduleNode& forRoot(Rank root);

 private:
  struct SizeKey {
    std::uint64_t inputBytes;
    std::uint64_t outputBytes;
    std::uint32_t elementBytes;
    auto operator<=>(const SizeKey&) const = default;
  };
  static constexpr std::size_t kInstancesMax =
      64;  // oldest are dropped beyond: a job uses few sizes at a time
  struct CachedInstance {
    std::unique_ptr<const Instance> instance;
    std::uint64_t lastUse = 0;
  };
  void evictOldest();

  std::string name_;
  std::shared_ptr<const schedule::Schedule> schedule_;
  base::Hash128 hash_;
  Rank rank_;
  bool tailSynchronized_;
  std::vector<Rank> peers_;
  std::vector<Rank> accessors_;
  std::array<std::vector<ChannelEnd>, 3> ends_;
  std::map<std::pair<int, Rank>, std::vector<std::uint32_t>> numbersByPeer_;
  std::map<SizeKey, CachedInstance> instances_;
  std::uint64_t useCounter_ = 0;
  std::map<Rank, std::unique_ptr<ScheduleNode>> byRoot_;
  SizeKey lastKey_{};
  const Instance* lastInstance_ = nullptr;
};

}  // namespace theseus::resource
