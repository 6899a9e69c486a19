// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104): how ranks of one job prove to each other that they know
// its secret. Pure functions, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace theseus::base {

using Digest256 = std::array<std::byte, 32>;

Digest256 sha256(std::string_view message);

/// Keys of any length; binary keys and messages are fine (string_views may hold zero bytes).
Digest256 hmacSha256(std::string_view key, std::string_view message);

/// Takes the same time wherever the two differ, so that an answer's delay does not tell how much of a guess
/// was right.
bool equalInConstantTime(const Digest256& left, const Digest256& right);

/// Fills `destination` from the kernel's generator: challenges that cannot be foreseen or repeated.
void fillRandom(void* destination, std::size_t bytes);

}  // namespace theseus::base
