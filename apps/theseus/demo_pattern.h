// Inputs of the demonstration's allReduce stream: they vary with rank, collective and position, and every sum
// of them is an integer that float32 holds exactly, so that any schedule, in any order of summation, must
// give the same bits. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace theseus::demo {

/// Ranks for which every sum is below 2^24.
constexpr int kMaxPatternRanks = 256;

/// The part of the value that depends on position and collective: 0 … 255.
constexpr std::uint32_t patternWeight(std::uint32_t position, std::uint32_t collective) {
  return ((position * 2654435761u) ^ (collective * 0x9e3779b9u)) >> 24;
}

/// values[i] = (rank + 1) * weight(i) + rank
void fillPattern(float* values, std::size_t count, int rank, std::uint64_t collective);

/// How many of `values` are not, bit for bit, the sum over all ranks.
std::uint64_t countWrong(const float* values, std::size_t count, int ranks, std::uint64_t collective);

}  // namespace theseus::demo
