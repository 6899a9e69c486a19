// Which schedule serves which call: the result of a round, the same on every rank. Immutable once published;
// any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "theseus/types.h"

namespace theseus::control {

/// Messages are sorted into buckets by the position of the highest bit of their size: bucket b holds
/// [2^(b−1), 2^b) bytes.
constexpr int kSizeBuckets = 48;
constexpr int kCollectives = static_cast<int>(Collective::kCustom) + 1;
/// Schedules a communicator can know at one time: the width of the ready bits of a round.
constexpr int kScheduleSlots = 256;
using ScheduleSlot = std::int16_t;  // −1 = none

constexpr int sizeBucket(std::uint64_t bytes) {
  int bucket = 0;
  while (bytes != 0 && bucket < kSizeBuckets - 1) {
    bytes >>= 1;
    ++bucket;
  }
  return bucket;
}

struct DispatchTable {
  /// slots[collective][bucket]
  std::array<std::array<ScheduleSlot, kSizeBuckets>, kCollectives> slots{};
  /// Content of each slot in use, so that two ranks which number slots differently would notice.
  std::vector<base::Hash128> schedules;
  base::Hash128 hash() const;
};

}  // namespace theseus::control
