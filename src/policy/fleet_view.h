// Who is slow: every rank's link compared with its peers', quantised with hysteresis. A fold over the agreed
// link_rate vectors, so equal on every rank; no clock. One thread. Reasons for the constants: docs/policy.md.
#pragma once

#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace theseus::policy {

/// Slow-down factors that are told apart; 0 = as fast as its peers.
inline constexpr double kSlownessLevels[] = {1, 8.0 / 7, 4.0 / 3, 8.0 / 5, 2, 8.0 / 3, 4, 8};
inline constexpr int kSlownessLevelCount = static_cast<int>(std::size(kSlownessLevels));

struct Straggler {
  Rank rank = 0;
  double ratio = 1;           // quantised: peers' rate / its rate
  double bytesPerSecond = 0;  // its measured rate
  double peerBytesPerSecond = 0;
  friend bool operator==(const Straggler&, const Straggler&) = default;
};

class FleetView {
 public:
  explicit FleetView(int ranks);

  /// Takes an agreed vector: bytes/s of each rank's link, NaN = nobody knows.
  void update(std::span<const double> linkRates);

  /// The slowest straggler; nullopt while no rank is behind its peers.
  std::optional<Straggler> worst() const;
  /// All of them, by rank.
  std::vector<Straggler> stragglers() const;
  /// Quantised slow-down of each rank, 1 for healthy and unknown ones.
  double ratio(Rank rank) const { return kSlownessLevels[levels_[static_cast<std::size_t>(rank)]]; }
  /// What a healthy link carries; changes only when the median has moved by a tenth, so that noise moves
  /// nothing. Nullopt before any rate is known.
  std::optional<double> healthyBytesPerSecond() const { return healthy_; }

 private:
  void updateHealthy(double median);

  std::vector<double> rates_;
  std::vector<int> levels_;
  std::optional<double> healthy_;
  double median_ = 0;
  Rank worst_ = -1;
};

/// The level for a measured ratio when `current` is in force: the nearest in the logarithm, but an edge
/// between two levels is crossed only with a quarter of their distance to spare.
int quantise(double ratio, int current);

}  // namespace theseus::policy
