// Endo attributes: numbers measured inside the runtime and joined across ranks in every round. Declarations
// are plain values; their text form is the content of a kNewAttribute entry. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "theseus/result.h"

namespace theseus::control {

enum class AttributeOperator : std::uint8_t { kMin, kMax };  // and, or = min, max over 0 and 1

/// An endo attribute: `width` doubles, 1 or one for each rank, joined element by element.
struct AttributeDeclaration {
  std::string name;
  AttributeOperator op = AttributeOperator::kMax;
  std::uint32_t width = 1;
};

/// All attributes of a communicator together: bounds the vector of a round.
constexpr std::size_t kMaxAttributes = 256;
constexpr std::size_t kMaxAttributeElements = 65536;
constexpr std::size_t kMaxAttributeNameBytes = 64;

/// Content of a kNewAttribute entry: "NAME min|max 1|ranks". A width other than 1 is written as "ranks".
std::string attributeContent(const AttributeDeclaration& declaration);

/// The inverse, for a communicator of `size` ranks. A name is 1 to 64 of a-z, A-Z, 0-9, '_', '.', not
/// starting with a digit or a point.
Result<AttributeDeclaration> parseAttributeContent(std::string_view content, int size);

}  // namespace theseus::control
