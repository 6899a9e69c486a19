// All-reduce around one slow rank (OptCC): the healthy ranks reduce among themselves, the straggler only
// gives its vector once and gets the result once. docs/generators.md tells the construction.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "synth/generator.h"
#include "synth/ring.h"

namespace theseus::synth {
namespace {

using schedule::BlockBuilder;
using schedule::Builder;

constexpr std::uint32_t kRingChannels = 4;
constexpr std::uint32_t kRingSegments = 4;
/// Below this share the straggler's part would be too thin to repay its messages: an ordinary ring.
constexpr double kSmallestShare = 0.02;

/// The share of the buffer that goes around the straggler so that its link and the healthy ones finish
/// together, when links may carry both parts at once.
double shareAroundStraggler(int ranks, double ratio) {
  const double p = ranks;
  return std::min(1.0, 2 * (p - 1) * (p - 1) * (ratio - 1) / ((p - 2) * (ratio * (p - 1) + 1)));
}

struct Shape {
  Rank straggler = 0;
  std::uint32_t healthy = 0;  // ranks but the straggler
  std::uint32_t segments =
      0;                    // of the part around the straggler; each has one section for every healthy rank
  std::uint32_t lanes = 0;  // segments in flight
};

/// The blocks that carry section `section` of every segment of one lane: one on each healthy rank, and the
/// straggler's. Blocks of their own for each section keep one that waits for the straggler from holding up
/// the others.
class SectionLane {
 public:
  SectionLane(Builder& builder, const Shape& shape, std::uint32_t section, std::uint32_t slot)
      : shape_(shape), section_(section), slot_(slot), straggler_(builder.block(shape.straggler)) {
    for (std::uint32_t i = 0; i < shape.healthy; ++i) blocks_.push_back(builder.block(rankOf(i)));
    const std::uint32_t links = shape.healthy == 2 ? 1 : shape.healthy;  // two ranks share one channel pair
    for (std::uint32_t i = 0; i < links; ++i) builder.connect(blocks_[i], blocks_[(i + 1) % shape.healthy]);
  }

  void connectStraggler(Builder& builder, bool sendsFirst) {
    builder.connect(blocks_[section_], straggler_);
    if (sendsFirst) builder.connect(blocks_[starter()], straggler_);
  }

  /// The straggler adds its part to the healthy sum: owner -> straggler -> owner.
  void emitHealthyFirst(std::uint32_t chunk) {
    for (std::uint32_t i = 0; i < shape_.healthy; ++i) {
      BlockBuilder& block = blocks_[i];
      reduceAlongChain(i, chunk, input(chunk), scratch(slot_));
      if (i == section_) {
        block.putWithSignal(shape_.straggler, scratch(slot_), scratch(slot_)).wait(shape_.straggler);
      }
      gather(i, chunk);
    }
    const Rank owner = rankOf(section_);
    straggler_.wait(owner).reduce({scratch(slot_), input(chunk)}, output(chunk));
    straggler_.putWithSignal(owner, output(chunk), output(chunk));
  }

  /// The straggler's part starts the chain; the owner ends with the whole sum and sends it to the straggler
  /// too.
  void emitStragglerFirst(std::uint32_t chunk) {
    const Rank first = rankOf(starter()), owner = rankOf(section_);
    straggler_.putWithSignal(first, input(chunk), scratch(slot_));
    for (std::uint32_t i = 0; i < shape_.healthy; ++i) {
      BlockBuilder& block = blocks_[i];
      if (i == starter()) block.wait(shape_.straggler).reduce({scratch(slot_), input(chunk)}, scratch(slot_));
      reduceAlongChain(i, chunk, scratch(slot_), output(chunk));
      gather(i, chunk);
      if (i == section_) block.putWithSignal(shape_.straggler, output(chunk), output(chunk));
    }
    straggler_.wait(owner);
  }

 private:
  Rank rankOf(std::uint32_t healthy) const {
    const auto rank = static_cast<Rank>(healthy);
    return rank < shape_.straggler ? rank : rank + 1;
  }
  Rank next(std::uint32_t healthy) const { return rankOf((healthy + 1) % shape_.healthy); }
  Rank previous(std::uint32_t healthy) const {
    return rankOf((healthy + shape_.healthy - 1) % shape_.healthy);
  }
  std::uint32_t starter() const { return (section_ + 1) % shape_.healthy; }
  /// Hops from `from` to `to` along the healthy ring.
  std::uint32_t distance(std::uint32_t from, std::uint32_t to) const {
    return (to + shape_.healthy - from) % shape_.healthy;
  }

  /// The starter sends `first`; each rank after it adds its own; the owner, who is last, keeps the sum in
  /// `result`.
  void reduceAlongChain(std::uint32_t i, std::uint32_t chunk, schedule::ChunkRange first,
                        schedule::ChunkRange result) {
    BlockBuilder& block = blocks_[i];
    if (i == starter()) {
      block.putWithSignal(next(i), first, scratch(slot_));
      return;
    }
    block.wait(previous(i));
    block.reduce({scratch(slot_), input(chunk)}, i == section_ ? result : scratch(slot_));
    if (i != section_) block.putWithSignal(next(i), scratch(slot_), scratch(slot_));
  }

