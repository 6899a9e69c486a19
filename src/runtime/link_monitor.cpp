#include "runtime/link_monitor.h"

#include <chrono>
#include <limits>

namespace theseus::runtime {
namespace {

/// Shorter or smaller bursts live in socket buffers and say nothing about a link.
constexpr std::uint64_t kBytesMin = 256 * 1024;
constexpr base::Nanoseconds kBusyMin = std::chrono::milliseconds(1);
/// Samples before what is known replaces what was known under the table before.
constexpr std::uint64_t kSamplesMin = 2;

std::optional<double> rateOf(const transport::LinkUse& use) {
  if (use.bytes < kBytesMin || use.busy < kBusyMin) return std::nullopt;
  return static_cast<double>(use.bytes) / std::chrono::duration<double>(use.busy).count();
}

}  // namespace

bool LinkMonitor::add(control::ScheduleSlot slot, const transport::LinkSample& sample) {
  const auto own = rateOf(sample.egress);
  if (!own) return false;
  Regime& regime = regimes_[slot];
  regime.detectors.resize(static_cast<std::size_t>(size_));
  latest_ = slot;
  ++regime.samples;
  bool changed = regime.detectors[static_cast<std::size_t>(rank_)].add(*own) != policy::LinkChange::kNone;
  for (std::size_t peer = 0; peer < sample.toPeer.size(); ++peer) {
    if (static_cast<Rank>(peer) == rank_) continue;
    const auto rate = rateOf(sample.toPeer[peer]);
    if (rate && regime.detectors[peer].add(*rate) != policy::LinkChange::kNone) changed = true;
  }
  return changed;
}

void LinkMonitor::restart() {
  regimes_.clear();
  latest_ = -1;
}

std::optional<std::vector<double>> LinkMonitor::rates() const {
  const auto regime = regimes_.find(latest_);
  if (regime == regimes_.end() || regime->second.samples < kSamplesMin) return std::nullopt;
  std::vector<double> rates;
  for (const auto& detector : regime->second.detectors) {
    rates.push_back(detector.rate().value_or(std::numeric_limits<double>::quiet_NaN()));
  }
  return rates;
}

}  // namespace theseus::runtime
