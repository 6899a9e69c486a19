#include "synth/ring.h"

#include "synth/generator.h"

namespace theseus::synth {
namespace {

using schedule::BlockBuilder;
using schedule::Builder;

/// One lane: a block on every rank, each connected to the next. It works on one message ("piece") of every
/// rank's share at a time, so that its scratch slots serve again for the next piece.
class Lane {
 public:
  Lane(Builder& builder, int ranks, const RingPart& part)
      : builder_(builder), ranks_(ranks), part_(part), blocks_(blockOnEveryRank(builder, ranks)) {
    for (Rank rank = 0; rank + 1 < ranks; ++rank) connect(rank, rank + 1);
    if (ranks > 2) connect(0, ranks - 1);  // two ranks share one channel pair for both directions
  }

  void reserveSlots() {
    const auto count = static_cast<std::uint32_t>(ranks_ - 1) * part_.width;
    for (Rank rank = 0; rank < ranks_; ++rank) slots_.push_back(builder_.scratch(rank, count));
  }

  /// Every rank ends with the sum of its own share of `piece` in its output at `result`. The share of rank g
  /// starts with its next rank, which has the longest way to go, and gathers contributions around the ring.
  void reduceScatter(Rank rank, std::uint32_t piece, schedule::ChunkRange result) {
    BlockBuilder& block = blocks_[static_cast<std::size_t>(rank)];
    if (ranks_ == 1) {
      block.copy(share(schedule::BufferKind::kInput, 0, piece), result);
      return;
    }
    const Rank next = shifted(rank, 1, ranks_), previous = shifted(rank, -1, ranks_);
    block.putWithSignal(next, share(schedule::BufferKind::kInput, previous, piece), slot(next, 0));
    for (int step = 0; step < ranks_ - 1; ++step) {
      const schedule::ChunkRange own =
          share(schedule::BufferKind::kInput, shifted(rank, -step - 2, ranks_), piece);
      block.wait(previous);
      const bool last = step == ranks_ - 2;
      block.reduce({slot(rank, step), own}, last ? result : slot(rank, step));
      if (!last) block.putWithSignal(next, slot(rank, step), slot(next, step + 1));
    }
  }

  /// Every rank's share of `piece`, which lies at `own` on its owner, reaches every other rank's output.
  void allGather(Rank rank, std::uint32_t piece, schedule::ChunkRange own) {
    if (ranks_ == 1) return;
    BlockBuilder& block = blocks_[static_cast<std::size_t>(rank)];
    const Rank next = shifted(rank, 1, ranks_), previous = shifted(rank, -1, ranks_);
    block.putWithSignal(next, own, share(schedule::BufferKind::kOutput, rank, piece));
    for (int step = 0; step < ranks_ - 1; ++step) {
      const schedule::ChunkRange arrived =
          share(schedule::BufferKind::kOutput, shifted(rank, -step - 1, ranks_), piece);
      block.wait(previous);
      if (step < ranks_ - 2) block.putWithSignal(next, arrived, arrived);
    }
  }

  /// Tells the previous rank that this rank's slots are free. Needed only when nothing else proves it.
  void freeSlots(Rank rank) {
    if (ranks_ > 1) at(rank).signal(shifted(rank, -1, ranks_));
  }
  void awaitFreeSlots(Rank rank) {
    if (ranks_ > 1) at(rank).wait(shifted(rank, 1, ranks_));
  }

  BlockBuilder& at(Rank rank) { return blocks_[static_cast<std::size_t>(rank)]; }

  /// Chunks of `piece` within rank `owner`'s share.
  schedule::ChunkRange share(schedule::BufferKind buffer, Rank owner, std::uint32_t piece) const {
    const std::uint32_t pieces = part_.channels * part_.segments;
    return {buffer, part_.firstChunk + (static_cast<std::uint32_t>(owner) * pieces + piece) * part_.width,
            part_.width};
  }

 private:
  void connect(Rank first, Rank second) { builder_.connect(at(first), at(second)); }
  schedule::ChunkRange slot(Rank rank, int step) const {
    return scratch(slots_[static_cast<std::size_t>(rank)] + static_cast<std::uint32_t>(step) * part_.width,
                   part_.width);
  }

