// The vector that a round joins across all ranks: a join-semilattice, so messages may be repeated, reordered
// and merged. Plain values and pure functions, any thread. Its bytes are documented in docs/agreement.md.
#pragma once

#include <bitset>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "control/attribute.h"
#include "control/dispatch_table.h"
#include "control/entry.h"
#include "theseus/result.h"

namespace theseus::control {

constexpr base::Hash128 kLargestHash{std::numeric_limits<std::uint64_t>::max(),
                                     std::numeric_limits<std::uint64_t>::max()};

/// A default-constructed vector (with NaN for each attribute element) is the neutral element of join.
struct RoundVector {
  SequenceNumber limit = 0;                                           // max
  std::uint64_t version = std::numeric_limits<std::uint64_t>::max();  // min
  base::Hash128 smallestTable = kLargestHash;                         // min, and
  base::Hash128 largestTable;                                         // max, of the hash of the last table
  std::bitset<kScheduleSlots> ready = std::bitset<kScheduleSlots>().set();  // and
  std::vector<EntryId> proposals;  // union, the smallest K by orderedBefore; sorted
  std::vector<double> attributes;  // each element by its operator; NaN = unknown
  friend bool operator==(const RoundVector& left, const RoundVector& right);  // NaN equals NaN
};

/// What join must know besides the two vectors; the same on every rank.
struct VectorShape {
  std::span<const AttributeOperator> operators;  // one for each element of attributes
  std::size_t proposals = 0;                     // K
};

/// accumulator = accumulator ⊔ operand. Associative, commutative, idempotent. Both have the shape.
void joinInto(RoundVector& accumulator, const RoundVector& operand, const VectorShape& shape);

/// A round's message: the vector of one step, as the sender had it, with the layout of its attributes.
struct RoundMessage {
  Round round = 0;
  std::uint32_t step = 0;
  std::uint64_t layout = 0;  // AttributeTable::layoutHash of the sender
  RoundVector vector;
};

/// A message has kRoundHeaderBytes, then the proposals, then the attribute values.
constexpr std::size_t kRoundHeaderBytes = 120;
constexpr std::size_t kEntryIdBytes = 32;
constexpr std::size_t kMaxProposalsPerRound = 4096;

std::string encodeRoundMessage(const RoundMessage& message, int size);
/// The same bytes without a copy of the vector.
struct RoundStep {
  Round round = 0;
  std::uint32_t step = 0;
  std::uint64_t layout = 0;
};
std::string encodeRoundMessage(const RoundStep& step, const RoundVector& vector, int size);

/// Strict: only bytes that encodeRoundMessage could have made for a communicator of `size` ranks are
/// accepted.
Result<RoundMessage> decodeRoundMessage(std::string_view bytes, int size);

}  // namespace theseus::control