  /// The owner sends the result around the healthy ring.
  void gather(std::uint32_t i, std::uint32_t chunk) {
    BlockBuilder& block = blocks_[i];
    const std::uint32_t hops = distance(section_, i);
    if (hops > 0) block.wait(previous(i));
    if (hops + 1 < shape_.healthy) block.putWithSignal(next(i), output(chunk), output(chunk));
  }

  Shape shape_;
  std::uint32_t section_;
  std::uint32_t slot_;  // the same scratch chunk on every rank
  BlockBuilder straggler_;
  std::vector<BlockBuilder> blocks_;
};

/// A rank goes on to the lane's next segment when it has the result of this one, which needed every partial
/// sum: so one scratch chunk serves a section of a lane for ever.
void addAroundStraggler(Builder& builder, const Shape& shape) {
  for (std::uint32_t lane = 0; lane < shape.lanes; ++lane) {
    for (std::uint32_t section = 0; section < shape.healthy; ++section) {
      SectionLane blocks(builder, shape, section, lane * shape.healthy + section);
      const bool mixed = shape.lanes % 2 == 1 && shape.segments > shape.lanes;
      blocks.connectStraggler(builder, mixed || lane % 2 == 1);
      for (std::uint32_t segment = lane; segment < shape.segments; segment += shape.lanes) {
        const std::uint32_t chunk = segment * shape.healthy + section;
        segment % 2 == 0 ? blocks.emitHealthyFirst(chunk) : blocks.emitStragglerFirst(chunk);
      }
    }
  }
}

/// Segments for `share` of the buffer when the whole would have `segments`: a multiple of four, at least
/// eight (or all).
std::uint32_t segmentsFor(double share, std::uint32_t segments) {
  const auto scaled = static_cast<std::uint32_t>(std::lround(segments * share / 4)) * 4;
  return std::min(segments, std::max(8u, scaled));
}

/// The ordinary ring for what the part around the straggler leaves over; the chunk grid sets its size to a
/// whole width.
RingPart ringBeside(int ranks, double share, std::uint32_t chunksAround) {
  RingPart part{.firstChunk = chunksAround, .channels = kRingChannels, .segments = kRingSegments};
  const double wanted = chunksAround * (1 - share) / share;
  double perWidth = static_cast<double>(part.chunks(ranks));
  while (part.segments > 1 && wanted < 2 * perWidth) {  // fewer, so that rounding stays small
    part.segments /= 2;
    perWidth /= 2;
  }
  part.width = static_cast<std::uint32_t>(std::lround(wanted / perWidth));
  return part;
}

double opCount(const Arguments& arguments) {
  const double p = arguments.ranks();
  return 8 * p * p * (arguments.number("segments") + kRingChannels * kRingSegments);
}

Result<schedule::Schedule> expand(const Arguments& arguments) {
  const int ranks = arguments.ranks();
  Shape shape{.straggler = arguments.rank("rank"), .healthy = static_cast<std::uint32_t>(ranks - 1)};
  if (shape.straggler >= ranks) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("straggler_aware: rank {} is none of the {} ranks", shape.straggler, ranks));
  }
  const double share = shareAroundStraggler(ranks, arguments.number("ratio"));
  Builder builder = arguments.builder();
  builder.bufferMode(schedule::BufferMode::kEither);
  if (share < kSmallestShare) {
    const RingPart whole{.channels = kRingChannels, .segments = kRingSegments};
    builder.chunks(whole.chunks(ranks), whole.chunks(ranks), 0);
    addRingAllReduce(builder, ranks, whole);
    return std::move(builder).build();
  }
  shape.segments = segmentsFor(share, arguments.count("segments"));
  shape.lanes = std::min(arguments.count("in_flight"), shape.segments);
  const std::uint32_t around = shape.segments * shape.healthy;
  const RingPart beside = ringBeside(ranks, share, around);
  const std::uint32_t all = around + beside.chunks(ranks);
  builder.chunks(all, all, shape.lanes * shape.healthy);
  addAroundStraggler(builder, shape);
  if (beside.width > 0) addRingAllReduce(builder, ranks, beside);
  builder.provenance("share_around_straggler", fmt::format("{:.4f}", static_cast<double>(around) / all));
  return std::move(builder).build();
}

}  // namespace

Generator stragglerAwareGenerator() {
  return {.info = {.name = "straggler_aware",
                   .collectives = {Collective::kAllReduce},
                   .minRanks = 3,
                   .parameters = {{"rank", 0, 0, 4095, "the straggler"},
                                  {"ratio", 2, 1, 1000, "how many times slower its link is than the others'",
                                   false},
                                  {"segments", 32, 4, 1024, "pieces of the whole buffer; a multiple of 4"},
                                  {"in_flight", 8, 1, 64,
                                   "segments under way at a time; with 2 it loses a quarter"}},
                   .doc = "Around one slow rank: it sends and receives the message once instead of nearly "
                          "twice, the others "
                          "carry the rest; below ratio 2 a part of the buffer still takes the ordinary ring, "
                          "at the same time. "
                          "OptCC: Chen et al., Don't Let a Few Network Failures Slow the Entire AllReduce, "
                          "arXiv 2606.01680.",
                   .automatic = false},
          .opCount = opCount,
          .expand = expand};
}

}  // namespace theseus::synth
