// Element arithmetic of every data type and reduction: one scalar definition that the reference uses, and the
// loops that the executors use. Pure functions on caller-owned memory, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "theseus/types.h"

namespace theseus::base {

struct ReduceOperands {
  void* destination;
  const void* left;
  const void* right;
};

/// destination[i] = left[i] (op) right[i] for `count` elements. kAvg adds; see finishAverage. The destination
/// may be one of the operands, but ranges must not overlap partly. float16 and bfloat16 are computed in
/// float32 and rounded to nearest even. Integers wrap.
void reduce(DataType type, ReduceOp op, ReduceOperands operands, std::size_t count);

/// values[i] /= divisor (integers truncate toward zero): the end of an average.
void finishAverage(DataType type, void* values, std::size_t count, int divisor);

float halfToFloat(std::uint16_t bits);
std::uint16_t floatToHalf(float value);
float bfloat16ToFloat(std::uint16_t bits);
std::uint16_t floatToBfloat16(float value);

}  // namespace theseus::base
