#include "schedule/json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "schedule/case_files_for_test.h"

namespace theseus::schedule {
namespace {

using Json = nlohmann::json;

const char* const kSmallPlan = R"({
  "name": "pair", "collective": "allreduce", "protocol": "Simple", "inplace": true, "reuse_resources": false,
  "gpus": [
    {"id": 0, "input_chunks": 2, "output_chunks": 2, "scratch_chunks": 1,
     "threadblocks": [{"id": 0, "ops": [
        {"name": "put", "channel_type": "memory", "src_buff": [{"type": "i", "index": 1, "size": 1}],
         "dst_buff": [{"buffer_id": 0, "index": 0, "size": 1}], "tbg_info": {"tb_id": 0, "tbg_size": 2}},
        {"name": "signal", "channel_type": "memory", "channel_ids": [0]},
        {"name": "pipeline", "iter_context": {"unit_size": 4096, "num_chunks": 1}, "ops": [{"name": "nop"}]},
        {"name": "re",
         "src_buff": [{"type": "i", "index": 0, "size": 1}, {"type": "s", "index": 0, "size": 1}],
         "dst_buff": [{"type": "i", "index": 0, "size": 1}], "reduce_op": "sum"}],
      "channels": [{"channel_type": "memory", "channel_ids": [0]}],
      "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}]}],
     "channels": [{"channel_type": "memory", "connected_to": [1]}],
     "remote_buffers": [{"rank": 1, "type": "s", "access_channel_types": ["port", "memory"]}],
     "semaphores": [{"init_value": 1}]},
    {"id": 1, "input_chunks": 2, "output_chunks": 2, "scratch_chunks": 1, "threadblocks": [], "channels": [],
     "remote_buffers": [], "semaphores": []}
  ]})";

/// kSmallPlan with the value at a JSON pointer replaced.
std::string changed(const std::string& pointer, const Json& value) {
  Json plan = Json::parse(kSmallPlan);
  plan[Json::json_pointer(pointer)] = value;
  return plan.dump();
}

std::string errorOf(const std::string& text) {
  const auto plan = readJson(text);
  return plan ? "no error" : plan.error().message;
}

TEST(ReadJson, FieldsArriveWhereTheyBelong) {
  const auto plan = readJson(kSmallPlan);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->name, "pair");
  EXPECT_EQ(plan->collective(), Collective::kAllReduce);
  EXPECT_EQ(plan->bufferMode, BufferMode::kInPlace);
  EXPECT_EQ(plan->bufferAlignment, 16u);
  EXPECT_EQ(plan->minMessageBytes, 0u);
  EXPECT_EQ(plan->maxMessageBytes, std::numeric_limits<std::uint64_t>::max());
  ASSERT_EQ(plan->rankCount(), 2);
  const auto& rank = plan->ranks[0];
  EXPECT_EQ(rank.semaphores, std::vector<std::int64_t>{1});
  EXPECT_EQ(rank.channelPeers(ChannelType::kMemory), std::vector<Rank>{1});
  EXPECT_EQ(rank.remoteBuffers[0].accessTypes, (std::vector{ChannelType::kMemory, ChannelType::kPort}));
  const auto& ops = rank.threadBlocks[0].ops;
  ASSERT_EQ(ops.size(), 4u);
  EXPECT_EQ(ops[0].destinations[0].place, Operand::Place::kRemote);
  EXPECT_EQ(ops[0].group, (ThreadBlockGroup{0, 2}));
  EXPECT_EQ(ops[1].channelIds, std::vector<std::uint32_t>{0});
  EXPECT_EQ(ops[2].pipelineUnitBytes, 4096u);
  EXPECT_EQ(ops[2].inner[0].code, OpCode::kNop);
  EXPECT_EQ(ops[3].sources[1].buffer, BufferKind::kScratch);
  EXPECT_EQ(ops[3].reduceOp, ReduceOp::kSum);
}

TEST(ReadJson, ErrorsNameThePlace) {
  const std::string op = "/gpus/0/threadblocks/0/ops/0";
  const struct {
    std::string text;
    std::string expected;
  } cases[] = {
      {changed(op + "/src_buff/0/index", "x"),
       "gpus[0].threadblocks[0].ops[0].src_buff[0].index: must be a whole"},
      {changed(op + "/src_buff/0/index", -1), "from 0 to 4294967295, is -1"},
      {changed(op + "/src_buff/0/index", 4294967296u), "from 0 to 4294967295, is 4294967296"},
      {changed(op + "/src_buff/0/index", 1.5), "ops[0].src_buff[0].index: must be a whole number"},
      {changed(op + "/src_buff/0/type", "q"), "src_buff[0].type: \"q\" is not known"},
      {changed(op + "/src_buff/0/buffer_id", 0), "src_buff[0]: needs exactly one of"},
      {changed(op + "/src_buff/0/rank", 1), "src_buff[0].rank: must be 0"},
      {changed(op + "/src_buff", Json::object()), "ops[0].src_buff: must be an array, is object"},
      {changed(op + "/src_buff/0", 7), "src_buff[0]: must be an object, is 7"},
      {changed(op + "/name", "putt"), "ops[0].name: \"putt\" is not known"},
      {changed(op + "/name", nullptr), "ops[0].name: must be a string, is null"},
      {changed(op + "/chanel_ids", Json::array()), "ops[0]: unknown key \"chanel_ids\""},
      {changed(op + "/size", 1), "belong to a glre"},
      {changed(op + "/tbg_info", Json::object()), "ops[0].tbg_info: key \"tb_id\" is missing"},
      {changed("/gpus/0/threadblocks/0/ops/2/iter_context/unit_size", -4096),
       "iter_context.unit_size: must be"},
      {changed("/gpus/1/id", 2), "gpus[1].id: must be 1"},
      {changed("/gpus/0/threadblocks/0/id", 1), "threadblocks[0].id: must be 0"},
      {changed("/gpus/0/semaphores/0/init_value", 9223372036854775808u), "semaphores[0].init_value: must be"},
      {changed("/gpus/0/remote_buffers/0/access_channel_types/1", "m"), "access_channel_types[1]: must be"},
      {changed("/gpus", "all"), "gpus: must be an array, is \"all\""},
      {changed("/inplace", 1), "inplace: must be true or false, is 1"},
      {changed("/min_message_size", -1), "min_message_size: must be a whole number"},
      {changed("/provenance", Json{{"maker", 1}}), "provenance.maker: must be a string"},
      {changed("/root", -1), "root: must be a whole number"},
      {"[]", "top level: must be an object, is array"},
      {"", "parse error"},
      {"{\"name\": \"a\", \"name\": \"b\"}", "key \"name\" twice"},
      {"{}", "top level: key \"name\" is missing"},
      {"{} {}", "parse error"},
      {"{\"name\": \"\xff\"}", "parse error"},
  };
  for (const auto& each : cases)
    EXPECT_NE(errorOf(each.text).find(each.expected), std::string::npos)
        << "expected " << each.expected << "\n got " << errorOf(each.text);
}

TEST(ReadJson, InPlaceAndOutOfPlaceMustNotContradict) {
  EXPECT_EQ(readJson(changed("/out_of_place", true))->bufferMode, BufferMode::kEither);
  EXPECT_EQ(readJson(changed("/out_of_place", false))->bufferMode, BufferMode::kInPlace);
  Json plan = Json::parse(kSmallPlan);
  plan["inplace"] = false;
  EXPECT_EQ(readJson(plan.dump())->bufferMode, BufferMode::kOutOfPlace);
  plan["out_of_place"] = false;
  EXPECT_NE(errorOf(plan.dump()).find("out_of_place"), std::string::npos);
}

TEST(ReadJson, UnknownKeysAreToleratedAtTheTopOnly) {
  EXPECT_TRUE(readJson(changed("/vendor_note", Json{{"a", {1, 2}}})));
  EXPECT_EQ(errorOf(changed("/gpus/0/note", 1)).find("no error"), std::string::npos);
}

TEST(ReadJson, DeepNestingIsAnErrorInMilliseconds) {
  const auto begin = std::chrono::steady_clock::now();
  const std::size_t depth = 1000000;
  for (const std::string& text :
       {std::string(depth, '['), std::string(depth, '[') + std::string(depth, ']'), [&] {
          std::string objects;
          for (std::size_t i = 0; i < depth; ++i) objects += "{\"a\":";
          return objects;
        }()}) {
    EXPECT_NE(errorOf(text).find("nested deeper than 32"), std::string::npos) << errorOf(text);
  }
  // Pipelines within pipelines, so that our own recursion is what a deeper text would reach.
  std::string ops = R"({"name":"nop"})";
  for (int i = 0; i < 1000; ++i) {
    ops = R"({"name":"pipeline","iter_context":{"unit_size":1,"num_chunks":1},"ops":[)" + ops + "]}";
  }
  auto plan = Json::parse(kSmallPlan);
  plan["gpus"][0]["threadblocks"][0]["ops"] = "HERE";
  auto text = plan.dump();
  text.replace(text.find("\"HERE\""), 6, "[" + ops + "]");
  EXPECT_NE(errorOf(text).find("nested deeper than 32"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(ReadJson, EveryTruncationIsAnErrorAndNoneCrashes) {
  const std::string text = readJson(kSmallPlan) ? writeJson(*readJson(kSmallPlan)) : "";
  ASSERT_FALSE(text.empty());
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(readJson(std::string_view(text).substr(0, length))) << length;
  }
}

TEST(ReadJson, HugeArraysAndTextsAreRefused) {
  std::string zeros = "[0";
  for (int i = 0; i < (1 << 20); ++i) zeros += ",0";
  auto text = changed("/gpus/0/threadblocks/0/ops/1/channel_ids", "HERE");
  text.replace(text.find("\"HERE\""), 6, zeros + "]");
  EXPECT_NE(errorOf(text).find("channel_ids: more than 1048576 elements"), std::string::npos)
      << errorOf(text);
  EXPECT_NE(errorOf(std::string((64u << 20) + 1, ' ')).find("are the most"), std::string::npos);
}

TEST(ReadJson, GroupLoadReduceInItsOwnForm) {
  auto plan = Json::parse(kSmallPlan);
  plan["gpus"][0]["threadblocks"][0]["ops"] = Json::parse(R"([{"name": "glre", "buffer_type": "i",
      "buffer_offset": 1, "size": 2, "dst_chunk": {"rank": 0, "type": "s", "index": 3, "size": 2},
      "channel_ids": [4], "channel_type": "switch", "reduce_op": "sum"}])");
  const auto read = readJson(plan.dump());
  ASSERT_TRUE(read) << read.error().message;
  const auto& op = read->ranks[0].threadBlocks[0].ops[0];
  ASSERT_EQ(op.sources.size(), 1u);
  EXPECT_EQ(op.sources[0], (Operand{Operand::Place::kSwitch, BufferKind::kInput, 4, 1, 2}));
  ASSERT_EQ(op.destinations.size(), 1u);
  EXPECT_EQ(op.destinations[0], (Operand{Operand::Place::kLocal, BufferKind::kScratch, 0, 3, 2}));
  EXPECT_EQ(*readJson(writeJson(*read)), *read);
}

TEST(WriteJson, OwnKeysAreWrittenOnlyWhenSet) {
  auto plan = *readJson(kSmallPlan);
  const auto bare = Json::parse(writeJson(plan));
  for (const char* key : {"out_of_place", "root", "usable", "score", "provenance"})
    EXPECT_FALSE(bare.contains(key));
  plan.bufferMode = BufferMode::kEither;
  plan.root = 1;
  plan.usable = "bytes > 4096";
  plan.score = "1 / bytes";
  plan.provenance = {{"generator", "ring \"q\" \xc3\xa9\n"}};
  plan.minMessageBytes = 5;
  plan.ranks[0].semaphores = {-3};
  for (const bool pretty : {false, true}) {
    const auto again = readJson(writeJson(plan, pretty));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, plan);
  }
}

