#include "bench_pattern.h"

#include <algorithm>
#include <cstring>

#include "base/reduce.h"

namespace theseus::cli {
namespace {

/// Work goes in pieces of this many elements, so that checking 64 MiB needs little memory.
constexpr std::uint64_t kPiece = 16 * 1024;

/// 1 or 2 for products, 1...9 otherwise: exact in every type, for up to a few hundred ranks in the 8-bit
/// floats' larger cousins.
std::uint32_t value(const BenchCall& call, int rank, std::uint64_t index) {
  const std::uint64_t mixed =
      (index * 2654435761u + static_cast<std::uint64_t>(rank) * 40503u + call.seed * 97u) >> 7;
  return call.op == ReduceOp::kProd ? 1 + mixed % 2 : 1 + mixed % 9;
}

template <class T>
void storeAs(std::byte* place, std::uint32_t number) {
  const T typed = static_cast<T>(number);
  std::memcpy(place, &typed, sizeof typed);
}

void store(DataType type, std::byte* place, std::uint32_t number) {
  switch (type) {
    case DataType::kInt8:
      return storeAs<std::int8_t>(place, number);
    case DataType::kUint8:
      return storeAs<std::uint8_t>(place, number);
    case DataType::kInt32:
      return storeAs<std::int32_t>(place, number);
    case DataType::kUint32:
      return storeAs<std::uint32_t>(place, number);
    case DataType::kInt64:
      return storeAs<std::int64_t>(place, number);
    case DataType::kUint64:
      return storeAs<std::uint64_t>(place, number);
    case DataType::kFloat16:
      return storeAs<std::uint16_t>(place, base::floatToHalf(static_cast<float>(number)));
    case DataType::kBfloat16:
      return storeAs<std::uint16_t>(place, base::floatToBfloat16(static_cast<float>(number)));
    case DataType::kFloat32:
      return storeAs<float>(place, number);
    case DataType::kFloat64:
      return storeAs<double>(place, number);
  }
}

struct ElementRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

void fillRange(const BenchCall& call, int rank, ElementRange range, std::byte* place) {
  const std::size_t size = dataTypeBytes(call.type);
  for (std::uint64_t i = 0; i < range.count; ++i)
    store(call.type, place + i * size, value(call, rank, range.first + i));
}

/// What the elements `range` of rank `rank`'s destination must be.
void expectedRange(const BenchCall& call, int rank, ElementRange range, std::vector<std::byte>& place) {
  const std::size_t size = dataTypeBytes(call.type);
  place.resize(range.count * size);
  const bool scatter = call.collective == Collective::kReduceScatter;
  if (call.collective == Collective::kAllReduce || scatter) {
    if (scatter) range.first += static_cast<std::uint64_t>(rank) * call.count;
    std::vector<std::byte> other(place.size());
    fillRange(call, 0, range, place.data());
    for (int peer = 1; peer < call.ranks; ++peer) {
      fillRange(call, peer, range, other.data());
      base::reduce(call.type, call.op, {place.data(), place.data(), other.data()}, range.count);
    }
    if (call.op == ReduceOp::kAvg) base::finishAverage(call.type, place.data(), range.count, call.ranks);
    return;
  }
  for (std::uint64_t i = 0; i < range.count; ++i) {
    const std::uint64_t index = range.first + i;
    const int block = call.count == 0 ? 0 : static_cast<int>(index / call.count);
    int source = call.root;
    std::uint64_t at = index;
    if (call.collective == Collective::kAllGather) source = block, at = index % call.count;
    if (call.collective == Collective::kAllToAll)
      source = block, at = static_cast<std::uint64_t>(rank) * call.count + index % call.count;
    store(call.type, place.data() + i * size, value(call, source, at));
  }
}

}  // namespace

std::uint64_t sourceElements(const BenchCall& call) {
  const bool blocks =
      call.collective == Collective::kReduceScatter || call.collective == Collective::kAllToAll;
  return blocks ? call.count * static_cast<std::uint64_t>(call.ranks) : call.count;
}

std::uint64_t destinationElements(const BenchCall& call) {
  const bool blocks = call.collective == Collective::kAllGather || call.collective == Collective::kAllToAll;
  return blocks ? call.count * static_cast<std::uint64_t>(call.ranks) : call.count;
}

void fillSource(const BenchCall& call, int rank, std::vector<std::byte>& bytes) {
  bytes.resize(sourceElements(call) * dataTypeBytes(call.type));
  fillRange(call, rank, {0, sourceElements(call)}, bytes.data());
}

std::uint64_t countWrong(const BenchCall& call, int rank, const std::byte* destination) {
  const std::size_t size = dataTypeBytes(call.type);
  std::vector<std::byte> expected;
  std::uint64_t wrong = 0;
  for (std::uint64_t first = 0; first < destinationElements(call); first += kPiece) {
    const std::uint64_t elements = std::min(kPiece, destinationElements(call) - first);
    expectedRange(call, rank, {first, elements}, expected);
    const std::byte* actual = destination + first * size;
    if (std::memcmp(actual, expected.data(), expected.size()) == 0) continue;
    for (std::uint64_t i = 0; i < elements; ++i) {
      if (std::memcmp(actual + i * size, expected.data() + i * size, size) != 0) ++wrong;
    }
  }
  return wrong;
}

double busFactor(Collective collective, int ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * (n - 1) / n;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return (n - 1) / n;
    default:
      return 1;
  }
}

}  // namespace theseus::cli
