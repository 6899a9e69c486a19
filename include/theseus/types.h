// The nouns that users and every module share: element types, reductions, collectives. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace theseus {

enum class DataType : std::uint8_t {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64
};

enum class ReduceOp : std::uint8_t { kSum, kProd, kMin, kMax, kAvg };

enum class Collective : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kAllToAll,
  kSendRecv,
  kBarrier,
  kCustom,  // a program with no postcondition that we know ("custom", "test")
};

/// Bytes of one element: 1, 2, 4 or 8.
std::size_t dataTypeBytes(DataType type);

/// Lower-case names as in MSCCL++ plans and nccl-tests: "float32", "sum", "allreduce".
std::string_view name(DataType type);
std::string_view name(ReduceOp op);
std::string_view name(Collective collective);

/// Inverse of name(); also accepts the spellings "half", "float", "double", "bf16", "reduce_scatter".
std::optional<DataType> parseDataType(std::string_view text);
std::optional<ReduceOp> parseReduceOp(std::string_view text);
std::optional<Collective> parseCollective(std::string_view text);

}  // namespace theseus
