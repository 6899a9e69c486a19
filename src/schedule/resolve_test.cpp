#include "schedule/resolve.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "schedule/case_files_for_test.h"
#include "schedule/json.h"

namespace theseus::schedule {
namespace {

using Json = nlohmann::json;

// ---- against MSCCL++'s own resolver
// ----------------------------------------------------------------------------

/// [offset, bytes] of each operand of one op over all its pieces and iterations, in the form of the vectors.
struct Ranges {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> sources;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> destinations;

  static void grow(std::pair<std::uint64_t, std::uint64_t>& range, const Extent& extent, bool& contiguous) {
    if (range.second == 0) {
      range = {extent.offset, extent.bytes};
    } else {
      contiguous = contiguous && range.first + range.second == extent.offset;
      range.second += extent.bytes;
    }
  }
};

Ranges rangesOf(const Op& op, const std::vector<const ResolvedOp*>& iterations, bool& contiguous) {
  Ranges ranges;
  ranges.sources.resize(op.sources.size());
  ranges.destinations.resize(op.destinations.size());
  for (const auto* each : iterations) {
    for (const auto& piece : each->pieces) {
      const bool pair = piece.sources.size() == 1 && piece.destinations.size() == 1 &&
                        op.sources.size() == op.destinations.size();
      for (std::size_t i = 0; i < piece.sources.size(); ++i) {
        Ranges::grow(ranges.sources.at(pair ? piece.pair : i), piece.sources[i], contiguous);
      }
      for (std::size_t i = 0; i < piece.destinations.size(); ++i) {
        Ranges::grow(ranges.destinations.at(pair ? piece.pair : i), piece.destinations[i], contiguous);
      }
    }
  }
  return ranges;
}

/// Upstream lists empty ranges with their offset; we leave them out, so only a non-empty offset is compared.
void expectSame(const Json& expected, const std::vector<std::pair<std::uint64_t, std::uint64_t>>& found) {
  ASSERT_EQ(expected.size(), found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(expected[i][1].get<std::uint64_t>(), found[i].second) << "length of operand " << i;
    if (found[i].second == 0) continue;
    EXPECT_EQ(expected[i][0].get<std::uint64_t>(), found[i].first) << "offset of operand " << i;
  }
}

std::uint32_t compareOp(const Op& op, const Json& expected,
                        const std::vector<const ResolvedOp*>& iterations) {
  EXPECT_EQ(traits(op.code).name, expected["op"].get<std::string>());
  bool contiguous = true;
  const auto ranges = rangesOf(op, iterations, contiguous);
  EXPECT_TRUE(contiguous);
  expectSame(expected.value("src", Json::array()), ranges.sources);
  expectSame(expected.value("dst", Json::array()), ranges.destinations);
  return static_cast<std::uint32_t>(ranges.sources.size() + ranges.destinations.size());
}

std::uint32_t compareBlock(const ThreadBlock& block, const Json& expected,
                           const std::vector<ResolvedOp>& resolved) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<const ResolvedOp*>> byPlace;
  for (const auto& op : resolved) byPlace[{op.opIndex, op.innerIndex}].push_back(&op);
  std::uint32_t operands = 0;
  std::size_t line = 0;
  for (std::uint32_t i = 0; i < block.ops.size(); ++i) {
    const auto& op = block.ops[i];
    SCOPED_TRACE("op " + std::to_string(i));
    if (line >= expected.size()) {
      ADD_FAILURE() << "upstream has fewer ops";
      return operands;
    }
    if (op.code != OpCode::kPipeline) {
      operands += compareOp(op, expected[line++], byPlace[{i, 0}]);
      continue;
    }
    const auto& header = expected[line++];
    EXPECT_EQ(header["op"], "pipeline");
    EXPECT_EQ(header["unit"], op.pipelineUnitBytes);
    EXPECT_EQ(header["inner_ops"], op.inner.size());
    for (std::uint32_t inner = 0; inner < op.inner.size(); ++inner) {
      EXPECT_EQ(header["iterations"], (byPlace[{i, inner}].size()));
      operands += compareOp(op.inner[inner], expected[line++], byPlace[{i, inner}]);
    }
  }
  EXPECT_EQ(line, expected.size());
  return operands;
}

std::optional<Schedule> planOf(const std::string& name) {
  for (const char* folder : {"mscclpp-vectors", "mscclpp"}) {
    const auto path = testing::casesFolder() / folder / name;
    if (!std::filesystem::exists(path)) continue;
    auto plan = readJson(testing::readFile(path));
    if (plan) return *plan;
    ADD_FAILURE() << plan.error().message;
  }
  ADD_FAILURE() << "no plan " << name;
  return std::nullopt;
}

TEST(ResolveLikeUpstream, AllVectors) {
  THESEUS_SKIP_WITHOUT_CASES();
  std::ifstream lines(testing::casesFolder() / "mscclpp-vectors" / "resolved.jsonl");
  int read = 0, compared = 0, computedAnyway = 0, refused = 0;
  std::uint64_t operands = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto vector = Json::parse(line);
    const auto plan = planOf(vector["plan"]);
    ASSERT_TRUE(plan);
    const MessageSize size{vector["input_bytes"], vector["output_bytes"], 4};
    const Rank rank = vector["rank"];
    SCOPED_TRACE(line.substr(0, 160));
    ++read;
    const auto resolved = resolve(*plan, rank, size);
    if (vector.contains("error")) {
      if (resolved) {
        ++computedAnyway;
      } else {
        ++refused;
        EXPECT_NE(resolved.error().message.find("serves messages of"), std::string::npos)
            << resolved.error().message;
      }
      continue;
    }
    ASSERT_TRUE(resolved) << resolved.error().message;
    const auto scratch = upstreamScratch(*plan, rank, size);
    ASSERT_TRUE(scratch) << scratch.error().message;
    EXPECT_EQ(scratch->allocationBytes, vector["scratch_bytes"].get<std::uint64_t>());
    EXPECT_EQ(scratch->chunkBytes, vector["scratch_chunk_bytes"].get<std::uint64_t>());
    const auto& blocks = plan->ranks[static_cast<std::size_t>(rank)].threadBlocks;
    ASSERT_EQ(vector["threadblocks"].size(), blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      SCOPED_TRACE("block " + std::to_string(i));
      operands += compareBlock(blocks[i], vector["threadblocks"][i], resolved->threadBlocks[i]);
    }
    ++compared;
  }
  std::printf(
      "[          ] %d vectors read: %d compared (%llu operands), %d refused as upstream does, %d computed "
      "though "
      "upstream refuses\n",
      read, compared, static_cast<unsigned long long>(operands), refused, computedAnyway);
  EXPECT_GE(read, 126);
  EXPECT_GE(compared, 110);
  EXPECT_EQ(read, compared + refused + computedAnyway);
}

}  // namespace
}  // namespace theseus::schedule
