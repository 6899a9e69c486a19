// Log entries: everything that a rank adds for all ranks. Plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/ids.h"

namespace theseus::control {

enum class EntryKind : std::uint8_t {
  kNewSchedule = 1,   // content: plan JSON, or a generator call
  kDropSchedule = 2,  // content: schedule hash in hexadecimal
  kSetExo = 3,        // content: name=value
  kNewAttribute = 4,  // content: declaration of an endo attribute
  kForce = 5,         // content: collective, size range, schedule hash (or "auto"): an operator's choice
};

struct EntryId {
  Rank origin = 0;
  std::uint32_t incarnation = 0;  // of the origin's process
  std::uint64_t number = 0;       // the origin's own count, from 0
  base::Hash128 hash;             // of kind and content
  friend auto operator<=>(const EntryId&, const EntryId&) = default;
};

struct Entry {
  EntryId id;
  EntryKind kind = EntryKind::kSetExo;
  std::string content;
};

/// The hash in an EntryId.
base::Hash128 entryHash(EntryKind kind, std::string_view content);
bool isEntryKind(std::uint8_t value);

/// How one round orders its new entries: by the origin's own number, then origin, incarnation, hash. One
/// origin's entries keep their order, and a flood from one origin stands behind the first entries of all
/// others.
bool orderedBefore(const EntryId& left, const EntryId& right);

}  // namespace theseus::control
