// The schedule IR: the whole plan of a collective in four layers, global -> rank -> thread block -> op.
// It is the MSCCL++ execution plan, field for field, plus optional keys of ours. Plain values: build one,
// verify it, then share it as const. Format: docs/schedule-format.md.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "schedule/op.h"

namespace theseus::schedule {

/// One declaration of channels of a type; channels are numbered per type over all declarations in order.
struct ChannelDeclaration {
  ChannelType type = ChannelType::kMemory;
  std::vector<Rank> connectedTo;  // memory, port: one channel for each entry, a peer may repeat
  struct RankGroup {
    std::uint32_t size = 0;
    std::vector<Rank> ranks;
    friend bool operator==(const RankGroup&, const RankGroup&) = default;
  };
  BufferKind switchBuffer = BufferKind::kInput;  // switch only
  std::vector<RankGroup> rankGroups;             // switch only: one channel for each group
  friend bool operator==(const ChannelDeclaration&, const ChannelDeclaration&) = default;
};

/// A peer's buffer that this rank writes or reads.
struct RemoteBuffer {
  Rank rank = 0;
  BufferKind kind = BufferKind::kInput;
  std::vector<ChannelType> accessTypes;  // a set: sorted, order in files has no meaning
  friend bool operator==(const RemoteBuffer&, const RemoteBuffer&) = default;
};

struct ThreadBlockChannels {
  ChannelType type = ChannelType::kMemory;
  std::vector<std::uint32_t> ids;  // rank-level channel numbers of that type
  friend bool operator==(const ThreadBlockChannels&, const ThreadBlockChannels&) = default;
};

struct ThreadBlockRemoteBuffers {
  ChannelType accessType = ChannelType::kMemory;
  std::vector<std::uint32_t> ids;  // positions in RankPlan::remoteBuffers
  friend bool operator==(const ThreadBlockRemoteBuffers&, const ThreadBlockRemoteBuffers&) = default;
};

struct ThreadBlock {
  std::vector<Op> ops;
  std::vector<ThreadBlockChannels> channels;
  std::vector<ThreadBlockRemoteBuffers> remoteBuffers;
  friend bool operator==(const ThreadBlock&, const ThreadBlock&) = default;

  /// Rank-level channel numbers of a type in this block's order: all declarations of the type, concatenated.
  std::vector<std::uint32_t> channelIds(ChannelType type) const;
  std::vector<std::uint32_t> remoteBufferIds(ChannelType type) const;
};

struct RankPlan {
  std::uint32_t inputChunks = 0;  // 0 = the buffer is absent or is an alias of another
  std::uint32_t outputChunks = 0;
  std::uint32_t scratchChunks = 0;
  std::vector<ThreadBlock> threadBlocks;
  std::vector<ChannelDeclaration> channels;
  std::vector<RemoteBuffer> remoteBuffers;
  std::vector<std::int64_t> semaphores;  // initial values
  friend bool operator==(const RankPlan&, const RankPlan&) = default;

  /// Peers of the rank-level channels of a type (memory or port), in channel number order.
  std::vector<Rank> channelPeers(ChannelType type) const;
};

/// Which relation of the user's buffers the plan was written for.
enum class BufferMode : std::uint8_t {
  kOutOfPlace,  // "inplace": false
  kInPlace,  // "inplace": true: input and output are one buffer (allgather: input = its own block of output)
  kEither,   // "inplace": true and our key "out_of_place": true: correct for both, verified for both
};

struct Schedule {
  std::string name;
  std::string collectiveName;       // as written: "allreduce", "test", ...
  std::string protocol = "Simple";  // "LL" = packets
  BufferMode bufferMode = BufferMode::kOutOfPlace;
  bool reuseResources = false;
  bool doubleScratch = false;
  std::uint32_t threadsPerBlock = 1024;
  std::uint32_t bufferAlignment = 16;                                         // bytes
  std::uint64_t minMessageBytes = 0;                                          // inclusive
  std::uint64_t maxMessageBytes = std::numeric_limits<std::uint64_t>::max();  // inclusive
  std::vector<RankPlan> ranks;                                                // position = rank
  Rank root = 0;                                  // broadcast, reduce: our key "root"
  std::string usable;                             // our key: Lua expression, empty = always
  std::string score;                              // our key: Lua expression, empty = the cost model's
  std::map<std::string, std::string> provenance;  // our key: who made it, how
  friend bool operator==(const Schedule&, const Schedule&) = default;

  Collective collective() const;  // kCustom when the name is none we know
  int rankCount() const { return static_cast<int>(ranks.size()); }
  bool usesSwitch() const;
};

/// Content address: hash of the canonical JSON form, so that the order of keys and of sets has no influence.
base::Hash128 contentHash(const Schedule& schedule);

}  // namespace theseus::schedule
