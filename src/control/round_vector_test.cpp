#include "control/round_vector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/clock.h"
#include "control/bytes.h"
#include "control/message.h"

namespace theseus::control {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
const std::vector<AttributeOperator> kOperators = {AttributeOperator::kMin, AttributeOperator::kMax,
                                                   AttributeOperator::kMin, AttributeOperator::kMax};
const VectorShape kShape{kOperators, 4};

/// From small ranges, so that equal values, ties and unknown attributes are common.
RoundVector drawVector(base::Random& random) {
  RoundVector vector;
  vector.limit = random.below(5);
  vector.version = random.below(5);
  vector.smallestTable = {random.below(2), random.below(3)};
  vector.largestTable = vector.smallestTable;
  vector.ready = std::bitset<kScheduleSlots>(random.below(16)) | std::bitset<kScheduleSlots>(random.below(4))
                                                                     << 254;
  std::set<EntryId, decltype(&orderedBefore)> ids(&orderedBefore);
  for (std::uint64_t i = random.below(7); i > 0; --i) {
    ids.insert({static_cast<Rank>(random.below(3)),
                static_cast<std::uint32_t>(random.below(2)),
                random.below(3),
                {0, random.below(2)}});
  }
  vector.proposals.assign(ids.begin(), ids.end());
  vector.proposals.resize(std::min(vector.proposals.size(), kShape.proposals));
  for (std::size_t i = 0; i < kOperators.size(); ++i) {
    vector.attributes.push_back(random.chance(0.3) ? kUnknown : static_cast<double>(random.below(4)) - 1.5);
  }
  return vector;
}

RoundVector joined(RoundVector left, const RoundVector& right) {
  joinInto(left, right, kShape);
  return left;
}

TEST(RoundVector, JoinIsAssociativeCommutativeIdempotent) {
  base::Random random(1);
  RoundVector neutral;
  neutral.attributes.assign(kOperators.size(), kUnknown);
  for (int i = 0; i < 5000; ++i) {
    const RoundVector a = drawVector(random), b = drawVector(random), c = drawVector(random);
    ASSERT_EQ(joined(joined(a, b), c), joined(a, joined(b, c)));
    ASSERT_EQ(joined(a, b), joined(b, a));
    ASSERT_EQ(joined(a, a), a);
    ASSERT_EQ(joined(joined(a, b), b), joined(a, b));
    ASSERT_EQ(joined(a, neutral), a);
    ASSERT_EQ(joined(neutral, a), a);
  }
}

TEST(RoundVector, JoinOfEachField) {
  RoundVector a, b;
  a.limit = 3, b.limit = 7;
  a.version = 9, b.version = 4;
  a.smallestTable = a.largestTable = {1, 5};
  b.smallestTable = b.largestTable = {1, 2};
  a.ready = std::bitset<kScheduleSlots>(0b0110), b.ready = std::bitset<kScheduleSlots>(0b0011);
  a.attributes = {1, 1, kUnknown, kUnknown};
  b.attributes = {2, 2, 5, kUnknown};
  const RoundVector both = joined(a, b);
  EXPECT_EQ(both.limit, 7u);
  EXPECT_EQ(both.version, 4u);
  EXPECT_EQ(both.smallestTable, (base::Hash128{1, 2}));
  EXPECT_EQ(both.largestTable, (base::Hash128{1, 5}));
  EXPECT_EQ(both.ready, std::bitset<kScheduleSlots>(0b0010));
  EXPECT_EQ(both.attributes[0], 1);
  EXPECT_EQ(both.attributes[1], 2);
  EXPECT_EQ(both.attributes[2], 5);
  EXPECT_TRUE(std::isnan(both.attributes[3]));
}

TEST(RoundVector, AFloodStandsBehindTheFirstEntriesOfOthers) {
  const VectorShape shape{{}, 4};
  RoundVector flood, quiet, late;
  for (std::uint64_t number = 0; number < 4; ++number) flood.proposals.push_back({0, 0, number, {}});
  quiet.proposals = {{5, 0, 0, {}}};
  late.proposals = {{3, 0, 1, {}}};
  joinInto(flood, quiet, shape);
  joinInto(flood, late, shape);
  ASSERT_EQ(flood.proposals.size(), 4u);
  EXPECT_EQ(flood.proposals[0].origin, 0);
  EXPECT_EQ(flood.proposals[1].origin, 5);
  EXPECT_EQ(flood.proposals[2].origin, 0);
  EXPECT_EQ(flood.proposals[2].number, 1u);
  EXPECT_EQ(flood.proposals[3].origin, 3);
}

RoundMessage documentedMessage() {
  RoundMessage message;
  message.round = 0x0102030405060708;
  message.step = 2;
  message.layout = 0x1112131415161718;
  message.vector.limit = 0x2122;
  message.vector.version = 3;
  message.vector.smallestTable = {0x31, 0x32};
  message.vector.largestTable = {0x41, 0x42};
  message.vector.ready = std::bitset<kScheduleSlots>().set(0).set(9).set(255);
  message.vector.proposals = {{6, 1, 0x51, {0x61, 0x62}}};
  message.vector.attributes = {1.0, kUnknown};
  return message;
}

/// The same bytes stand in docs/agreement.md; a change of either is a change of the protocol's version.
TEST(RoundMessage, DocumentedBytes) {
  const char* const expected =
      "54010100"
      "07000000"  // prefix, 7 ranks
      "0807060504030201"
      "02000000"
      "00000000"
      "1817161514131211"  // round, step, zero, layout
      "2221000000000000"
      "0300000000000000"  // limit, version
      "3100000000000000"
      "3200000000000000"
      "4100000000000000"
      "4200000000000000"  // tables
      "0102000000000000"
      "0000000000000000"
      "0000000000000000"
      "0000000000000080"  // ready
      "01000000"
      "02000000"  // counts
      "06000000"
      "01000000"
      "5100000000000000"
      "6100000000000000"
      "6200000000000000"  // proposal
      "000000000000f03f"
      "000000000000f87f";  // attributes
  std::string hex;
  for (const char c : encodeRoundMessage(documentedMessage(), 7)) {
    hex += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
    hex += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
  }
  EXPECT_EQ(hex, expected);
}

TEST(RoundMessage, RoundTrip) {
  base::Random random(2);
  for (int i = 0; i < 500; ++i) {
    const RoundMessage message{1 + random.below(9), static_cast<std::uint32_t>(random.below(9)),
                               random.next(), drawVector(random)};
    const std::string bytes = encodeRoundMessage(message, 3);
    const auto decoded = decodeRoundMessage(bytes, 3);
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(decoded->round, message.round);
    EXPECT_EQ(decoded->step, message.step);
    EXPECT_EQ(decoded->layout, message.layout);
    ASSERT_EQ(decoded->vector, message.vector);
  }
}

TEST(RoundMessage, EveryCutAndEveryExtensionIsRefused) {
  const std::string bytes = encodeRoundMessage(documentedMessage(), 7);
  ASSERT_TRUE(decodeRoundMessage(bytes, 7));
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decodeRoundMessage(bytes.substr(0, length), 7)) << length;
  EXPECT_FALSE(decodeRoundMessage(bytes + '\0', 7));
}

