#include "base/reduce.h"

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/check.h"

// The loops are written once and compiled twice on x86-64: for every processor and, chosen at run time, for
// AVX2. Neither allows fused multiply-add, so both give the same bits.
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define THESEUS_AVX2 1
#else
#define THESEUS_AVX2 0
#endif

// Tells the vectorizer that iterations are independent: ranges are equal or disjoint by contract (reduce.h).
#if defined(__clang__)
#define THESEUS_INDEPENDENT_ITERATIONS  // clang checks for overlap at run time by itself
#else
#define THESEUS_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

#define THESEUS_INLINE __attribute__((always_inline)) inline

namespace theseus::base {
namespace {

/// `condition ? a : b` on bits without a branch, so that conversions vectorize.
THESEUS_INLINE std::uint32_t select(bool condition, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

THESEUS_INLINE float halfBitsToFloat(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  // Normal numbers: move exponent and fraction, then correct the bias by 127 - 15.
  const std::uint32_t normal = (magnitude << 13) + (112u << 23);
  // Zero and subnormals are magnitude * 2^-24 exactly.
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1.0p-24f;
  // Infinity keeps a zero fraction; a NaN keeps its payload and becomes quiet.
  const std::uint32_t special = 0x7f800000u | (magnitude << 13) | select(magnitude > 0x7c00u, 0x00400000u, 0);
  std::uint32_t result = select(magnitude < 0x0400u, std::bit_cast<std::uint32_t>(subnormal), normal);
  result = select(magnitude >= 0x7c00u, special, result);
  return std::bit_cast<float>(result | sign);
}

THESEUS_INLINE std::uint16_t floatToHalfBits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Normal: correct the bias, then add just under half a unit plus the last kept bit, which rounds ties to
  // even. A carry runs into the exponent, up to infinity, as it must.
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14: adding 0.5 aligns the fraction so that the FPU itself rounds to a multiple of 2^-24.
  const float aligned = std::bit_cast<float>(select(magnitude < 0x38800000u, magnitude, 0)) + 0.5f;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(aligned) - std::bit_cast<std::uint32_t>(0.5f);
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  std::uint32_t result = select(magnitude < 0x38800000u, subnormal, normal);
  result = select(magnitude >= 0x47800000u, 0x7c00u, result);  // 65536 and more, infinity
  result = select(magnitude > 0x7f800000u, nan, result);
  return static_cast<std::uint16_t>(result | sign);
}

THESEUS_INLINE float bfloat16BitsToFloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

THESEUS_INLINE std::uint16_t floatToBfloat16Bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x0040u;  // rounding could carry a NaN into infinity
  return static_cast<std::uint16_t>(select((bits & 0x7fffffffu) > 0x7f800000u, nan, rounded));
}

/// How an element is stored and in which type it is computed.
template <class T>
struct Plain {
  using Stored = T;
  // Signed integers wrap: they are added and multiplied as unsigned.
  using Computed = T;
  static THESEUS_INLINE T load(T stored) { return stored; }
  static THESEUS_INLINE T store(T computed) { return computed; }
};
struct Half {
  using Stored = std::uint16_t;
  using Computed = float;
  static THESEUS_INLINE float load(std::uint16_t stored) { return halfBitsToFloat(stored); }
  static THESEUS_INLINE std::uint16_t store(float computed) { return floatToHalfBits(computed); }
};
struct Bfloat16 {
  using Stored = std::uint16_t;
  using Computed = float;
  static THESEUS_INLINE float load(std::uint16_t stored) { return bfloat16BitsToFloat(stored); }
  static THESEUS_INLINE std::uint16_t store(float computed) { return floatToBfloat16Bits(computed); }
};

template <class T>
THESEUS_INLINE auto wrapping(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::make_unsigned_t<T>>(value);
  } else {
    return value;
  }
}

