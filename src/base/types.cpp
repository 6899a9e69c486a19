#include "theseus/types.h"

#include <array>

#include "theseus/result.h"

namespace theseus {
namespace {

struct TypeRow {
  DataType type;
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array kTypes = {
    TypeRow{DataType::kInt8, "int8", 1},       TypeRow{DataType::kUint8, "uint8", 1},
    TypeRow{DataType::kInt32, "int32", 4},     TypeRow{DataType::kUint32, "uint32", 4},
    TypeRow{DataType::kInt64, "int64", 8},     TypeRow{DataType::kUint64, "uint64", 8},
    TypeRow{DataType::kFloat16, "float16", 2}, TypeRow{DataType::kBfloat16, "bfloat16", 2},
    TypeRow{DataType::kFloat32, "float32", 4}, TypeRow{DataType::kFloat64, "float64", 8},
};

template <class T>
struct NameRow {
  T value;
  std::string_view name;
};
constexpr std::array kOps = {
    NameRow<ReduceOp>{ReduceOp::kSum, "sum"}, NameRow<ReduceOp>{ReduceOp::kProd, "prod"},
    NameRow<ReduceOp>{ReduceOp::kMin, "min"}, NameRow<ReduceOp>{ReduceOp::kMax, "max"},
    NameRow<ReduceOp>{ReduceOp::kAvg, "avg"},
};
constexpr std::array kCollectives = {
    NameRow<Collective>{Collective::kAllReduce, "allreduce"},
    NameRow<Collective>{Collective::kAllGather, "allgather"},
    NameRow<Collective>{Collective::kReduceScatter, "reducescatter"},
    NameRow<Collective>{Collective::kBroadcast, "broadcast"},
    NameRow<Collective>{Collective::kReduce, "reduce"},
    NameRow<Collective>{Collective::kAllToAll, "alltoall"},
    NameRow<Collective>{Collective::kSendRecv, "sendrecv"},
    NameRow<Collective>{Collective::kBarrier, "barrier"},
    NameRow<Collective>{Collective::kCustom, "custom"},
};
constexpr std::array kTypeAliases = {
    NameRow<DataType>{DataType::kFloat16, "half"},   NameRow<DataType>{DataType::kFloat16, "fp16"},
    NameRow<DataType>{DataType::kBfloat16, "bf16"},  NameRow<DataType>{DataType::kFloat32, "float"},
    NameRow<DataType>{DataType::kFloat64, "double"},
};
constexpr std::array kCollectiveAliases = {
    NameRow<Collective>{Collective::kReduceScatter, "reduce_scatter"},
    NameRow<Collective>{Collective::kCustom, "test"},
};

template <class Rows, class T>
std::string_view nameIn(const Rows& rows, T value) {
  for (const auto& row : rows) {
    if (row.value == value) return row.name;
  }
  return "?";
}

template <class T, class Rows>
std::optional<T> valueIn(const Rows& rows, std::string_view text) {
  for (const auto& row : rows) {
    if (row.name == text) return row.value;
  }
  return std::nullopt;
}

}  // namespace

std::size_t dataTypeBytes(DataType type) { return kTypes[static_cast<std::size_t>(type)].bytes; }
std::string_view name(DataType type) { return kTypes[static_cast<std::size_t>(type)].name; }
std::string_view name(ReduceOp op) { return nameIn(kOps, op); }
std::string_view name(Collective collective) { return nameIn(kCollectives, collective); }

std::optional<DataType> parseDataType(std::string_view text) {
  for (const auto& row : kTypes) {
    if (row.name == text) return row.type;
  }
  return valueIn<DataType>(kTypeAliases, text);
}

std::optional<ReduceOp> parseReduceOp(std::string_view text) { return valueIn<ReduceOp>(kOps, text); }

std::optional<Collective> parseCollective(std::string_view text) {
  if (auto found = valueIn<Collective>(kCollectives, text)) return found;
  return valueIn<Collective>(kCollectiveAliases, text);
}

const char* errorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kInvalidSchedule:
      return "invalid_schedule";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kAborted:
      return "aborted";
    case ErrorCode::kTransport:
      return "transport";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kNotFound:
      return "not_found";
  }
  return "?";
}

}  // namespace theseus
