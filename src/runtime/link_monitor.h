// From samples of this rank's links to the endo attribute link_rate: one change detector for each rank that this one can say something about
// (itself: all its egress; a peer: the flow to it). Samples are kept apart by schedule, since a schedule decides who shares a port with
// whom. Control thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "control/dispatch_table.h"
#include "policy/detector.h"
#include "transport/endpoint.h"

namespace theseus::runtime {

class LinkMonitor {
 public:
  LinkMonitor(Rank rank, int size) : rank_(rank), size_(size) {}

  /// Takes the links' use during one collective run by `slot`. True when some link became slower or faster.
  bool add(control::ScheduleSlot slot, const transport::LinkSample& sample);
  /// Forgets everything: another dispatch table is in force, and with it other flows share the ports.
  void restart();
  /// What this rank knows about every rank's link, bytes/s, NaN = nothing. Nullopt until enough samples came since restart().
  std::optional<std::vector<double>> rates() const;

 private:
  struct Regime {
    std::vector<policy::LinkDetector> detectors;  // by rank
    std::uint64_t samples = 0;
  };

  Rank rank_;
  int size_;
  std::map<control::ScheduleSlot, Regime> regimes_;
  control::ScheduleSlot latest_ = -1;
};

}  // namespace theseus::runtime
