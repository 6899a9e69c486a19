#include "base/hmac.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"

namespace theseus::base {
namespace {

constexpr std::size_t kBlockBytes = 64;

constexpr std::array<std::uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/// Streaming SHA-256: HMAC hashes a pad and then the message without gluing them together.
class Sha256 {
 public:
  void update(std::string_view data) {
    totalBytes_ += data.size();
    while (!data.empty()) {
      const std::size_t taken = std::min(data.size(), kBlockBytes - filled_);
      std::memcpy(block_.data() + filled_, data.data(), taken);
      filled_ += taken;
      data.remove_prefix(taken);
      if (filled_ == kBlockBytes) {
        compress();
        filled_ = 0;
      }
    }
  }

  Digest256 finish() {
    const std::uint64_t totalBits = totalBytes_ * 8;
    // A one bit, zeros up to 56 bytes modulo 64, then the length: between 9 and 72 bytes.
    std::string padding(1 + (kBlockBytes + 55 - filled_) % kBlockBytes, '\0');
    padding[0] = static_cast<char>(0x80);
    for (int shift = 56; shift >= 0; shift -= 8) padding.push_back(static_cast<char>(totalBits >> shift));
    update(padding);
    THESEUS_CHECK(filled_ == 0, "padding must end a block");
    Digest256 digest;
    for (std::size_t i = 0; i < digest.size(); ++i)
      digest[i] = static_cast<std::byte>(state_[i / 4] >> (24 - 8 * (i % 4)));
    return digest;
  }

 private:
  void compress() {
    std::array<std::uint32_t, 64> words;
    for (std::size_t i = 0; i < 16; ++i)
      words[i] = std::uint32_t{block_[4 * i]} << 24 | std::uint32_t{block_[4 * i + 1]} << 16 |
                 std::uint32_t{block_[4 * i + 2]} << 8 | std::uint32_t{block_[4 * i + 3]};
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t early = words[i - 15], late = words[i - 2];
      words[i] = words[i - 16] + (std::rotr(early, 7) ^ std::rotr(early, 18) ^ (early >> 3)) + words[i - 7] +
                 (std::rotr(late, 17) ^ std::rotr(late, 19) ^ (late >> 10));
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t sumE = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t first = h + sumE + ((e & f) ^ (~e & g)) + kRoundConstants[i] + words[i];
      const std::uint32_t sumA = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t second = sumA + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
    }
    const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state_[i] += added[i];
  }

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, kBlockBytes> block_{};
  std::size_t filled_ = 0;
  std::uint64_t totalBytes_ = 0;
};

std::string_view asText(const Digest256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Digest256 sha256(std::string_view message) {
  Sha256 hash;
  hash.update(message);
  return hash.finish();
}

Digest256 hmacSha256(std::string_view key, std::string_view message) {
  std::string block(key.size() > kBlockBytes ? asText(sha256(key)) : key);
  block.resize(kBlockBytes, '\0');
  std::string innerPad = block, outerPad = block;
  for (char& value : innerPad) value = static_cast<char>(value ^ 0x36);
  for (char& value : outerPad) value = static_cast<char>(value ^ 0x5c);
  Sha256 inner;
  inner.update(innerPad);
  inner.update(message);
  Sha256 outer;
  outer.update(outerPad);
  outer.update(asText(inner.finish()));
  return outer.finish();
}

bool equalInConstantTime(const Digest256& left, const Digest256& right) {
  std::byte difference{0};
  for (std::size_t i = 0; i < left.size(); ++i) difference |= left[i] ^ right[i];
  return difference == std::byte{0};
}

void fillRandom(void* destination, std::size_t bytes) {
  auto* next = static_cast<char*>(destination);
  while (bytes > 0) {
    const ssize_t got = ::getrandom(next, bytes, 0);
    THESEUS_CHECK(got > 0 || errno == EINTR, "getrandom must work");
    if (got > 0) next += got, bytes -= static_cast<std::size_t>(got);
  }
}

}  // namespace theseus::base