TEST(WriteJson, TextThatIsNoUtf8DoesNotThrow) {
  auto plan = *readJson(kSmallPlan);
  plan.name = "a\xff";
  EXPECT_TRUE(readJson(writeJson(plan)));
}

TEST(ContentHash, IgnoresOrderOfKeysAndSetsButNothingElse) {
  const auto plan = *readJson(kSmallPlan);
  // nlohmann::json sorts keys, so this dump has another key order than the canonical form and than
  // kSmallPlan.
  auto reordered = Json::parse(kSmallPlan);
  std::reverse(reordered["gpus"][0]["remote_buffers"][0]["access_channel_types"].begin(),
               reordered["gpus"][0]["remote_buffers"][0]["access_channel_types"].end());
  EXPECT_EQ(contentHash(*readJson(reordered.dump())), contentHash(plan));
  auto unsorted = plan;
  std::reverse(unsorted.ranks[0].remoteBuffers[0].accessTypes.begin(),
               unsorted.ranks[0].remoteBuffers[0].accessTypes.end());
  EXPECT_EQ(contentHash(unsorted), contentHash(plan));
  for (const auto& [pointer, value] :
       std::vector<std::pair<std::string, Json>>{{"/name", "other"},
                                                 {"/inplace", false},
                                                 {"/gpus/0/scratch_chunks", 2},
                                                 {"/root", 1},
                                                 {"/usable", "false"},
                                                 {"/gpus/0/threadblocks/0/ops/0/src_buff/0/index", 0},
                                                 {"/gpus/0/semaphores/0/init_value", 2}}) {
    EXPECT_NE(contentHash(*readJson(changed(pointer, value))), contentHash(plan)) << pointer;
  }
}

