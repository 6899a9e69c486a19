#include "control/dispatch_table.h"

#include "control/bytes.h"

namespace theseus::control {

base::Hash128 DispatchTable::hash() const {
  ByteWriter writer;
  writer.reserve(sizeof slots + schedules.size() * sizeof(base::Hash128));
  for (const auto& buckets : slots) {
    for (const ScheduleSlot slot : buckets) writer.u16(static_cast<std::uint16_t>(slot));
  }
  for (const base::Hash128& schedule : schedules) writer.hash(schedule);
  return base::hash128(writer.take());
}

}  // namespace theseus::control
