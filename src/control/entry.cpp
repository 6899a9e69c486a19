#include "control/entry.h"

#include <tuple>

#include "control/bytes.h"

namespace theseus::control {

base::Hash128 entryHash(EntryKind kind, std::string_view content) {
  // Hash of a hash: a content of megabytes is not copied just to put one byte before it.
  ByteWriter writer;
  writer.u8(static_cast<std::uint8_t>(kind));
  writer.hash(base::hash128(content));
  return base::hash128(writer.take());
}

bool isEntryKind(std::uint8_t value) {
  return value >= static_cast<std::uint8_t>(EntryKind::kNewSchedule) &&
         value <= static_cast<std::uint8_t>(EntryKind::kForce);
}

bool orderedBefore(const EntryId& left, const EntryId& right) {
  return std::tie(left.number, left.origin, left.incarnation, left.hash) <
         std::tie(right.number, right.origin, right.incarnation, right.hash);
}

}  // namespace theseus::control
