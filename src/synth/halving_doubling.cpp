// All-reduce by recursive vector halving and distance doubling.
#include <bit>

#include "synth/generator.h"

namespace theseus::synth {
namespace {

using schedule::BlockBuilder;
using schedule::Builder;
using schedule::ChunkRange;

/// One lane over `core` chunks from `base` on. Ranks below `core`, a power of two, do the work; rank core + i
/// hands its vector to rank i before and gets the result after.
class Lane {
 public:
  Lane(Builder& builder, int ranks, std::uint32_t base)
      : builder_(builder),
        ranks_(ranks),
        core_(std::bit_floor(static_cast<std::uint32_t>(ranks))),
        base_(base),
        blocks_(blockOnEveryRank(builder, ranks)) {
    for (std::uint32_t rank = 0; rank < core_; ++rank) {
      if (hasExtra(rank)) builder_.connect(at(rank), at(rank + core_));
      for (std::uint32_t distance = 1; distance < core_; distance *= 2) {
        if (rank < (rank ^ distance)) builder_.connect(at(rank), at(rank ^ distance));
      }
    }
    for (std::uint32_t rank = 0; rank < core_; ++rank) {
      halvingSlots_.push_back(builder_.scratch(static_cast<Rank>(rank), core_ - 1));
      foldSlots_.push_back(hasExtra(rank) ? builder_.scratch(static_cast<Rank>(rank), core_) : 0);
    }
  }

  void emit() {
    for (std::uint32_t rank = 0; rank < core_; ++rank) {
      if (hasExtra(rank)) emitExtra(rank + core_);
      emitCore(rank);
    }
  }

 private:
  bool hasExtra(std::uint32_t rank) const { return rank + core_ < static_cast<std::uint32_t>(ranks_); }
  BlockBuilder& at(std::uint32_t rank) { return blocks_[rank]; }

  void emitExtra(std::uint32_t rank) {
    const std::uint32_t partner = rank - core_;
    at(rank).putWithSignal(static_cast<Rank>(partner), input(base_, core_),
                           scratch(foldSlots_[partner], core_));
    at(rank).wait(static_cast<Rank>(partner));
  }

  void emitCore(std::uint32_t rank) {
    schedule::BufferKind sums = schedule::BufferKind::kInput;  // where this rank's running sums are
    if (core_ == 1) at(rank).copy(input(base_), output(base_));
    if (hasExtra(rank)) {
      at(rank).wait(static_cast<Rank>(rank + core_));
      at(rank).reduce({input(base_, core_), scratch(foldSlots_[rank], core_)}, output(base_, core_));
      sums = schedule::BufferKind::kOutput;
    }
    std::uint32_t first = 0;  // the chunks that this rank still reduces: [first, first + 2 * size)
    for (std::uint32_t size = core_ / 2; size >= 1; size /= 2) {
      const bool keepsUpper = (rank & size) != 0;
      const std::uint32_t sent = keepsUpper ? first : first + size;
      if (keepsUpper) first += size;
      halve(rank, size, {sums, base_ + sent, size}, {sums, base_ + first, size});
      sums = schedule::BufferKind::kOutput;
    }
    for (std::uint32_t size = 1; size < core_; size *= 2) {
      const ChunkRange own = output(base_ + (rank & ~(size - 1)), size);
      const auto partner = static_cast<Rank>(rank ^ size);
      at(rank).putWithSignal(partner, own, own).wait(partner);
    }
    if (hasExtra(rank)) {
      at(rank).putWithSignal(static_cast<Rank>(rank + core_), output(base_, core_), output(base_, core_));
    }
  }

  /// Swaps halves with the partner at distance `size` and adds what comes.
  void halve(std::uint32_t rank, std::uint32_t size, ChunkRange sent, ChunkRange kept) {
    const std::uint32_t partner = rank ^ size;
    const std::uint32_t slot = core_ - 2 * size;  // steps before this one took core/2 + ... + 2 * size chunks
    at(rank).putWithSignal(static_cast<Rank>(partner), sent, scratch(halvingSlots_[partner] + slot, size));
    at(rank).wait(static_cast<Rank>(partner));
    at(rank).reduce({kept, scratch(halvingSlots_[rank] + slot, size)}, output(kept.index, size));
  }

  Builder& builder_;
  int ranks_;
  std::uint32_t core_;
  std::uint32_t base_;
  std::vector<BlockBuilder> blocks_;
  std::vector<std::uint32_t> halvingSlots_;
  std::vector<std::uint32_t> foldSlots_;
};

double opCount(const Arguments& arguments) {
  const auto p = static_cast<std::uint32_t>(arguments.ranks());
  return 8.0 * p * std::bit_width(p) * arguments.number("channels");
}

Result<schedule::Schedule> expand(const Arguments& arguments) {
  const std::uint32_t core = std::bit_floor(static_cast<std::uint32_t>(arguments.ranks()));
  const std::uint32_t channels = arguments.count("channels");
  Builder builder = arguments.builder();
  builder.bufferMode(schedule::BufferMode::kEither).chunks(core * channels, core * channels, 0);
  for (std::uint32_t channel = 0; channel < channels; ++channel) {
    Lane(builder, arguments.ranks(), channel * core).emit();
  }
  return std::move(builder).build();
}

}  // namespace

Generator halvingDoublingGenerator() {
  return {.info = {.name = "halving_doubling",
                   .collectives = {Collective::kAllReduce},
                   .minRanks = 1,
                   .parameters = {{"channels", 1, 1, 64, "lanes side by side"}},
                   .doc = "Recursive halving, then recursive doubling: 2 log2(p) steps and the least bytes "
                          "when p is a power of "
                          "two; other ranks fold in and out. For small and medium messages. Rabenseifner, "
                          "Optimization of "
                          "collective reduction operations, ICCS 2004; Thakur, Rabenseifner and Gropp, "
                          "IJHPCA 19 (2005).",
                   .automatic = true},
          .opCount = opCount,
          .expand = expand};
}

}  // namespace theseus::synth
