#include "control/round_vector.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "control/attribute_table.h"
#include "control/message.h"

namespace theseus::control {
namespace {

constexpr std::size_t kReadyWords = kScheduleSlots / 64;
static_assert(kScheduleSlots % 64 == 0, "ready bits travel as whole 64-bit words");
static_assert(kRoundHeaderBytes ==
              kMessagePrefixBytes + 8 + 4 + 4 + 8 + 8 + 8 + 2 * 16 + kReadyWords * 8 + 4 + 4);
static_assert(kEntryIdBytes == 4 + 4 + 8 + 16);

double joinElement(AttributeOperator op, double left, double right) {
  if (std::isnan(left)) return right;
  if (std::isnan(right)) return left;
  return op == AttributeOperator::kMin ? std::min(left, right) : std::max(left, right);
}

void joinProposals(std::vector<EntryId>& accumulator, const std::vector<EntryId>& operand,
                   std::size_t limit) {
  if (operand.empty() || accumulator == operand) return;
  std::vector<EntryId> merged;
  merged.reserve(accumulator.size() + operand.size());
  std::set_union(accumulator.begin(), accumulator.end(), operand.begin(), operand.end(),
                 std::back_inserter(merged), orderedBefore);
  if (merged.size() > limit) merged.resize(limit);
  accumulator = std::move(merged);
}

void writeReady(ByteWriter& writer, const std::bitset<kScheduleSlots>& ready) {
  static const std::bitset<kScheduleSlots> lowWord(~0ull);
  for (std::size_t word = 0; word < kReadyWords; ++word) {
    writer.u64(((ready >> (64 * word)) & lowWord).to_ullong());
  }
}

std::bitset<kScheduleSlots> readReady(ByteReader& reader) {
  std::bitset<kScheduleSlots> ready;
  for (std::size_t word = 0; word < kReadyWords; ++word) {
    ready |= std::bitset<kScheduleSlots>(reader.u64()) << (64 * word);
  }
  return ready;
}

Status readProposals(ByteReader& reader, std::size_t count, int size, std::vector<EntryId>& proposals) {
  proposals.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const EntryId id = readEntryId(reader);
    if (!isEntryIdOf(id, size)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("round message proposes an entry of rank {}", id.origin));
    }
    if (!proposals.empty() && !orderedBefore(proposals.back(), id)) {
      return fail(ErrorCode::kInvalidArgument, "round message whose proposals are not in order");
    }
    proposals.push_back(id);
  }
  return {};
}

Status readAttributes(ByteReader& reader, std::size_t count, std::vector<double>& attributes) {
  attributes.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double value = reader.f64();
    if (std::bit_cast<std::uint64_t>(value) != std::bit_cast<std::uint64_t>(canonicalAttributeValue(value))) {
      return fail(ErrorCode::kInvalidArgument,
                  "round message with an attribute value that is not in canonical form");
    }
    attributes.push_back(value);
  }
  return {};
}

}  // namespace

bool operator==(const RoundVector& left, const RoundVector& right) {
  const auto sameBits = [](double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  };
  return left.limit == right.limit && left.version == right.version &&
         left.smallestTable == right.smallestTable && left.largestTable == right.largestTable &&
         left.ready == right.ready && left.proposals == right.proposals &&
         std::equal(left.attributes.begin(), left.attributes.end(), right.attributes.begin(),
                    right.attributes.end(), sameBits);
}

void joinInto(RoundVector& accumulator, const RoundVector& operand, const VectorShape& shape) {
  THESEUS_CHECK(accumulator.attributes.size() == shape.operators.size() &&
                    operand.attributes.size() == shape.operators.size(),
                "vectors of a round have the same layout");
  accumulator.limit = std::max(accumulator.limit, operand.limit);
  accumulator.version = std::min(accumulator.version, operand.version);
  accumulator.smallestTable = std::min(accumulator.smallestTable, operand.smallestTable);
  accumulator.largestTable = std::max(accumulator.largestTable, operand.largestTable);
  accumulator.ready &= operand.ready;
  joinProposals(accumulator.proposals, operand.proposals, shape.proposals);
  for (std::size_t i = 0; i < shape.operators.size(); ++i) {
    accumulator.attributes[i] =
        joinElement(shape.operators[i], accumulator.attributes[i], operand.attributes[i]);
  }
}

std::string encodeRoundMessage(const RoundStep& step, const RoundVector& vector, int size) {
  ByteWriter writer;
  writer.reserve(kRoundHeaderBytes + vector.proposals.size() * kEntryIdBytes +
                 vector.attributes.size() * sizeof(double));
  writePrefix(writer, MessageKind::kRound, size);
  writer.u64(step.round);
  writer.u32(step.step);
  writer.u32(0);
  writer.u64(step.layout);
  writer.u64(vector.limit);
  writer.u64(vector.version);
  writer.hash(vector.smallestTable);
  writer.hash(vector.largestTable);
  writeReady(writer, vector.ready);
  writer.u32(static_cast<std::uint32_t>(vector.proposals.size()));
  writer.u32(static_cast<std::uint32_t>(vector.attributes.size()));
  for (const EntryId& id : vector.proposals) writeEntryId(writer, id);
  for (const double value : vector.attributes) writer.f64(value);
  return writer.take();
}

std::string encodeRoundMessage(const RoundMessage& message, int size) {
  return encodeRoundMessage({message.round, message.step, message.layout}, message.vector, size);
}

Result<RoundMessage> decodeRoundMessage(std::string_view bytes, int size) {
  ByteReader reader(bytes);
  auto kind = readPrefix(reader, size);
  if (!kind) return fail(std::move(kind.error()));
  if (*kind != MessageKind::kRound) return fail(ErrorCode::kInvalidArgument, "not a round message");
  RoundMessage message;
  message.round = reader.u64();
  message.step = reader.u32();
  const std::uint32_t reserved = reader.u32();
  message.layout = reader.u64();
  message.vector.limit = reader.u64();
  message.vector.version = reader.u64();
  message.vector.smallestTable = reader.hash();
  message.vector.largestTable = reader.hash();
  message.vector.ready = readReady(reader);
  const std::size_t proposals = reader.u32();
  const std::size_t attributes = reader.u32();
  if (!reader.ok() || reserved != 0)
    return fail(ErrorCode::kInvalidArgument, "round message is cut short or has reserved bits set");
  if (proposals > kMaxProposalsPerRound || attributes > kMaxAttributeElements ||
      reader.remaining() != proposals * kEntryIdBytes + attributes * sizeof(double)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("round message with {} proposals and {} attribute values has {} bytes for them",
                            proposals, attributes, reader.remaining()));
  }
  if (message.round == 0 || message.vector.largestTable < message.vector.smallestTable) {
    return fail(ErrorCode::kInvalidArgument, "round message of round 0 or without a table");
  }
  THESEUS_TRY(readProposals(reader, proposals, size, message.vector.proposals));
  THESEUS_TRY(readAttributes(reader, attributes, message.vector.attributes));
  return message;
}

}  // namespace theseus::control