TEST(RoundMessage, WhatIsAcceptedIsCanonical) {
  base::Random random(3);
  const std::string good = encodeRoundMessage(documentedMessage(), 7);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (std::uint64_t flips = 1 + random.below(3); flips > 0; --flips) {
      bytes[random.below(bytes.size())] ^= static_cast<char>(1 << random.below(8));
    }
    const auto decoded = decodeRoundMessage(bytes, 7);
    if (!decoded) continue;
    ++accepted;
    ASSERT_EQ(encodeRoundMessage(*decoded, 7), bytes);
  }
  EXPECT_GT(accepted, 1000) << "most flips only change a number";
}

/// Changes one part of a good message; the message must then be refused with this code.
template <class Change>
void expectRefused(ErrorCode code, Change change) {
  RoundMessage message = documentedMessage();
  change(message);
  const auto decoded = decodeRoundMessage(encodeRoundMessage(message, 7), 7);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, code) << decoded.error().message;
}

TEST(RoundMessage, ImpossibleContentsAreRefused) {
  constexpr ErrorCode kMalformed = ErrorCode::kInvalidArgument;
  expectRefused(kMalformed, [](RoundMessage& message) { message.round = 0; });
  expectRefused(kMalformed, [](RoundMessage& message) { message.vector.proposals[0].origin = 7; });
  expectRefused(kMalformed, [](RoundMessage& message) { message.vector.proposals[0].origin = -1; });
  expectRefused(kMalformed, [](RoundMessage& message) {
    message.vector.proposals.push_back(message.vector.proposals[0]);
  });
  expectRefused(kMalformed, [](RoundMessage& message) { message.vector.attributes[0] = -0.0; });
  expectRefused(kMalformed, [](RoundMessage& message) { message.vector.attributes[0] = -kUnknown; });
  expectRefused(kMalformed, [](RoundMessage& message) {
    std::swap(message.vector.smallestTable, message.vector.largestTable);
  });
  expectRefused(kMalformed, [](RoundMessage& message) {
    message.vector.attributes.resize(kMaxAttributeElements + 1, 1.0);
  });
}

TEST(RoundMessage, OtherRankCountOrVersionIsAMismatch) {
  std::string bytes = encodeRoundMessage(documentedMessage(), 7);
  auto decoded = decodeRoundMessage(bytes, 8);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, ErrorCode::kMismatch);
  EXPECT_NE(decoded.error().message.find("of 7 ranks, this one has 8"), std::string::npos)
      << decoded.error().message;
  bytes[1] = 2;
  decoded = decodeRoundMessage(bytes, 7);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, ErrorCode::kMismatch);
}

TEST(RoundMessage, CountsThatWouldOverflowAreRefused) {
  std::string bytes = encodeRoundMessage(documentedMessage(), 7);
  for (std::size_t i = kRoundHeaderBytes - 8; i < kRoundHeaderBytes; ++i) bytes[i] = static_cast<char>(0xff);
  EXPECT_FALSE(decodeRoundMessage(bytes, 7));
}

}  // namespace
}  // namespace theseus::control
