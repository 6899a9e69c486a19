#include "schedule/xml.h"

#include <gtest/gtest.h>

#include "schedule/case_files_for_test.h"
#include "schedule/json.h"
#include "schedule/resolve.h"
#include "schedule/verify/verify.h"

namespace theseus::schedule {
namespace {

/// A ring step by hand: rank 0 sends its chunk, rank 1 adds its own and sends the sum back.
const char* const kPair = R"(<!-- a comment -->
<algo name="pair" proto="LL" nchannels="1" nchunksperloop="1" ngpus="2" coll="allreduce" inplace="1"
      outofplace="0" maxcount="3">
  <gpu id="0" i_chunks="1" o_chunks="0" s_chunks="0">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0"
          dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="i" srcoff="0"
          dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="1" o_chunks="0" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="rrcs" srcbuf="i" srcoff="0"
          dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>)";

std::string replaced(const std::string& from, const std::string& to, const std::string& text = kPair) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : std::string(text).replace(at, from.size(), to);
}

std::string errorOf(const std::string& text) {
  const auto plan = readXml(text);
  return plan ? "no error" : plan.error().message;
}

std::string findingsOf(const Schedule& plan) {
  std::string all;
  for (const auto& finding : verify(plan).findings) all += toString(finding) + "\n";
  return all;
}

std::vector<std::string_view> opNames(const ThreadBlock& block) {
  std::vector<std::string_view> names;
  for (const auto& op : block.ops) {
    if (op.code != OpCode::kNop) names.push_back(traits(op.code).name);
  }
  return names;
}

TEST(ReadXml, LowersMessagesToPutsIntoSlotsOfTheirOwn) {
  const auto plan = readXml(kPair);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->name, "pair");
  EXPECT_EQ(plan->protocol, "Simple");
  EXPECT_EQ(plan->provenance.at("protocol"), "LL");
  EXPECT_EQ(plan->bufferMode, BufferMode::kInPlace);
  EXPECT_EQ(plan->collective(), Collective::kAllReduce);
  ASSERT_EQ(plan->rankCount(), 2);
  for (const auto& rank : plan->ranks) {
    EXPECT_EQ(rank.inputChunks, 1u);
    EXPECT_EQ(rank.outputChunks, 1u);
    EXPECT_EQ(rank.scratchChunks, 1u);                              // one message arrives
    EXPECT_EQ(rank.channelPeers(ChannelType::kMemory).size(), 2u);  // one to send, one to receive
  }
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(opNames(plan->ranks[0].threadBlocks[0]), (Names{"put", "signal", "wait", "copy"}));
  EXPECT_EQ(opNames(plan->ranks[1].threadBlocks[0]), (Names{"wait", "re", "put", "signal"}));
  EXPECT_EQ(findingsOf(*plan), "");
  EXPECT_TRUE(verify(*plan).meaningChecked);
}

TEST(ReadXml, DependenciesBecomeSemaphoresOfTheirOwn) {
  const auto plan = readXml(
      R"(<algo name="d" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="1" coll="custom" inplace="0">
    <gpu id="0" i_chunks="2" o_chunks="2" s_chunks="1">
      <tb id="1" send="-1" recv="-1" chan="0">
        <step s="0" type="nop" srcbuf="i" srcoff="-1"
          dstbuf="o" dstoff="-1" cnt="0" depid="0" deps="0" hasdep="0"/>
        <step s="1" type="cpy" srcbuf="s" srcoff="0"
          dstbuf="o" dstoff="0" cnt="1" depid="0" deps="1" hasdep="0"/>
      </tb>
      <tb id="0" send="-1" recv="-1" chan="0">
        <step s="1" type="re" srcbuf="i" srcoff="1"
          dstbuf="s" dstoff="0" cnt="1" depid="0" deps="0" hasdep="1"/>
        <step s="0" type="cpy" srcbuf="i" srcoff="0"
          dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
      </tb>
    </gpu></algo>)");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->ranks[0].semaphores, (std::vector<std::int64_t>{0, 0}));
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(opNames(plan->ranks[0].threadBlocks[0]), (Names{"copy", "sem_release", "re", "sem_release"}));
  EXPECT_EQ(opNames(plan->ranks[0].threadBlocks[1]), (Names{"sem_acquire", "sem_acquire", "copy"}));
  EXPECT_EQ(findingsOf(*plan), "");
}