struct Sum {
  template <class T>
  static THESEUS_INLINE T apply(T a, T b) {
    return static_cast<T>(wrapping(a) + wrapping(b));
  }
};
struct Product {
  template <class T>
  static THESEUS_INLINE T apply(T a, T b) {
    return static_cast<T>(wrapping(a) * wrapping(b));
  }
};
// A NaN on either side is the result: whichever rank had it, every rank sees it.
struct Minimum {
  template <class T>
  static THESEUS_INLINE T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      const T smaller = a < b ? a : b;  // b when either is a NaN
      return a != a ? a : smaller;
    } else {
      return a < b ? a : b;
    }
  }
};
struct Maximum {
  template <class T>
  static THESEUS_INLINE T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      const T larger = a > b ? a : b;
      return a != a ? a : larger;
    } else {
      return a > b ? a : b;
    }
  }
};

// memcpy instead of a typed access: the caller's memory is plain bytes to us. It compiles to one load or
// store.
template <class Stored>
THESEUS_INLINE Stored loadAt(const void* base, std::size_t i) {
  Stored value;
  std::memcpy(&value, static_cast<const std::byte*>(base) + i * sizeof(Stored), sizeof(Stored));
  return value;
}
template <class Stored>
THESEUS_INLINE void storeAt(void* base, std::size_t i, Stored value) {
  std::memcpy(static_cast<std::byte*>(base) + i * sizeof(Stored), &value, sizeof(Stored));
}

template <class Element, class Operation>
THESEUS_INLINE void reduceOne(const ReduceOperands& operands, std::size_t i) {
  using Stored = typename Element::Stored;
  const auto left = Element::load(loadAt<Stored>(operands.left, i));
  const auto right = Element::load(loadAt<Stored>(operands.right, i));
  storeAt<Stored>(operands.destination, i, Element::store(Operation::apply(left, right)));
}

// A fixed number of elements in the inner loop: then even the cautious vectorizer of -O2 takes it.
constexpr std::size_t kUnrolled = 64;

template <class Element, class Operation>
THESEUS_INLINE void reduceLoop(ReduceOperands operands, std::size_t count) {
  std::size_t begin = 0;
  for (; begin + kUnrolled <= count; begin += kUnrolled) {
    THESEUS_INDEPENDENT_ITERATIONS
    for (std::size_t i = 0; i < kUnrolled; ++i) reduceOne<Element, Operation>(operands, begin + i);
  }
  for (; begin < count; ++begin) reduceOne<Element, Operation>(operands, begin);
}

using ReduceLoop = void (*)(ReduceOperands, std::size_t);

template <class Element, class Operation>
void reduceBaseline(ReduceOperands operands, std::size_t count) {
  reduceLoop<Element, Operation>(operands, count);
}

#if THESEUS_AVX2
template <class Element, class Operation>
[[gnu::target("avx2")]] void reduceAvx2(ReduceOperands operands, std::size_t count) {
  reduceLoop<Element, Operation>(operands, count);
}
/// float16 with the processor's own conversions, which round and treat NaNs as floatToHalf does.
template <class Operation>
[[gnu::target("avx2,f16c")]] void reduceHalfF16c(ReduceOperands operands, std::size_t count) {
  constexpr std::size_t kLanes = 8;
  const auto* left = static_cast<const std::byte*>(operands.left);
  const auto* right = static_cast<const std::byte*>(operands.right);
  auto* destination = static_cast<std::byte*>(operands.destination);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    float a[kLanes], b[kLanes], result[kLanes];
    _mm256_storeu_ps(a, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(left + 2 * i))));
    _mm256_storeu_ps(b, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(right + 2 * i))));
    for (std::size_t lane = 0; lane < kLanes; ++lane) result[lane] = Operation::apply(a[lane], b[lane]);
    const __m128i stored = _mm256_cvtps_ph(_mm256_loadu_ps(result), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(destination + 2 * i), stored);
  }
  for (; i < count; ++i) reduceOne<Half, Operation>(operands, i);
}
bool hasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
  return has;
}
#endif

constexpr std::size_t kTypeCount = static_cast<std::size_t>(DataType::kFloat64) + 1;
constexpr std::size_t kOpCount = static_cast<std::size_t>(ReduceOp::kAvg) + 1;
using Row = std::array<ReduceLoop, kOpCount>;
using Table = std::array<Row, kTypeCount>;

