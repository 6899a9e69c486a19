#include "exec/host/call.h"

#include <fmt/format.h>

namespace theseus::exec {

transport::SegmentHeader makeHeader(const Call& call, transport::SegmentKind kind) {
  transport::SegmentHeader header;
  header.kind = kind;
  header.collective = static_cast<std::uint8_t>(call.identity.collective);
  header.dataType = static_cast<std::uint8_t>(call.identity.dataType);
  header.reduceOp = static_cast<std::uint8_t>(call.identity.reduceOp);
  header.sequence = call.identity.sequence;
  header.scheduleId = call.node->wireId();
  header.count = call.identity.count;
  header.root = call.identity.root;
  return header;
}

std::string describeCall(const transport::SegmentHeader& header) {
  // Bytes from the wire: names are looked up only for values that exist.
  const bool known = header.collective <= static_cast<std::uint8_t>(Collective::kCustom) &&
                     header.dataType <= static_cast<std::uint8_t>(DataType::kFloat64) &&
                     header.reduceOp <= static_cast<std::uint8_t>(ReduceOp::kAvg);
  if (!known) return "an unknown collective";
  return fmt::format("{}({}, {}, count {}, root {})", name(static_cast<Collective>(header.collective)),
                     name(static_cast<DataType>(header.dataType)),
                     name(static_cast<ReduceOp>(header.reduceOp)), header.count, header.root);
}

bool sameCall(const transport::SegmentHeader& a, const transport::SegmentHeader& b) {
  return a.sequence == b.sequence && a.scheduleId == b.scheduleId && a.collective == b.collective &&
         a.dataType == b.dataType && a.reduceOp == b.reduceOp && a.count == b.count && a.root == b.root;
}

}  // namespace theseus::exec
