// Strong integer ids: different things with the same bits do not mix. Plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace theseus::base {

template <class Tag, class Value>
struct StrongId {
  Value value{};
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
};

}  // namespace theseus::base

namespace theseus {

/// Position in a communicator, 0 … size−1. An int by itself since it is used as an index everywhere.
using Rank = std::int32_t;

/// Number of a collective call within its communicator, from 0, the same on every rank.
using SequenceNumber = std::uint64_t;

/// Number of a round of agreement, from 1; table 0 is the one the job starts with.
using Round = std::uint64_t;

}  // namespace theseus
