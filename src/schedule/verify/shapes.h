// Reads the operand shapes of the op table: which operand of an op is local, remote, switch, packets. Every
// pass asks here, so that a new row in ops.def needs no change in the verifier. Pure functions, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "schedule/op.h"

namespace theseus::schedule::verifying {

enum class Slot : std::uint8_t { kNone, kLocal, kPacket, kRemote, kSwitch };

/// An operand list: `fixed` slots (kNone = no more), then `rest` at least `minimumRest` times (kNone =
/// nothing more).
struct ListRule {
  std::array<Slot, 2> fixed = {Slot::kNone, Slot::kNone};
  Slot rest = Slot::kNone;
  std::size_t minimumRest = 0;

  std::size_t fixedCount() const {
    return static_cast<std::size_t>(fixed[0] != Slot::kNone) +
           static_cast<std::size_t>(fixed[1] != Slot::kNone);
  }
  Slot at(std::size_t position) const { return position < fixedCount() ? fixed[position] : rest; }
};

ListRule listRule(OperandShape shape);

/// Operands correspond one to one (put, get), instead of being folded into one value.
inline bool isPairwise(const OpTraits& row) {
  return row.sources == OperandShape::LocalEach || row.sources == OperandShape::RemoteEach;
}

/// The table's convention: an op whose name ends in "pkt" handles packets, so its remote ranges hold packets.
inline bool remotesArePackets(const OpTraits& row) { return row.name.ends_with("pkt"); }

/// Whether an op touches data at all.
inline bool movesData(const OpTraits& row) {
  return row.sources != OperandShape::None || row.destinations != OperandShape::None;
}

/// Fused ops that take channels and are pairwise signal the peer after the data (pws, pwsf).
inline bool signalsAfterData(const OpTraits& row) {
  return row.opClass == OpClass::Fused && row.channels == ChannelUse::Required;
}

}  // namespace theseus::schedule::verifying
