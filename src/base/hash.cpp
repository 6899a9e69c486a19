#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <charconv>
#include <cstdio>

namespace theseus::base {

Hash128 hash128(std::string_view content) {
  const XXH128_hash_t hash = XXH3_128bits(content.data(), content.size());
  return {hash.high64, hash.low64};
}

std::string toHex(const Hash128& hash) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high),
                static_cast<unsigned long long>(hash.low));
  return text;
}

std::optional<Hash128> hashFromHex(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  Hash128 hash;
  for (auto [part, value] : {std::pair{text.substr(0, 16), &hash.high}, {text.substr(16), &hash.low}}) {
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), *value, 16);
    if (error != std::errc{} || end != part.data() + part.size()) return std::nullopt;
  }
  return hash;
}

}  // namespace theseus::base
