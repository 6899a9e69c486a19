// The ring over all ranks as a building block of generators. Pure; any thread.
#pragma once

#include <cstdint>

#include "schedule/builder.h"

namespace theseus::synth {

/// Which chunks a ring works on and how: ranks * channels * segments * width chunks from `firstChunk` on.
struct RingPart {
  std::uint32_t firstChunk = 0;
  std::uint32_t width = 1;     // chunks a message
  std::uint32_t channels = 1;  // lanes side by side, each with its own blocks
  std::uint32_t segments = 1;  // messages that a lane sends one after the other, per step
  std::uint32_t chunks(int ranks) const {
    return static_cast<std::uint32_t>(ranks) * channels * segments * width;
  }
};

/// Adds an all-reduce of the part's chunks: a reduce-scatter, then an all-gather.
void addRingAllReduce(schedule::Builder& builder, int ranks, const RingPart& part);

}  // namespace theseus::synth
