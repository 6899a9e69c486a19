#include "schedule/op.h"

#include <array>

#include "base/check.h"

namespace theseus::schedule {
namespace {

constexpr std::array<OpTraits, kOpCodeCount> kTraits = {{
#define THESEUS_OP(id, json, cls, src, dst, channels, doc) \
  OpTraits{json, OpClass::cls, OperandShape::src, OperandShape::dst, ChannelUse::channels, doc},
#include "schedule/ops.def"
#undef THESEUS_OP
}};

constexpr std::array<std::string_view, 3> kChannelTypeNames = {"memory", "port", "switch"};
constexpr std::array<std::string_view, 3> kBufferKindNames = {"i", "o", "s"};

template <class T, std::size_t N>
std::optional<T> position(const std::array<std::string_view, N>& names, std::string_view text) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == text) return static_cast<T>(i);
  }
  return std::nullopt;
}

}  // namespace

const OpTraits& traits(OpCode code) {
  const auto row = static_cast<std::size_t>(code);
  THESEUS_CHECK(row < kTraits.size(), "op code outside the op table");
  return kTraits[row];
}

std::optional<OpCode> parseOpCode(std::string_view jsonName) {
  for (std::size_t i = 0; i < kTraits.size(); ++i) {
    if (kTraits[i].name == jsonName) return static_cast<OpCode>(i);
  }
  return std::nullopt;
}

std::string_view name(ChannelType type) { return kChannelTypeNames[static_cast<std::size_t>(type)]; }
std::string_view name(BufferKind kind) { return kBufferKindNames[static_cast<std::size_t>(kind)]; }

std::optional<ChannelType> parseChannelType(std::string_view text) {
  return position<ChannelType>(kChannelTypeNames, text);
}

std::optional<BufferKind> parseBufferKind(std::string_view text) {
  return position<BufferKind>(kBufferKindNames, text);
}

}  // namespace theseus::schedule
