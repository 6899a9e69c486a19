// How fast a rank's link really is: bytes that were acknowledged over the time in which bytes waited for the
// link. Pure logic: time and readings come in. Owned by an endpoint, one thread.
//
// Time is cut into intervals. A flow is busy in one if bytes waited for the link at both of its ends and the
// receiver's window did not hold it back for most of it. The link is busy if a flow is: flows through one
// port share it, so their times are united, never added, and the bytes of all flows left through the link.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "transport/endpoint.h"

namespace theseus::transport {

/// One flow at one moment.
struct FlowReading {
  bool open = false;
  bool waiting = false;                  // bytes wait for the link (not for the receiver, not for us)
  std::uint64_t acknowledgedBytes = 0;   // ever
  base::Nanoseconds receiverLimited{0};  // ever: time for which the receiver's window held the flow back
};

class LinkMeter {
 public:
  explicit LinkMeter(int flows);

  /// An interval is open.
  bool active() const { return active_; }
  base::TimePoint intervalStart() const { return start_; }
  /// Opens an interval. `readings`: one for each flow.
  void begin(base::TimePoint now, std::span<const FlowReading> readings);
  /// Closes the open interval, counts it, and opens the next; goes idle when no flow waits.
  void mark(base::TimePoint now, std::span<const FlowReading> readings);
  /// A flow got something to send just after the interval began: it waits from the beginning.
  void loaded(int flow) { readings_[static_cast<std::size_t>(flow)].waiting = true; }
  bool waiting(int flow) const { return readings_[static_cast<std::size_t>(flow)].waiting; }

  /// What was counted since the last call.
  LinkSample take();

 private:
  bool active_ = false;
  base::TimePoint start_{0};
  std::vector<FlowReading> readings_;  // at start_
  LinkSample sample_;
};

}  // namespace theseus::transport