TEST(ReadXml, BothDialectsOfUseAndSize) {
  EXPECT_EQ(readXml(replaced("outofplace=\"0\"", ""))->bufferMode, BufferMode::kInPlace);
  EXPECT_EQ(readXml(replaced("outofplace=\"0\"", "outofplace=\"1\""))->bufferMode, BufferMode::kEither);
  EXPECT_NE(errorOf(replaced("inplace=\"1\"", "inplace=\"0\"")).find("neither inplace nor outofplace"),
            std::string::npos);
  const auto sized =
      readXml(replaced("maxcount", "minBytes=\"16\" maxBytes=\"4096\" nthreads=\"256\" maxcount"));
  ASSERT_TRUE(sized) << sized.error().message;
  EXPECT_EQ(sized->minMessageBytes, 16u);
  EXPECT_EQ(sized->maxMessageBytes, 4096u);
  EXPECT_EQ(sized->threadsPerBlock, 256u);
  EXPECT_EQ(readXml(replaced("maxcount", "maxBytes=\"0\" maxcount"))->maxMessageBytes,
            std::numeric_limits<std::uint64_t>::max());
}

TEST(ReadXml, ErrorsNameThePlace) {
  const struct {
    std::string text;
    std::string expected;
  } cases[] = {
      {"", "No document element found"},
      {"<algo", "byte"},
      {"<plan/>", "element <plan> where only <algo>"},
      {std::string(kPair) + kPair, "exactly one <algo>"},
      {replaced("ngpus=\"2\"", "ngpus=\"3\""), "ngpus=\"3\" but 2 <gpu> elements"},
      {replaced("ngpus=\"2\"", "ngpus=\"2x\""), "algo: ngpus=\"2x\" must be a whole number"},
      {replaced("coll=\"allreduce\"", "coll=\"alltoallv\""), "\"alltoallv\" is not supported"},
      {replaced("nchunksperloop=\"1\"", "nchunksperloop=\"2\""), "gpu 0: i_chunks is 1, allreduce needs 2"},
      {replaced("nchunksperloop=\"1\"", "nchunksperloop=\"0\""), "nchunksperloop is 0"},
      {replaced("gpu id=\"1\"", "gpu id=\"0\""), "algo: gpu 0 twice"},
      {replaced("gpu id=\"1\"", "gpu id=\"2\""), "id=\"2\" must be a whole number from 0 to 1"},
      {replaced("send=\"1\"", "send=\"2\""), "gpu 0 tb 0: gpu 2 is no peer"},
      {replaced("send=\"1\"", "send=\"0\""), "gpu 0 tb 0: gpu 0 is no peer"},
      {replaced("send=\"1\"", "send=\"-1\""), "gpu 0 tb 0 step 0: sends, but its tb has send=\"-1\""},
      {replaced("chan=\"0\"", "chan=\"1\""),
       "gpu 0 to gpu 1 on channel 0: 0 messages are sent and 1 received"},
      {replaced("type=\"r\"", "type=\"rx\""), "gpu 0 tb 0 step 1: type=\"rx\" is not known"},
      {replaced("type=\"r\"", "type=\"nop\""),
       "gpu 1 to gpu 0 on channel 0: 1 messages are sent and 0 received"},
      {replaced("srcoff=\"0\"", "srcoff=\"1\""), "1 chunks from 1 of buffer 'i', which has 1"},
      {replaced("srcoff=\"0\"", "srcoff=\"-1\""), "1 chunks from -1 of buffer 'i'"},
      {replaced("cnt=\"1\"", "cnt=\"0\""), "gpu 0 tb 0 step 0: cnt is 0"},
      {replaced("srcbuf=\"i\"", "srcbuf=\"x\""), "srcbuf=\"x\" must be i, o or s"},
      {replaced("depid=\"-1\" deps=\"-1\"", "depid=\"3\" deps=\"0\""), "depends on tb 3 step 0"},
      {replaced("depid=\"-1\" deps=\"-1\"", "depid=\"0\" deps=\"1\""), "depends on a step not before it"},
      {replaced(" s=\"1\"", " s=\"0\""), "gpu 0 tb 0: step 0 twice"},
      {replaced("<step", "<op"), "<op> elements are of the new form"},
      {replaced("</tb>", "</gpu>"), "Start-end tags mismatch"},
      {replaced("<tb", "<tx/><tb"), "gpu 0: element <tx> where only <tb>"},
  };
  for (const auto& each : cases) {
    EXPECT_NE(errorOf(each.text).find(each.expected), std::string::npos)
        << "expected " << each.expected << "\n got " << errorOf(each.text);
  }
}

