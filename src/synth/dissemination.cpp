// A barrier in which every rank tells ranks ever further away.
#include <bit>

#include "synth/generator.h"

namespace theseus::synth {
namespace {

double opCount(const Arguments& arguments) {
  const auto p = static_cast<std::uint32_t>(arguments.ranks());
  return 2.0 * p * std::bit_width(p);
}

Result<schedule::Schedule> expand(const Arguments& arguments) {
  schedule::Builder builder = arguments.builder();
  builder.bufferMode(schedule::BufferMode::kEither);
  std::vector<schedule::BlockBuilder> blocks = blockOnEveryRank(builder, arguments.ranks());
  for (int distance = 1; distance < arguments.ranks(); distance *= 2) {
    for (Rank rank = 0; rank < arguments.ranks(); ++rank) {
      schedule::BlockBuilder& block = blocks[static_cast<std::size_t>(rank)];
      block.signal(shifted(rank, distance, arguments.ranks()));
      block.wait(shifted(rank, -distance, arguments.ranks()));
    }
  }
  return std::move(builder).build();
}

}  // namespace

Generator disseminationGenerator() {
  return {
      .info = {.name = "dissemination",
               .collectives = {Collective::kBarrier},
               .minRanks = 1,
               .parameters = {},
               .doc =
                   "Barrier in ceil(log2 p) steps for any p: in step k every rank signals the one 2^k "
                   "further on. "
                   "Hensgen, Finkel and Manber, Two algorithms for barrier synchronization, IJPP 17 (1988).",
               .automatic = true},
      .opCount = opCount,
      .expand = expand};
}

}  // namespace theseus::synth
