#include "sim/hash_tables.h"

#include "base/clock.h"
#include "control/bytes.h"

namespace theseus::sim {

std::shared_ptr<const control::DispatchTable> emptyTable() {
  auto table = std::make_shared<control::DispatchTable>();
  for (auto& buckets : table->slots) buckets.fill(-1);
  return table;
}

std::shared_ptr<const control::DispatchTable> HashTables::draw(const std::vector<control::Entry>& entries,
                                                               const control::Context& context) {
  for (; folded_ < entries.size(); ++folded_) {
    const control::Entry& entry = entries[folded_];
    control::ByteWriter writer;
    writer.hash(entriesHash_);
    writer.u32(static_cast<std::uint32_t>(entry.id.origin));
    writer.u64(entry.id.number);
    writer.hash(control::entryHash(entry.kind, entry.content));
    entriesHash_ = base::hash128(writer.take());
  }
  control::ByteWriter writer;
  writer.hash(entriesHash_);
  writer.u64(context.round);
  writer.u64(context.logVersion);
  writer.u64(context.switchAt);
  std::vector<control::ScheduleSlot> ready;
  for (int slot = 0; slot < control::kScheduleSlots; ++slot) {
    if (context.ready[static_cast<std::size_t>(slot)])
      ready.push_back(static_cast<control::ScheduleSlot>(slot));
  }
  for (const control::ScheduleSlot slot : ready) writer.u16(static_cast<std::uint16_t>(slot));
  for (const auto& [name, values] : context.attributes) {
    writer.bytes(name);
    for (const double value : values) writer.f64(value);
  }
  const base::Hash128 hash = base::hash128(writer.take());
  auto table = std::make_shared<control::DispatchTable>();
  base::Random random(hash.low);
  for (auto& buckets : table->slots) {
    for (control::ScheduleSlot& slot : buckets)
      slot = ready.empty() ? control::ScheduleSlot{-1} : ready[random.below(ready.size())];
  }
  table->schedules.push_back(hash);
  return table;
}

}  // namespace theseus::sim