// ---- real plans
// ------------------------------------------------------------------------------------------------

void setDefault(Json& object, const char* key, const Json& value) {
  if (!object.contains(key)) object[key] = value;
}

void normalizeOp(Json& op) {
  if (op.contains("dst_chunk")) {  // glre's own form
    op["src_buff"] = {
        {{"switch_channel_id", op["channel_ids"][0]}, {"index", op["buffer_offset"]}, {"size", op["size"]}}};
    op["dst_buff"] = Json::array({op["dst_chunk"]});
    for (const char* key : {"buffer_type", "buffer_offset", "size", "dst_chunk"}) op.erase(key);
  }
  for (const char* key : {"src_buff", "dst_buff"}) {
    if (!op.contains(key)) continue;
    for (auto& operand : op[key]) operand.erase("rank");  // the own rank, said again
  }
  if (op.contains("ops")) {
    for (auto& inner : op["ops"]) normalizeOp(inner);
  }
}

/// What reading and writing may change, as docs/schedule-format.md lists it, and nothing more.
Json normalized(Json plan) {
  setDefault(plan, "buffer_alignment", 16);
  setDefault(plan, "min_message_size", 0);
  setDefault(plan, "max_message_size", std::numeric_limits<std::uint64_t>::max());
  for (auto& gpu : plan["gpus"]) {
    for (auto& buffer : gpu["remote_buffers"]) {
      auto& types = buffer["access_channel_types"];
      std::sort(types.begin(), types.end());
    }
    for (auto& channel : gpu["channels"]) {
      if (channel["channel_type"] != "switch" || !channel.contains("buff")) continue;
      channel["buffer_type"] = channel["buff"];
      channel.erase("buff");
    }
    for (auto& block : gpu["threadblocks"]) {
      setDefault(block, "remote_buffer_refs", Json::array());
      for (auto& channel : block["channels"]) channel.erase("buff");
      for (auto& op : block["ops"]) normalizeOp(op);
    }
  }
  return plan;
}

TEST(RealPlans, RoundTripWithoutLoss) {
  THESEUS_SKIP_WITHOUT_CASES();
  int read = 0;
  for (const char* folder : {"mscclpp", "mscclpp-fragments", "mscclpp-switch", "mscclpp-vectors"}) {
    for (const auto& file : testing::caseFiles(folder, ".json")) {
      SCOPED_TRACE(file.string());
      const auto text = testing::readFile(file);
      const auto plan = readJson(text);
      ASSERT_TRUE(plan) << plan.error().message;
      const auto written = writeJson(*plan);
      const auto again = readJson(written);
      ASSERT_TRUE(again) << again.error().message;
      EXPECT_EQ(*again, *plan);
      EXPECT_EQ(writeJson(*again), written);
      EXPECT_EQ(*readJson(writeJson(*plan, true)), *plan);
      const auto difference = Json::diff(normalized(Json::parse(text)), Json::parse(written));
      EXPECT_TRUE(difference.empty()) << difference.dump(1).substr(0, 2000);
      ++read;
    }
  }
  std::printf("[          ] %d real plans read and written\n", read);
  EXPECT_GE(read, 77);
}

}  // namespace
}  // namespace theseus::schedule
