// The endo attributes in force on one rank: their declarations in order, this rank's own values, and the
// layout of the doubles in the vector of a round. The layout is a function of the completed rounds, so equal
// on every rank. Owned by the control plane; one thread.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "control/attribute.h"
#include "theseus/result.h"

namespace theseus::control {

class AttributeTable {
 public:
  /// `size`: ranks of the communicator; the only width besides 1.
  explicit AttributeTable(int size);

  /// Appends an attribute with unknown values. Errors leave the table as it was: bad name or width, name
  /// taken, table full.
  Status declare(const AttributeDeclaration& declaration);
  /// NaN = unknown. Negative zero becomes zero, every NaN the same NaN, so that equal values have equal
  /// bytes.
  Status set(std::string_view name, std::uint32_t index, double value);

  const std::vector<AttributeDeclaration>& declarations() const { return declarations_; }
  /// One operator and one own value for each element of the vector.
  std::span<const AttributeOperator> operators() const { return operators_; }
  const std::vector<double>& values() const { return values_; }
  /// Of names, operators, widths and their order: ranks with different layouts must not join their vectors.
  std::uint64_t layoutHash() const { return layoutHash_; }

  /// Splits the doubles of an agreed vector by name.
  std::map<std::string, std::vector<double>> byName(const std::vector<double>& elements) const;

 private:
  int size_;
  std::vector<AttributeDeclaration> declarations_;
  std::map<std::string, std::size_t, std::less<>> offsets_;
  std::vector<AttributeOperator> operators_;
  std::vector<double> values_;
  std::uint64_t layoutHash_ = 0;
};

/// The value as it travels: one NaN, no negative zero.
double canonicalAttributeValue(double value);

}  // namespace theseus::control