  Builder& builder_;
  int ranks_;
  RingPart part_;
  std::vector<BlockBuilder> blocks_;
  std::vector<std::uint32_t> slots_;  // first scratch chunk on each rank
};

void addRingReduceScatter(Builder& builder, int ranks, const RingPart& part) {
  for (std::uint32_t channel = 0; channel < part.channels; ++channel) {
    Lane lane(builder, ranks, part);
    lane.reserveSlots();
    for (Rank rank = 0; rank < ranks; ++rank) {
      for (std::uint32_t segment = 0; segment < part.segments; ++segment) {
        const std::uint32_t piece = segment * part.channels + channel;
        if (segment > 0) lane.awaitFreeSlots(rank);
        lane.reduceScatter(rank, piece, output(piece));
        if (segment + 1 < part.segments) lane.freeSlots(rank);
      }
    }
  }
}

void addRingAllGather(Builder& builder, int ranks, const RingPart& part) {
  for (std::uint32_t channel = 0; channel < part.channels; ++channel) {
    Lane lane(builder, ranks, part);
    for (Rank rank = 0; rank < ranks; ++rank) {
      for (std::uint32_t segment = 0; segment < part.segments; ++segment) {
        const std::uint32_t piece = segment * part.channels + channel;
        lane.allGather(rank, piece, input(piece));
        lane.at(rank).copy(input(piece), lane.share(schedule::BufferKind::kOutput, rank, piece));
      }
    }
  }
}

double opCount(const Arguments& arguments) {
  const double p = arguments.ranks();
  return 7 * p * p * arguments.number("channels") * arguments.number("segments");
}

Result<schedule::Schedule> expand(const Arguments& arguments) {
  const int ranks = arguments.ranks();
  const RingPart part{.channels = arguments.count("channels"), .segments = arguments.count("segments")};
  const std::uint32_t all = part.chunks(ranks), own = part.channels * part.segments;
  Builder builder = arguments.builder();
  builder.bufferMode(schedule::BufferMode::kEither);
  switch (arguments.collective()) {
    case Collective::kReduceScatter:
      builder.chunks(all, own, 0);
      addRingReduceScatter(builder, ranks, part);
      break;
    case Collective::kAllGather:
      builder.chunks(own, all, 0);
      addRingAllGather(builder, ranks, part);
      break;
    default:
      builder.chunks(all, all, 0);
      addRingAllReduce(builder, ranks, part);
      break;
  }
  return std::move(builder).build();
}

}  // namespace

void addRingAllReduce(Builder& builder, int ranks, const RingPart& part) {
  for (std::uint32_t channel = 0; channel < part.channels; ++channel) {
    Lane lane(builder, ranks, part);
    lane.reserveSlots();
    for (Rank rank = 0; rank < ranks; ++rank) {
      for (std::uint32_t segment = 0; segment < part.segments; ++segment) {
        // A rank that holds all sums of one piece knows that every partial sum of it was consumed: the slots
        // are free.
        const std::uint32_t piece = segment * part.channels + channel;
        const schedule::ChunkRange own = lane.share(schedule::BufferKind::kOutput, rank, piece);
        lane.reduceScatter(rank, piece, own);
        lane.allGather(rank, piece, own);
      }
    }
  }
}

Generator ringGenerator() {
  return {
      .info = {.name = "ring",
               .collectives = {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter},
               .minRanks = 1,
               .parameters =
                   {{"channels", 4, 1, 64, "lanes side by side; their messages overlap on each link"},
                    {"segments", 4, 1, 1024,
                     "messages one after the other within a lane and step: smaller messages, less scratch"}},
               .doc = "Every rank talks to its two neighbours only and every link carries the least "
                      "possible: for large "
                      "messages on equal links. Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms "
                      "for clusters "
                      "of workstations, JPDC 69 (2009).",
               .automatic = true},
      .opCount = opCount,
      .expand = expand};
}

}  // namespace theseus::synth
