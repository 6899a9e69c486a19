// From samples of this rank's links to the endo attribute link_rate: one change detector for each rank that
// this one can say something about (itself: all its egress; a peer: the flow to it). Samples are kept apart
// by schedule, since a schedule decides who shares a port with whom. Control thread only.
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
  LinkMonitor(Rank rank, int size);

  /// Takes the links' use during one collective run by `slot`, which took `seconds` on this rank. True when
  /// some link became slower or faster.
  bool add(control::ScheduleSlot slot, const transport::LinkSample& sample, double seconds);
  /// Forgets the rates: another dispatch table is in force, and with it other flows share the ports. What
  /// held this rank's link back under a schedule stays known: the schedule may still be in force, and once
  /// the link has healed that bound can no longer be measured.
  void restart();
  /// What this rank knows about every rank's link, bytes/s, NaN = nothing. Nullopt until enough samples came
  /// since restart().
  std::optional<std::vector<double>> rates() const;

 private:
  struct Regime {
    std::vector<policy::LinkDetector> detectors;  // by rank
    std::uint64_t samples = 0;
    double saturatedRate = 0;  // of this rank, when its link was what everything waited for; 0 = never so far
    int unboundSamples = 0;    // in a row: clearly faster than that, and the link idle for much of the time
    bool unbound = false;
  };
  bool watchRecovery(Regime& regime, double rate, double busyShare);
  /// The link was seen in full use after it was hoped to be healed: was it?
  void settleHope(bool fulfilled);

  Rank rank_;
  int size_;
  std::map<control::ScheduleSlot, Regime> regimes_;
  control::ScheduleSlot latest_ = -1;
  double bestRate_ = 0;  // the most that this rank's link was ever seen to carry
  int patience_;         // unbound samples asked for; doubled when the hope was vain
  bool hoping_ = false;  // bestRate_ was reported without having been seen again yet
};

}  // namespace theseus::runtime
