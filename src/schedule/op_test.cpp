#include "schedule/op.h"

#include <gtest/gtest.h>

#include <set>

namespace theseus::schedule {
namespace {

TEST(OpTable, EveryNameIsUniqueAndParsesBack) {
  std::set<std::string_view> names;
  for (int i = 0; i < kOpCodeCount; ++i) {
    const auto code = static_cast<OpCode>(i);
    const auto& row = traits(code);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.doc.empty()) << row.name;
    ASSERT_TRUE(parseOpCode(row.name).has_value()) << row.name;
    EXPECT_EQ(*parseOpCode(row.name), code);
  }
  EXPECT_EQ(names.size(), 31u);  // the 30 that MSCCL++ loads and glre, which its language writes
}

TEST(OpTable, RowsBelongToTheirCodes) {
  EXPECT_EQ(traits(OpCode::kNop).name, "nop");
  EXPECT_EQ(traits(OpCode::kPutWithSignalAndFlush).name, "pwsf");
  EXPECT_EQ(traits(OpCode::kReduceCopySendPackets).destinations, OperandShape::LocalPacketRemotes);
  EXPECT_EQ(traits(OpCode::kPipeline).opClass, OpClass::Container);
  EXPECT_EQ(traits(OpCode::kSignal).channels, ChannelUse::Required);
}

TEST(OpTable, UnknownNamesAreNotGuessed) {
  for (std::string_view text : {"", "Nop", "nop ", "putt", "kNop"}) EXPECT_FALSE(parseOpCode(text)) << text;
  EXPECT_FALSE(parseChannelType("none"));
  EXPECT_FALSE(parseBufferKind("input"));
}

TEST(OpTable, ChannelTypesAndBufferKindsParseBack) {
  for (auto type : {ChannelType::kMemory, ChannelType::kPort, ChannelType::kSwitch}) {
    EXPECT_EQ(parseChannelType(name(type)), type);
  }
  for (auto kind : {BufferKind::kInput, BufferKind::kOutput, BufferKind::kScratch}) {
    EXPECT_EQ(parseBufferKind(name(kind)), kind);
  }
}

}  // namespace
}  // namespace theseus::schedule
