#include "demo_pattern.h"

#include <bit>

namespace theseus::demo {
namespace {

// Full blocks of a constant length let the compiler vectorize at -O2.
constexpr std::size_t kBlock = 64;

float linear(std::uint32_t weight, std::uint32_t factor, std::uint32_t addend) {
  return static_cast<float>(static_cast<std::int32_t>(weight * factor + addend));
}

}  // namespace

void fillPattern(float* values, std::size_t count, int rank, std::uint64_t collective) {
  const auto salt = static_cast<std::uint32_t>(collective);
  const auto factor = static_cast<std::uint32_t>(rank + 1);
  const auto addend = static_cast<std::uint32_t>(rank);
  const std::size_t full = count - count % kBlock;
  for (std::size_t start = 0; start < full; start += kBlock) {
    for (std::size_t i = 0; i < kBlock; ++i) {
      values[start + i] = linear(patternWeight(static_cast<std::uint32_t>(start + i), salt), factor, addend);
    }
  }
  for (std::size_t i = full; i < count; ++i) {
    values[i] = linear(patternWeight(static_cast<std::uint32_t>(i), salt), factor, addend);
  }
}

std::uint64_t countWrong(const float* values, std::size_t count, int ranks, std::uint64_t collective) {
  const auto salt = static_cast<std::uint32_t>(collective);
  const auto size = static_cast<std::uint32_t>(ranks);
  const std::uint32_t factor = size * (size + 1) / 2;
  const std::uint32_t addend = size * (size - 1) / 2;
  const auto differs = [&](std::size_t i) -> std::uint32_t {
    const float expected = linear(patternWeight(static_cast<std::uint32_t>(i), salt), factor, addend);
    return std::bit_cast<std::uint32_t>(values[i]) != std::bit_cast<std::uint32_t>(expected) ? 1u : 0u;
  };
  std::uint64_t wrong = 0;
  const std::size_t full = count - count % kBlock;
  for (std::size_t start = 0; start < full; start += kBlock) {
    std::uint32_t wrongInBlock = 0;
    for (std::size_t i = 0; i < kBlock; ++i) wrongInBlock += differs(start + i);
    wrong += wrongInBlock;
  }
  for (std::size_t i = full; i < count; ++i) wrong += differs(i);
  return wrong;
}

}  // namespace theseus::demo
