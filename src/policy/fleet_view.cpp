#include "policy/fleet_view.h"

#include <algorithm>
#include <cmath>

namespace theseus::policy {
namespace {

/// Share of the distance between two levels by which a ratio must pass the middle between them.
constexpr double kEdgeMargin = 0.25;
constexpr double kHealthyStep = 0.10;

bool known(double rate) { return std::isfinite(rate) && rate > 0; }

/// The logarithm of the ratio at which one goes from the lower of two neighbouring levels to the upper, or
/// back.
double edge(int lower, bool upwards) {
  const double from = std::log(kSlownessLevels[lower]);
  const double to = std::log(kSlownessLevels[lower + 1]);
  return (from + to) / 2 + (upwards ? kEdgeMargin : -kEdgeMargin) * (to - from);
}

/// The upper of the two middle ones: with two ranks the faster is the measure of the slower.
double upperMedian(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

int quantise(double ratio, int current) {
  const double measured = std::log(ratio);
  int level = current;
  while (level + 1 < kSlownessLevelCount && measured > edge(level, true)) ++level;
  while (level > 0 && measured < edge(level - 1, false)) --level;
  return level;
}

FleetView::FleetView(int ranks)
    : rates_(static_cast<std::size_t>(ranks), std::nan("")), levels_(static_cast<std::size_t>(ranks), 0) {}

void FleetView::updateHealthy(double median) {
  median_ = median;
  if (!healthy_ || std::abs(std::log(median / *healthy_)) > std::log1p(kHealthyStep)) healthy_ = median;
}

void FleetView::update(std::span<const double> linkRates) {
  std::vector<double> values;
  for (std::size_t rank = 0; rank < rates_.size(); ++rank) {
    rates_[rank] = rank < linkRates.size() ? linkRates[rank] : std::nan("");
    if (known(rates_[rank])) values.push_back(rates_[rank]);
  }
  if (values.empty()) return;  // nothing new is known: what was seen last stays true
  updateHealthy(upperMedian(values));
  for (std::size_t rank = 0; rank < rates_.size(); ++rank) {
    levels_[rank] = known(rates_[rank]) ? quantise(median_ / rates_[rank], levels_[rank]) : levels_[rank];
  }
  // Among equals the one that was the worst stays it.
  const int highest = *std::max_element(levels_.begin(), levels_.end());
  if (highest == 0) {
    worst_ = -1;
  } else if (worst_ < 0 || levels_[static_cast<std::size_t>(worst_)] != highest) {
    worst_ = static_cast<Rank>(std::max_element(levels_.begin(), levels_.end()) - levels_.begin());
  }
}

std::vector<Straggler> FleetView::stragglers() const {
  std::vector<Straggler> list;
  for (std::size_t rank = 0; rank < levels_.size(); ++rank) {
    if (levels_[rank] == 0) continue;
    list.push_back({static_cast<Rank>(rank), kSlownessLevels[levels_[rank]], rates_[rank], median_});
  }
  return list;
}

std::optional<Straggler> FleetView::worst() const {
  for (const Straggler& straggler : stragglers()) {
    if (straggler.rank == worst_) return straggler;
  }
  return std::nullopt;
}

}  // namespace theseus::policy
