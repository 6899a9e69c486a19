// The memory of all ranks of a reference run, with its aliases and its bounds. Owned by one run; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "schedule/resolve.h"

namespace theseus::exec {

/// Disjoint byte ranges, sorted; neighbours are merged.
class RangeSet {
 public:
  void add(std::uint64_t begin, std::uint64_t end);
  bool covers(std::uint64_t begin, std::uint64_t end) const;

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;
};

/// One rank's input, output and scratch. In place, input and output are parts of one buffer: an all-gather's
/// input is the rank's own block of the output, a reduce-scatter's output its own block of the input.
class RankMemory {
 public:
  struct Shape {
    Collective collective = Collective::kAllReduce;
    Rank rank = 0;
    schedule::MessageSize size;
    std::uint64_t scratchBytes = 0;
    bool inPlace = false;
  };
  /// Starts with `input` in place and undefined bytes elsewhere.
  RankMemory(const Shape& shape, const std::vector<std::byte>& input);

  std::span<std::byte> buffer(schedule::BufferKind kind);
  RangeSet& arrivedPackets() { return arrivedPackets_; }

 private:
  Shape shape_;
  std::vector<std::byte> first_;   // input, or in place both
  std::vector<std::byte> second_;  // output, unless in place
  std::vector<std::byte> scratch_;
  RangeSet arrivedPackets_;  // of scratch
};

/// What memory holds that no one has written.
inline constexpr std::byte kUndefinedByte{0xA5};

}  // namespace theseus::exec