TEST(ReadXml, CountsOfAMessageMustAgree) {
  auto text = replaced("nchunksperloop=\"1\"", "nchunksperloop=\"2\"");
  for (int i = 0; i < 2; ++i) text = replaced("i_chunks=\"1\"", "i_chunks=\"2\"", text);
  EXPECT_EQ(errorOf(text), "no error");
  EXPECT_NE(errorOf(replaced("cnt=\"1\"", "cnt=\"2\"", text))
                .find("message 0 is sent with cnt 2 (gpu 0 tb 0 step 0) and "
                      "received with cnt 1 (gpu 1 tb 0 step 0)"),
            std::string::npos);
}

TEST(ReadXml, TwoBlocksCannotShareAConnection) {
  const auto text = replaced("</tb>", "</tb><tb id=\"1\" send=\"1\" recv=\"-1\" chan=\"0\"></tb>");
  EXPECT_NE(errorOf(text).find("gpu 0 tb 1: tb 0 already sends to the same peer"), std::string::npos)
      << errorOf(text);
}

TEST(ReadXml, HostileTextsAreErrorsAndNoneCrashes) {
  const std::string text = kPair;
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(readXml(text.substr(0, length))) << length;
  }
  std::string deep;
  for (int i = 0; i < 1000000; ++i) deep += "<a>";
  EXPECT_FALSE(readXml(deep));
  EXPECT_FALSE(readXml("<algo>" + deep));
}

TEST(ReadAny, ChoosesByTheFirstCharacter) {
  EXPECT_TRUE(readAny(std::string("\xef\xbb\xbf\n ") + kPair));
  EXPECT_TRUE(readAny("  \n" + writeJson(*readXml(kPair))));
  for (const char* text : {"", "  \n", "ring", "[]"}) EXPECT_FALSE(readAny(text)) << text;
}

TEST(RealXml, LowersVerifiesAndResolves) {
  THESEUS_SKIP_WITHOUT_CASES();
  int read = 0;
  for (const auto& file : testing::caseFiles("msccl-xml", ".xml")) {
    SCOPED_TRACE(file.string());
    const auto plan = readXml(testing::readFile(file));
    ASSERT_TRUE(plan) << plan.error().message;
    const auto verdict = verify(*plan);
    EXPECT_TRUE(verdict.valid()) << findingsOf(*plan);
    EXPECT_TRUE(verdict.meaningChecked);
    EXPECT_EQ(*readJson(writeJson(*plan)), *plan);
    for (const std::uint64_t count : {0, 1, 7, 1000, 4096}) {
      auto size = messageSize(plan->collective(), plan->rankCount(), count, 4);
      if (size.inputBytes < plan->minMessageBytes || size.inputBytes > plan->maxMessageBytes) continue;
      for (Rank rank = 0; rank < plan->rankCount(); ++rank) {
        const auto resolved = resolve(*plan, rank, size);
        EXPECT_TRUE(resolved) << resolved.error().message;
      }
    }
    ++read;
  }
  std::printf("[          ] %d MSCCL XML files lowered and verified\n", read);
  EXPECT_GE(read, 9);
}

}  // namespace
}  // namespace theseus::schedule
