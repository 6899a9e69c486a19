#include "base/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/clock.h"

namespace theseus::base {
namespace {

// --- conversions, against a definition by search and arithmetic in double
// -------------------------------------------

/// Value of finite half bits, by the definition of the format.
double halfValue(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryValueToFloatAndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = halfToFloat(half);
    if ((bits & 0x7c00) != 0x7c00) {
      ASSERT_EQ(static_cast<double>(value), halfValue(half)) << bits;
      ASSERT_EQ(floatToHalf(value), half);  // also keeps the sign of zero
    } else if ((bits & 0x3ff) == 0) {
      ASSERT_TRUE(std::isinf(value));
      ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0);
      ASSERT_EQ(floatToHalf(value), half);
    } else {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_EQ(floatToHalf(value), half | 0x200);  // quiet, payload kept
    }
  }
}

TEST(Half, RoundsToNearestTiesToEven) {
  // Between every two neighbours: just below the middle, the middle, just above.
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const auto next = static_cast<std::uint16_t>(bits + 1);
    const auto middle = static_cast<float>((halfValue(bits) + halfValue(next)) / 2);
    const std::uint16_t even = (bits & 1) == 0 ? bits : next;
    ASSERT_EQ(floatToHalf(middle), even) << bits;
    ASSERT_EQ(floatToHalf(std::nextafter(middle, 0.0f)), bits) << bits;
    ASSERT_EQ(floatToHalf(std::nextafter(middle, 1e9f)), next) << bits;
    ASSERT_EQ(floatToHalf(-middle), even | 0x8000) << bits;
  }
  EXPECT_EQ(floatToHalf(65519.996f), 0x7bff);  // largest float that still rounds to 65504
  EXPECT_EQ(floatToHalf(65520.0f), 0x7c00);    // the tie goes to infinity
  EXPECT_EQ(floatToHalf(65536.0f), 0x7c00);
  EXPECT_EQ(floatToHalf(1e30f), 0x7c00);
  EXPECT_EQ(floatToHalf(0x1.0p-25f), 0);  // tie between 0 and the smallest subnormal
  EXPECT_EQ(floatToHalf(std::nextafter(0x1.0p-25f, 1.0f)), 1);
  EXPECT_EQ(floatToHalf(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(floatToHalf(std::bit_cast<float>(0x7f800001u)),
            0x7e00);  // a payload too low to keep is still a NaN
}

TEST(Bfloat16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(floatToBfloat16(1.0f), 0x3f80);
  EXPECT_EQ(floatToBfloat16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie, even below
  EXPECT_EQ(floatToBfloat16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie, even above
  EXPECT_EQ(floatToBfloat16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(floatToBfloat16(std::bit_cast<float>(0x3f807fffu)), 0x3f80);
  EXPECT_EQ(floatToBfloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(floatToBfloat16(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_EQ(floatToBfloat16(std::bit_cast<float>(0x7fffffffu)), 0x7fff);  // no carry into the sign
  EXPECT_EQ(floatToBfloat16(std::bit_cast<float>(0xff800001u)), 0xffc0);
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto stored = static_cast<std::uint16_t>(bits);
    const bool nan = (bits & 0x7fff) > 0x7f80;
    ASSERT_EQ(floatToBfloat16(bfloat16ToFloat(stored)), nan ? (stored | 0x40) : stored);
  }
}

// --- reductions

template <class T>
std::vector<T> reduced(DataType type, ReduceOp op, std::vector<T> left, const std::vector<T>& right) {
  reduce(type, op, {left.data(), left.data(), right.data()}, left.size());
  return left;
}

/// Long enough for the unrolled loop, with a tail that is not.
constexpr std::size_t kCount = 64 * 3 + 17;

template <class T>
void checkInteger(DataType type) {
  using Wide = std::make_unsigned_t<T>;
  Random random(11);
  std::vector<T> left(kCount), right(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    left[i] = static_cast<T>(random.next());
    right[i] = static_cast<T>(random.next());
  }
  left[0] = std::numeric_limits<T>::max();
  right[0] = 1;
  left[kCount - 1] = std::numeric_limits<T>::min();
  right[kCount - 1] = std::numeric_limits<T>::max();
  const auto sum = reduced(type, ReduceOp::kSum, left, right);
  const auto average = reduced(type, ReduceOp::kAvg, left, right);
  const auto product = reduced(type, ReduceOp::kProd, left, right);
  const auto minimum = reduced(type, ReduceOp::kMin, left, right);
  const auto maximum = reduced(type, ReduceOp::kMax, left, right);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(sum[i], static_cast<T>(static_cast<Wide>(left[i]) + static_cast<Wide>(right[i])));
    ASSERT_EQ(average[i], sum[i]);
    ASSERT_EQ(product[i],
              static_cast<T>(std::uint64_t{static_cast<Wide>(left[i])} * static_cast<Wide>(right[i])));
    ASSERT_EQ(minimum[i], std::min(left[i], right[i]));
    ASSERT_EQ(maximum[i], std::max(left[i], right[i]));
  }
  EXPECT_EQ(sum[0], std::numeric_limits<T>::min());  // wraps
}

TEST(Reduce, IntegersWrap) {
  checkInteger<std::int8_t>(DataType::kInt8);
  checkInteger<std::uint8_t>(DataType::kUint8);
  checkInteger<std::int32_t>(DataType::kInt32);
  checkInteger<std::uint32_t>(DataType::kUint32);
  checkInteger<std::int64_t>(DataType::kInt64);
  checkInteger<std::uint64_t>(DataType::kUint64);
}

template <class T>
void checkFloating(DataType type) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  std::vector<T> left(kCount, T{1.5}), right(kCount, T{-2.25});
  left[3] = nan;
  right[4] = nan;
  left[kCount - 1] = nan;
  const auto sum = reduced(type, ReduceOp::kSum, left, right);
  const auto product = reduced(type, ReduceOp::kProd, left, right);
  const auto minimum = reduced(type, ReduceOp::kMin, left, right);
  const auto maximum = reduced(type, ReduceOp::kMax, left, right);
  for (std::size_t i = 0; i < kCount; ++i) {
    if (i == 3 || i == 4 || i == kCount - 1) {
      EXPECT_TRUE(std::isnan(sum[i]) && std::isnan(product[i]) && std::isnan(minimum[i]) &&
                  std::isnan(maximum[i]));
    } else {
      ASSERT_EQ(sum[i], T{-0.75});
      ASSERT_EQ(product[i], T{-3.375});
      ASSERT_EQ(minimum[i], T{-2.25});
      ASSERT_EQ(maximum[i], T{1.5});
    }
  }
}

TEST(Reduce, FloatingPoint) {
  checkFloating<float>(DataType::kFloat32);
  checkFloating<double>(DataType::kFloat64);
}

TEST(Reduce, HalfRoundsAfterEachStep) {
  std::vector<std::uint16_t> values(kCount, floatToHalf(2048.0f));
  const std::vector<std::uint16_t> ones(kCount, floatToHalf(1.0f));
  for (int i = 0; i < 4; ++i)
    reduce(DataType::kFloat16, ReduceOp::kSum, {values.data(), values.data(), ones.data()}, kCount);
  for (const auto value : values) ASSERT_EQ(halfToFloat(value), 2048.0f);  // 2049 ties back to 2048 each time
  Random random(5);
  for (auto& value : values) value = static_cast<std::uint16_t>(random.below(0x7c00));
  const auto before = values;
  reduce(DataType::kFloat16, ReduceOp::kProd, {values.data(), values.data(), values.data()},
         kCount);  // equal ranges
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(values[i], floatToHalf(halfToFloat(before[i]) * halfToFloat(before[i])));
  }
}

TEST(Reduce, HalfLoopsConvertAsTheScalarFunctions) {
  std::vector<std::uint16_t> values(0x10000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i);
  const std::vector<std::uint16_t> lowest(values.size(),
                                          0xfc00);  // -infinity: the maximum is the other operand
  reduce(DataType::kFloat16, ReduceOp::kMax, {values.data(), values.data(), lowest.data()}, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], floatToHalf(halfToFloat(static_cast<std::uint16_t>(i)))) << i;
  }
}

TEST(Reduce, Bfloat16MinimumKeepsBits) {
  std::vector<std::uint16_t> left(kCount, floatToBfloat16(3.0f));
  const std::vector<std::uint16_t> right(kCount, floatToBfloat16(-3.0f));
  reduce(DataType::kBfloat16, ReduceOp::kMin, {left.data(), left.data(), right.data()}, kCount);
  EXPECT_EQ(left, right);
}

TEST(Reduce, ThreeOperandsAndEmpty) {
  std::vector<float> destination(kCount, 7), left(kCount, 1), right(kCount, 2);
  reduce(DataType::kFloat32, ReduceOp::kSum, {destination.data(), left.data(), right.data()}, 0);
  EXPECT_EQ(destination, std::vector<float>(kCount, 7));
  reduce(DataType::kFloat32, ReduceOp::kSum, {destination.data(), left.data(), right.data()}, kCount);
  EXPECT_EQ(destination, std::vector<float>(kCount, 3));
  reduce(DataType::kFloat32, ReduceOp::kSum, {right.data(), left.data(), right.data()}, kCount - 1);
  EXPECT_EQ(right[kCount - 2], 3);
  EXPECT_EQ(right[kCount - 1], 2);  // nothing past the end
}

// --- averages
// -------------------------------------------------------------------------------------------------------

TEST(FinishAverage, IntegersTruncateTowardZero) {
  std::vector<std::int32_t> signedValues = {7, -7, 9, std::numeric_limits<std::int32_t>::min()};
  finishAverage(DataType::kInt32, signedValues.data(), signedValues.size(), 4);
  EXPECT_EQ(signedValues, (std::vector<std::int32_t>{1, -1, 2, -536870912}));
  std::vector<std::uint64_t> large = {std::numeric_limits<std::uint64_t>::max()};
  finishAverage(DataType::kUint64, large.data(), 1, 2);
  EXPECT_EQ(large[0], std::numeric_limits<std::int64_t>::max());
  std::vector<std::int8_t> small = {-128, 127};
  finishAverage(DataType::kInt8, small.data(), 2, 300);  // more ranks than the type holds
  EXPECT_EQ(small, (std::vector<std::int8_t>{0, 0}));
}

TEST(FinishAverage, FloatingPointRoundsOnce) {
  std::vector<float> values = {1.0f, 10.0f};
  finishAverage(DataType::kFloat32, values.data(), 2, 3);
  EXPECT_EQ(values, (std::vector<float>{1.0f / 3, 10.0f / 3}));
  std::uint16_t half = floatToHalf(10.0f);
  finishAverage(DataType::kFloat16, &half, 1, 3);
  EXPECT_EQ(half, floatToHalf(10.0f / 3));
  std::uint16_t brain = floatToBfloat16(10.0f);
  finishAverage(DataType::kBfloat16, &brain, 1, 3);
  EXPECT_EQ(brain, floatToBfloat16(10.0f / 3));
}

}  // namespace
}  // namespace theseus::base
