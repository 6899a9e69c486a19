#include "control/attribute_table.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace theseus::control {
namespace {

TEST(Attribute, ContentRoundTrip) {
  for (const AttributeDeclaration& declaration :
       {AttributeDeclaration{"a", AttributeOperator::kMin, 1},
        AttributeDeclaration{"_b.c9", AttributeOperator::kMax, 6}}) {
    const auto parsed = parseAttributeContent(attributeContent(declaration), 6);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->name, declaration.name);
    EXPECT_EQ(parsed->op, declaration.op);
    EXPECT_EQ(parsed->width, declaration.width);
  }
}

TEST(Attribute, BadContentIsRefused) {
  const std::string tooLong(kMaxAttributeNameBytes + 1, 'x');
  for (const std::string& content :
       {std::string(), std::string("a"), std::string("a min"), std::string("a min 2"), std::string("a sum 1"),
        std::string("9a min 1"), std::string(".a min 1"), std::string("a-b min 1"), std::string("a min 1 "),
        std::string(" a min 1"), std::string("a  min 1"), tooLong + " min 1", std::string("a\0b min 1", 9)}) {
    EXPECT_FALSE(parseAttributeContent(content, 4)) << content;
  }
}

TEST(AttributeTable, LayoutAndValues) {
  AttributeTable table(3);
  ASSERT_TRUE(table.declare({"rate", AttributeOperator::kMax, 3}));
  ASSERT_TRUE(table.declare({"free", AttributeOperator::kMin, 1}));
  EXPECT_TRUE(std::isnan(table.values()[0]));
  ASSERT_TRUE(table.set("rate", 2, 5));
  ASSERT_TRUE(table.set("free", 0, 7));
  ASSERT_EQ(table.values().size(), 4u);
  EXPECT_EQ(table.values()[2], 5);
  EXPECT_EQ(table.operators()[2], AttributeOperator::kMax);
  EXPECT_EQ(table.operators()[3], AttributeOperator::kMin);
  const auto byName = table.byName({1, 2, 3, 4});
  EXPECT_EQ(byName.at("rate"), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(byName.at("free"), (std::vector<double>{4}));
}

TEST(AttributeTable, EqualValuesHaveEqualBytes) {
  AttributeTable table(2);
  ASSERT_TRUE(table.declare({"x", AttributeOperator::kMax, 2}));
  ASSERT_TRUE(table.set("x", 0, -0.0));
  ASSERT_TRUE(table.set("x", 1, -std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(std::bit_cast<std::uint64_t>(table.values()[0]), 0u);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(table.values()[1]), 0x7ff8000000000000u);
}

TEST(AttributeTable, ErrorsLeaveItAsItWas) {
  AttributeTable table(3);
  ASSERT_TRUE(table.declare({"a", AttributeOperator::kMax, 1}));
  const std::uint64_t layout = table.layoutHash();
  EXPECT_FALSE(table.declare({"a", AttributeOperator::kMin, 1})) << "taken";
  EXPECT_FALSE(table.declare({"b", AttributeOperator::kMin, 2})) << "neither 1 nor the number of ranks";
  EXPECT_FALSE(table.declare({"b c", AttributeOperator::kMin, 1}));
  EXPECT_EQ(table.set("nobody", 0, 1).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(table.set("a", 1, 1).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(table.layoutHash(), layout);
  EXPECT_EQ(table.declarations().size(), 1u);
}

TEST(AttributeTable, LayoutHashSeesNameOperatorWidthAndOrder) {
  const auto hashOf = [](std::vector<AttributeDeclaration> declarations) {
    AttributeTable table(3);
    for (const auto& declaration : declarations) EXPECT_TRUE(table.declare(declaration));
    return table.layoutHash();
  };
  const AttributeDeclaration a{"a", AttributeOperator::kMax, 1}, b{"b", AttributeOperator::kMax, 1};
  const std::uint64_t base = hashOf({a, b});
  EXPECT_EQ(base, hashOf({a, b}));
  EXPECT_NE(base, hashOf({b, a}));
  EXPECT_NE(base, hashOf({a, {"c", AttributeOperator::kMax, 1}}));
  EXPECT_NE(base, hashOf({a, {"b", AttributeOperator::kMin, 1}}));
  EXPECT_NE(base, hashOf({a, {"b", AttributeOperator::kMax, 3}}));
}

TEST(AttributeTable, IsBounded) {
  AttributeTable many(2);
  for (std::size_t i = 0; i < kMaxAttributes; ++i)
    ASSERT_TRUE(many.declare({"a" + std::to_string(i), AttributeOperator::kMax, 1}));
  EXPECT_FALSE(many.declare({"onemore", AttributeOperator::kMax, 1}));
  AttributeTable wide(40000);
  ASSERT_TRUE(wide.declare({"first", AttributeOperator::kMax, 40000}));
  EXPECT_FALSE(wide.declare({"second", AttributeOperator::kMax, 40000}));
}

}  // namespace
}  // namespace theseus::control
