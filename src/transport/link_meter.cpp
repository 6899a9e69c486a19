#include "transport/link_meter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace theseus::transport {

LinkMeter::LinkMeter(int flows) : readings_(static_cast<std::size_t>(flows)) {
  sample_.toPeer.resize(readings_.size());
}

void LinkMeter::begin(base::TimePoint now, std::span<const FlowReading> readings) {
  THESEUS_CHECK(readings.size() == readings_.size(), "a reading for each flow");
  std::copy(readings.begin(), readings.end(), readings_.begin());
  start_ = now;
  active_ = true;
}

void LinkMeter::mark(base::TimePoint now, std::span<const FlowReading> readings) {
  THESEUS_CHECK(active_ && readings.size() == readings_.size(),
                "a reading for each flow of an open interval");
  const base::Nanoseconds length = now - start_;
  std::uint64_t left = 0;
  bool linkBusy = false;
  for (std::size_t flow = 0; flow < readings.size(); ++flow) {
    const FlowReading& before = readings_[flow];
    const FlowReading& after = readings[flow];
    if (!before.open || !after.open) continue;
    const std::uint64_t bytes = after.acknowledgedBytes - before.acknowledgedBytes;
    left += bytes;
    const bool receiverLate = (after.receiverLimited - before.receiverLimited) * 2 > length;
    if (!before.waiting || !after.waiting || receiverLate || length.count() <= 0) continue;
    linkBusy = true;
    sample_.toPeer[flow].bytes += bytes;
    sample_.toPeer[flow].busy += length;
  }
  if (linkBusy) {
    sample_.egress.bytes += left;
    sample_.egress.busy += length;
  }
  begin(now, readings);
  active_ = std::any_of(readings.begin(), readings.end(),
                        [](const FlowReading& flow) { return flow.open && flow.waiting; });
}

LinkSample LinkMeter::take() {
  LinkSample fresh;
  fresh.toPeer.resize(readings_.size());
  return std::exchange(sample_, std::move(fresh));
}

}  // namespace theseus::transport
