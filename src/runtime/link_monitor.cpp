#include "runtime/link_monitor.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace theseus::runtime {
namespace {

/// Shorter or smaller bursts live in socket buffers and say nothing about a link.
constexpr std::uint64_t kBytesMin = 1024 * 1024;
constexpr base::Nanoseconds kBusyMin = std::chrono::milliseconds(8);
/// Samples before what is known replaces what was known under the table before.
constexpr std::uint64_t kSamplesMin = 2;

/// A link that has bytes waiting for this share of a collective is what the collective waits for: its rate is
/// its capacity. Below the second share it is not, and the rate is no more than a lower bound.
constexpr double kSaturatedShare = 0.75;
constexpr double kUnboundShare = 0.70;
/// How much faster than when saturated a link must be seen to be no longer the link that it was.
constexpr double kRecoveryStep = 1.12;
constexpr int kPatienceMin = 3;
constexpr int kPatienceMax = 96;

std::optional<double> rateOf(const transport::LinkUse& use) {
  if (use.bytes < kBytesMin || use.busy < kBusyMin) return std::nullopt;
  return static_cast<double>(use.bytes) / std::chrono::duration<double>(use.busy).count();
}

}  // namespace

LinkMonitor::LinkMonitor(Rank rank, int size) : rank_(rank), size_(size), patience_(kPatienceMin) {}

// A schedule that spares this rank's link cannot show how fast it has become: the link idles, and bursts are
// over before TCP has opened its window. What it shows is that the old bound is gone. Then the best rate seen
// before is reported: the policy goes back to a schedule that uses the link in full, and that one measures
// it. If the hope was vain, the next one takes twice the patience.
bool LinkMonitor::watchRecovery(Regime& regime, double rate, double busyShare) {
  if (busyShare >= kSaturatedShare) {
    regime.saturatedRate += (regime.saturatedRate == 0 ? 1.0 : 0.3) * (rate - regime.saturatedRate);
    bestRate_ = std::max(bestRate_, rate);
    if (hoping_) settleHope(rate >= bestRate_ / kRecoveryStep / kRecoveryStep);
  }
  const bool beyond =
      regime.saturatedRate > 0 && busyShare < kUnboundShare && rate > kRecoveryStep * regime.saturatedRate;
  regime.unboundSamples = beyond ? regime.unboundSamples + 1 : std::max(0, regime.unboundSamples - 1);
  if (regime.unbound || regime.unboundSamples < patience_) return false;
  regime.unbound = true;
  hoping_ = true;
  return true;
}

void LinkMonitor::settleHope(bool fulfilled) {
  hoping_ = false;
  patience_ = fulfilled ? kPatienceMin : std::min(2 * patience_, kPatienceMax);
  for (auto& [slot, regime] : regimes_) {
    regime.unbound = false;
    regime.unboundSamples = 0;
    if (fulfilled && slot != latest_) regime.saturatedRate = 0;
  }
}

bool LinkMonitor::add(control::ScheduleSlot slot, const transport::LinkSample& sample, double seconds) {
  const auto own = rateOf(sample.egress);
  if (!own) return false;
  Regime& regime = regimes_[slot];
  regime.detectors.resize(static_cast<std::size_t>(size_));
  latest_ = slot;
  ++regime.samples;
  bool changed = regime.detectors[static_cast<std::size_t>(rank_)].add(*own) != policy::LinkChange::kNone;
  if (watchRecovery(regime, *own, std::chrono::duration<double>(sample.egress.busy).count() / seconds))
    changed = true;
  for (std::size_t peer = 0; peer < sample.toPeer.size(); ++peer) {
    if (static_cast<Rank>(peer) == rank_) continue;
    const auto rate = rateOf(sample.toPeer[peer]);
    if (rate && regime.detectors[peer].add(*rate) != policy::LinkChange::kNone) changed = true;
  }
  return changed;
}

void LinkMonitor::restart() {
  for (auto& [slot, regime] : regimes_) {
    regime.detectors.assign(static_cast<std::size_t>(size_), policy::LinkDetector());
    regime.samples = 0;
  }
  latest_ = -1;
}

std::optional<std::vector<double>> LinkMonitor::rates() const {
  const auto regime = regimes_.find(latest_);
  if (regime == regimes_.end() || regime->second.samples < kSamplesMin) return std::nullopt;
  std::vector<double> rates;
  for (const auto& detector : regime->second.detectors) {
    rates.push_back(detector.rate().value_or(std::numeric_limits<double>::quiet_NaN()));
  }
  if (regime->second.unbound) rates[static_cast<std::size_t>(rank_)] = bestRate_;
  return rates;
}

}  // namespace theseus::runtime
