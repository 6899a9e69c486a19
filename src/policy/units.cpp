#include "policy/units.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace theseus::policy {

std::string megabytes(double bytes) { return fmt::format("{:.1f}", bytes * 1e-6); }

std::string rateText(double bytesPerSecond) { return megabytes(bytesPerSecond) + " MB/s"; }

std::string durationText(double seconds) {
  if (!std::isfinite(seconds)) return "unknown";
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

std::string sizeText(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

}  // namespace theseus::policy
