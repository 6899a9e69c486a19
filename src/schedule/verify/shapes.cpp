#include "schedule/verify/shapes.h"

namespace theseus::schedule::verifying {

ListRule listRule(OperandShape shape) {
  constexpr Slot kNone = Slot::kNone;
  switch (shape) {
    case OperandShape::None:
      return {};
    case OperandShape::Local:
      return {{Slot::kLocal, kNone}, kNone, 0};
    case OperandShape::Locals:
      return {{Slot::kLocal, kNone}, Slot::kLocal, 0};
    case OperandShape::LocalEach:
      return {{kNone, kNone}, Slot::kLocal, 1};
    case OperandShape::LocalPacket:
      return {{Slot::kPacket, kNone}, kNone, 0};
    case OperandShape::LocalAndPackets:
      return {{Slot::kLocal, kNone}, Slot::kPacket, 1};
    case OperandShape::LocalAndPacket:
      return {{Slot::kLocal, Slot::kPacket}, kNone, 0};
    case OperandShape::LocalAndRemotes:
      return {{Slot::kLocal, kNone}, Slot::kRemote, 1};
    case OperandShape::LocalPacketRemotes:
      return {{Slot::kLocal, Slot::kPacket}, Slot::kRemote, 1};
    case OperandShape::RemoteEach:
      return {{kNone, kNone}, Slot::kRemote, 1};
    case OperandShape::Switch:
      return {{Slot::kSwitch, kNone}, kNone, 0};
  }
  return {};
}

}  // namespace theseus::schedule::verifying
