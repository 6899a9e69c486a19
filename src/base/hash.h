// Content hash (XXH3, 128 bit): the identity of schedules and log entries. Pure functions, any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace theseus::base {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend constexpr auto operator<=>(const Hash128&, const Hash128&) = default;
};

/// Hash of the bytes of `content`; the same on every machine.
Hash128 hash128(std::string_view content);

/// 32 lower-case hexadecimal digits.
std::string toHex(const Hash128& hash);

/// The inverse of toHex; nullopt unless exactly 32 hexadecimal digits.
std::optional<Hash128> hashFromHex(std::string_view text);

}  // namespace theseus::base