// Rows in the order of DataType, columns in the order of ReduceOp; an average adds.
template <template <class, class> class Choose>
constexpr Table makeTable() {
  const auto row = []<class Element>(Element*) {
    return Row{Choose<Element, Sum>::kLoop, Choose<Element, Product>::kLoop, Choose<Element, Minimum>::kLoop,
               Choose<Element, Maximum>::kLoop, Choose<Element, Sum>::kLoop};
  };
  return Table{row(static_cast<Plain<std::int8_t>*>(nullptr)),
               row(static_cast<Plain<std::uint8_t>*>(nullptr)),
               row(static_cast<Plain<std::int32_t>*>(nullptr)),
               row(static_cast<Plain<std::uint32_t>*>(nullptr)),
               row(static_cast<Plain<std::int64_t>*>(nullptr)),
               row(static_cast<Plain<std::uint64_t>*>(nullptr)),
               row(static_cast<Half*>(nullptr)),
               row(static_cast<Bfloat16*>(nullptr)),
               row(static_cast<Plain<float>*>(nullptr)),
               row(static_cast<Plain<double>*>(nullptr))};
}

template <class Element, class Operation>
struct ChooseBaseline {
  static constexpr ReduceLoop kLoop = reduceBaseline<Element, Operation>;
};
constexpr Table kBaseline = makeTable<ChooseBaseline>();

#if THESEUS_AVX2
template <class Element, class Operation>
struct ChooseAvx2 {
  static constexpr ReduceLoop kLoop = reduceAvx2<Element, Operation>;
};
template <class Operation>
struct ChooseAvx2<Half, Operation> {
  static constexpr ReduceLoop kLoop = reduceHalfF16c<Operation>;
};
constexpr Table kAvx2 = makeTable<ChooseAvx2>();
#endif

const Table& table() {
#if THESEUS_AVX2
  if (hasAvx2()) return kAvx2;
#endif
  return kBaseline;
}

template <class Element>
void divideAll(void* values, std::size_t count, int divisor) {
  using Stored = typename Element::Stored;
  using Computed = typename Element::Computed;
  for (std::size_t i = 0; i < count; ++i) {
    const Computed value = Element::load(loadAt<Stored>(values, i));
    if constexpr (std::is_integral_v<Computed> && sizeof(Computed) < 8) {
      storeAt<Stored>(values, i, static_cast<Stored>(static_cast<std::int64_t>(value) / divisor));
    } else {
      storeAt<Stored>(values, i,
                      Element::store(static_cast<Computed>(value / static_cast<Computed>(divisor))));
    }
  }
}

}  // namespace

void reduce(DataType type, ReduceOp op, ReduceOperands operands, std::size_t count) {
  table()[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)](operands, count);
}

void finishAverage(DataType type, void* values, std::size_t count, int divisor) {
  THESEUS_CHECK(divisor > 0, "an average needs at least one rank");
  switch (type) {
    case DataType::kInt8:
      return divideAll<Plain<std::int8_t>>(values, count, divisor);
    case DataType::kUint8:
      return divideAll<Plain<std::uint8_t>>(values, count, divisor);
    case DataType::kInt32:
      return divideAll<Plain<std::int32_t>>(values, count, divisor);
    case DataType::kUint32:
      return divideAll<Plain<std::uint32_t>>(values, count, divisor);
    case DataType::kInt64:
      return divideAll<Plain<std::int64_t>>(values, count, divisor);
    case DataType::kUint64:
      return divideAll<Plain<std::uint64_t>>(values, count, divisor);
    case DataType::kFloat16:
      return divideAll<Half>(values, count, divisor);
    case DataType::kBfloat16:
      return divideAll<Bfloat16>(values, count, divisor);
    case DataType::kFloat32:
      return divideAll<Plain<float>>(values, count, divisor);
    case DataType::kFloat64:
      return divideAll<Plain<double>>(values, count, divisor);
  }
}

float halfToFloat(std::uint16_t bits) { return halfBitsToFloat(bits); }
std::uint16_t floatToHalf(float value) { return floatToHalfBits(value); }
float bfloat16ToFloat(std::uint16_t bits) { return bfloat16BitsToFloat(bits); }
std::uint16_t floatToBfloat16(float value) { return floatToBfloat16Bits(value); }

}  // namespace theseus::base
