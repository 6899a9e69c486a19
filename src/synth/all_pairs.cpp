// Every rank talks to every other directly.
#include <algorithm>

#include "synth/generator.h"

namespace theseus::synth {
namespace {

using schedule::BlockBuilder;
using schedule::Builder;
using schedule::ChunkRange;

/// One lane: a block on every rank, all connected to each other. It works on chunk `lane` of every rank's
/// share.
class Lane {
 public:
  Lane(Builder& builder, int ranks, std::uint32_t channels, std::uint32_t lane)
      : builder_(builder),
        ranks_(ranks),
        channels_(channels),
        lane_(lane),
        blocks_(blockOnEveryRank(builder, ranks)) {
    for (Rank first = 0; first < ranks; ++first) {
      for (Rank second = first + 1; second < ranks; ++second) builder.connect(at(first), at(second));
    }
  }

  void reserveSlots() {
    for (Rank rank = 0; rank < ranks_; ++rank) {
      slots_.push_back(builder_.scratch(rank, static_cast<std::uint32_t>(ranks_ - 1)));
    }
  }

  std::uint32_t chunk(Rank owner) const { return static_cast<std::uint32_t>(owner) * channels_ + lane_; }
  BlockBuilder& at(Rank rank) { return blocks_[static_cast<std::size_t>(rank)]; }

  /// The chunk of `rank`'s scratch that `sender` fills.
  ChunkRange slot(Rank rank, Rank sender) const {
    const Rank position = sender < rank ? sender : sender - 1;
    return scratch(slots_[static_cast<std::size_t>(rank)] + static_cast<std::uint32_t>(position));
  }

  /// Calls action(peer) for every other rank, from the next one on: no rank is everybody's first target.
  template <class Action>
  void forPeers(Rank rank, Action action) const {
    for (int offset = 1; offset < ranks_; ++offset) action(shifted(rank, offset, ranks_));
  }
  void waitForAll(Rank rank) {
    forPeers(rank, [&](Rank peer) { at(rank).wait(peer); });
  }

  void reduceScatter(Rank rank, ChunkRange result) {
    forPeers(rank, [&](Rank peer) { at(rank).putWithSignal(peer, input(chunk(peer)), slot(peer, rank)); });
    waitForAll(rank);
    std::vector<ChunkRange> sources;  // in rank order: the sum is the same as one rank would compute
    for (Rank sender = 0; sender < ranks_; ++sender) {
      sources.push_back(sender == rank ? input(chunk(rank)) : slot(rank, sender));
    }
    at(rank).reduce(std::move(sources), result);
  }

  void sendToAll(Rank rank, ChunkRange own) {
    forPeers(rank, [&](Rank peer) { at(rank).putWithSignal(peer, own, output(chunk(rank))); });
  }

 private:
  Builder& builder_;
  int ranks_;
  std::uint32_t channels_;
  std::uint32_t lane_;
  std::vector<BlockBuilder> blocks_;
  std::vector<std::uint32_t> slots_;
};

void emitRank(Lane& lane, Rank rank, Collective collective, std::uint32_t ownChunk) {
  switch (collective) {
    case Collective::kReduceScatter:
      lane.reduceScatter(rank, output(ownChunk));
      return;
    case Collective::kAllGather:
      lane.sendToAll(rank, input(ownChunk));
      lane.at(rank).copy(input(ownChunk), output(lane.chunk(rank)));
      lane.waitForAll(rank);
      return;
    case Collective::kAllToAll:
      lane.forPeers(rank, [&](Rank peer) {
        lane.at(rank).putWithSignal(peer, input(lane.chunk(peer)), output(lane.chunk(rank)));
      });
      lane.at(rank).copy(input(lane.chunk(rank)), output(lane.chunk(rank)));
      lane.waitForAll(rank);
      return;
    default:
      lane.reduceScatter(rank, output(lane.chunk(rank)));
      lane.sendToAll(rank, output(lane.chunk(rank)));
      lane.waitForAll(rank);
      return;
  }
}

void emitStagedAllToAll(Lane& lane, Rank rank) {
  lane.forPeers(rank, [&](Rank peer) {
    lane.at(rank).putWithSignal(peer, input(lane.chunk(peer)), lane.slot(peer, rank));
  });
  lane.at(rank).copy(input(lane.chunk(rank)), output(lane.chunk(rank)));
  lane.waitForAll(rank);
  lane.forPeers(rank,
                [&](Rank peer) { lane.at(rank).copy(lane.slot(rank, peer), output(lane.chunk(peer))); });
}

double opCount(const Arguments& arguments) {
  const double p = arguments.ranks();
  return 7 * p * p * arguments.number("channels");
}

Result<schedule::Schedule> expand(const Arguments& arguments) {
  const int ranks = arguments.ranks();
  const std::uint32_t channels = arguments.count("channels");
  const std::uint32_t all = static_cast<std::uint32_t>(ranks) * channels;
  const Collective collective = arguments.collective();
  const bool reduces = collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
  Builder builder = arguments.builder();
  builder.chunks(collective == Collective::kAllGather ? channels : all,
                 collective == Collective::kReduceScatter ? channels : all, 0);
  // In place, an all-to-all would overwrite what its rank has not sent yet.
  builder.bufferMode(collective == Collective::kAllToAll ? schedule::BufferMode::kOutOfPlace
                                                         : schedule::BufferMode::kEither);
  for (std::uint32_t channel = 0; channel < channels; ++channel) {
    Lane lane(builder, ranks, channels, channel);
    if (reduces) lane.reserveSlots();
    for (Rank rank = 0; rank < ranks; ++rank) emitRank(lane, rank, collective, channel);
  }
  return std::move(builder).build();
}

Result<schedule::Schedule> expandStaged(const Arguments& arguments) {
  const std::uint32_t channels = arguments.count("channels");
  const std::uint32_t all = static_cast<std::uint32_t>(arguments.ranks()) * channels;
  Builder builder = arguments.builder();
  builder.bufferMode(schedule::BufferMode::kEither).chunks(all, all, 0);
  for (std::uint32_t channel = 0; channel < channels; ++channel) {
    Lane lane(builder, arguments.ranks(), channels, channel);
    lane.reserveSlots();
    for (Rank rank = 0; rank < arguments.ranks(); ++rank) emitStagedAllToAll(lane, rank);
  }
  return std::move(builder).build();
}

}  // namespace

Generator allPairsGenerator() {
  return {.info = {.name = "all_pairs",
                   .collectives = {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                   Collective::kAllToAll},
                   .minRanks = 1,
                   .parameters = {{"channels", 1, 1, 64,
                                   "lanes side by side; each works on its part of every message"}},
                   .doc = "Everybody sends to everybody at once: one step (two for all-reduce), so the "
                          "lowest latency; p messages "
                          "a rank and step. Sums are folded in rank order. The direct algorithms of Thakur, "
                          "Rabenseifner and "
                          "Gropp, IJHPCA 19 (2005), known from MSCCL as all-pairs.",
                   .automatic = true},
          .opCount = opCount,
          .expand = expand};
}

Generator stagedAllPairsGenerator() {
  return {.info = {.name = "staged_all_pairs",
                   .collectives = {Collective::kAllToAll},
                   .minRanks = 1,
                   .parameters = {{"channels", 1, 1, 64, "lanes side by side"}},
                   .doc = "all_pairs through scratch: right in place too, for one more copy and as much "
                          "scratch as the message.",
                   .automatic = false},
          .opCount = opCount,
          .expand = expandStaged};
}

}  // namespace theseus::synth
