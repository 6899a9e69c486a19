// Figures as people read them in reasons. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>

namespace theseus::policy {

std::string megabytes(double bytes);          // "59.8", in 10^6 bytes
std::string rateText(double bytesPerSecond);  // "119.5 MB/s"
std::string durationText(double seconds);     // "281 ms", "41.2 us"
std::string sizeText(std::uint64_t bytes);    // "64 MiB", "1000 bytes"

}  // namespace theseus::policy
