#include "control/attribute_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/hash.h"
#include "control/bytes.h"

namespace theseus::control {
namespace {

bool isNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

Status checkName(std::string_view name) {
  const bool wellFormed = !name.empty() && name.size() <= kMaxAttributeNameBytes && name[0] != '.' &&
                          !(name[0] >= '0' && name[0] <= '9') &&
                          std::all_of(name.begin(), name.end(), isNameCharacter);
  if (wellFormed) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("an attribute name is 1 to {} letters, digits, '_' or '.' and starts with a letter "
                          "or '_'; got {} bytes: '{}'",
                          kMaxAttributeNameBytes, name.size(), name.substr(0, kMaxAttributeNameBytes)));
}

const char* operatorName(AttributeOperator op) { return op == AttributeOperator::kMin ? "min" : "max"; }

/// Takes the text up to the next space off the front of `rest`.
std::string_view takeWord(std::string_view& rest) {
  const std::size_t end = std::min(rest.find(' '), rest.size());
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return word;
}

}  // namespace

double canonicalAttributeValue(double value) {
  if (std::isnan(value)) return std::numeric_limits<double>::quiet_NaN();
  return value == 0 ? 0.0 : value;
}

std::string attributeContent(const AttributeDeclaration& declaration) {
  return fmt::format("{} {} {}", declaration.name, operatorName(declaration.op),
                     declaration.width == 1 ? "1" : "ranks");
}

Result<AttributeDeclaration> parseAttributeContent(std::string_view content, int size) {
  std::string_view rest = content;
  const std::string_view name = takeWord(rest);
  const std::string_view op = takeWord(rest);
  const std::string_view width = rest;
  THESEUS_TRY(checkName(name));
  if ((op != "min" && op != "max") || (width != "1" && width != "ranks")) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("attribute '{}': expected 'NAME min|max 1|ranks', got operator '{}' and width '{}'", name,
                    op.substr(0, 20), width.substr(0, 20)));
  }
  return AttributeDeclaration{std::string(name),
                              op == "min" ? AttributeOperator::kMin : AttributeOperator::kMax,
                              width == "1" ? 1u : static_cast<std::uint32_t>(size)};
}

AttributeTable::AttributeTable(int size) : size_(size) {}

Status AttributeTable::declare(const AttributeDeclaration& declaration) {
  THESEUS_TRY(checkName(declaration.name));
  if (declaration.width != 1 && declaration.width != static_cast<std::uint32_t>(size_)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("attribute '{}' has width {}; only 1 and {} (one for each rank) are possible",
                            declaration.name, declaration.width, size_));
  }
  if (offsets_.count(declaration.name) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("attribute '{}' is declared already", declaration.name));
  }
  if (declarations_.size() >= kMaxAttributes || values_.size() + declaration.width > kMaxAttributeElements) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("attribute '{}' does not fit: at most {} attributes with {} values together",
                            declaration.name, kMaxAttributes, kMaxAttributeElements));
  }
  offsets_.emplace(declaration.name, values_.size());
  declarations_.push_back(declaration);
  operators_.resize(operators_.size() + declaration.width, declaration.op);
  values_.resize(values_.size() + declaration.width, std::numeric_limits<double>::quiet_NaN());
  ByteWriter writer;
  writer.u64(layoutHash_);
  writer.u32(declaration.width);
  writer.u8(static_cast<std::uint8_t>(declaration.op));
  writer.bytes(declaration.name);
  layoutHash_ = base::hash128(writer.take()).low;
  return {};
}

Status AttributeTable::set(std::string_view name, std::uint32_t index, double value) {
  const auto found = offsets_.find(name);
  if (found == offsets_.end()) {
    return fail(
        ErrorCode::kNotFound,
        fmt::format(
            "attribute '{}' is not in force on this rank; declare it, or wait for the round that brings it",
            name));
  }
  const auto declaration =
      std::find_if(declarations_.begin(), declarations_.end(),
                   [&](const AttributeDeclaration& candidate) { return candidate.name == name; });
  THESEUS_CHECK(declaration != declarations_.end(), "an attribute with an offset has a declaration");
  if (index >= declaration->width) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("attribute '{}' has {} values; there is no index {}",
                                                         name, declaration->width, index));
  }
  values_[found->second + index] = canonicalAttributeValue(value);
  return {};
}

std::map<std::string, std::vector<double>> AttributeTable::byName(const std::vector<double>& elements) const {
  THESEUS_CHECK(elements.size() == values_.size(), "an agreed vector has this rank's layout");
  std::map<std::string, std::vector<double>> result;
  for (const AttributeDeclaration& declaration : declarations_) {
    const auto first =
        elements.begin() + static_cast<std::ptrdiff_t>(offsets_.find(declaration.name)->second);
    result.emplace(declaration.name, std::vector<double>(first, first + declaration.width));
  }
  return result;
}

}  // namespace theseus::control
