// Broken and valid plans kept as files: every broken plan must give exactly the findings that it names under
// "expect".
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "schedule/case_files_for_test.h"
#include "schedule/json.h"
#include "schedule/verify/passes.h"
#include "schedule/verify/verify.h"
#include "schedule/xml.h"

namespace theseus::schedule {
namespace {

std::vector<std::filesystem::path> planFiles(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  const auto path = std::filesystem::path(THESEUS_SOURCE_DIR) / "tests" / "schedules" / folder;
  for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// The strings of the list under "expect". Scans the text, because some of the files are no valid JSON.
std::vector<std::string> expectations(const std::string& text) {
  std::vector<std::string> result;
  std::size_t at = text.find("\"expect\"");
  if (at == std::string::npos) return result;
  at = text.find('[', at);
  while (at != std::string::npos && text[at] != ']') {
    at = text.find_first_of("\"]", at + 1);
    if (at == std::string::npos || text[at] == ']') break;
    const std::size_t end = text.find('"', at + 1);
    result.push_back(text.substr(at + 1, end - at - 1));
    at = end;
  }
  std::sort(result.begin(), result.end());
  return result;
}

VerifyOptions optionsOf(const std::string& text) {
  VerifyOptions options;
  const std::string key = "\"jobRanks\": ";
  const std::size_t at = text.find(key);
  if (at != std::string::npos) options.jobRanks = std::stoi(text.substr(at + key.size()));
  return options;
}

/// "pass: place: kind with second", without the message.
std::string headOf(const Finding& finding) {
  Finding bare = finding;
  bare.message.clear();
  const std::string text = toString(bare);
  return text.substr(0, text.rfind(": "));
}

TEST(VerifyFilesTest, BrokenPlansGiveExactlyTheExpectedFindings) {
  const auto files = planFiles("invalid");
  ASSERT_GE(files.size(), 100u);
  for (const auto& file : files) {
    const std::string text = testing::readFile(file);
    const auto expected = expectations(text);
    ASSERT_FALSE(expected.empty()) << file << " names no expected finding";
    const auto schedule = readAny(text);
    if (!schedule) {
      ASSERT_EQ(expected.size(), 1u) << file << ": " << schedule.error().message;
      ASSERT_TRUE(expected[0].starts_with("reader: ")) << file << ": " << schedule.error().message;
      EXPECT_NE(schedule.error().message.find(expected[0].substr(8)), std::string::npos)
          << file << ": " << schedule.error().message;
      EXPECT_EQ(schedule.error().code, ErrorCode::kInvalidSchedule) << file;
      continue;
    }
    std::vector<std::string> found;
    for (const Finding& finding : verify(*schedule, optionsOf(text)).findings) {
      EXPECT_FALSE(finding.message.empty()) << file;
      found.push_back(headOf(finding));
    }
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found, expected) << file;
  }
}

TEST(VerifyFilesTest, EveryPassHasBrokenPlans) {
  std::vector<std::string> passes = {"reader", "structure", "resources", "deadlock", "race", "meaning"};
  for (const auto& file : planFiles("invalid")) {
    const auto expected = expectations(testing::readFile(file));
    std::erase_if(passes, [&](const std::string& pass) { return expected[0].starts_with(pass + ":"); });
  }
  EXPECT_TRUE(passes.empty()) << passes.front();
}

TEST(VerifyFilesTest, ValidPlansHaveNoFindings) {
  const auto files = planFiles("valid");
  ASSERT_GE(files.size(), 12u);
  for (const auto& file : files) {
    const auto schedule = readJson(testing::readFile(file));
    ASSERT_TRUE(schedule) << file << ": " << schedule.error().message;
    const Verdict verdict = verify(*schedule);
    for (const Finding& finding : verdict.findings) ADD_FAILURE() << file << ": " << toString(finding);
    EXPECT_TRUE(verdict.meaningChecked) << file;
    EXPECT_FALSE(verdict.unevenFinding) << file << ": " << toString(*verdict.unevenFinding);
  }
}

bool mayBeLeftOut(const std::string& file, const OpPlace& place, const Op& op) {
  // `nop` orders the threads within a block, which the verifier does not model.
  if (op.code == OpCode::kNop || op.code == OpCode::kPipeline) return true;
  // This plan overwrites the source of a put to show that the flush before is needed; the copy itself is not.
  return file.find("allgather_port_flush") != std::string::npos && place.op == 4;
}

/// Removing any one op from a valid plan must be noticed: none of these plans has an op too many.
TEST(VerifyFilesTest, EveryOpOfAValidPlanIsNeeded) {
  int removed = 0;
  for (const auto& file : planFiles("valid")) {
    const auto schedule = readJson(testing::readFile(file));
    ASSERT_TRUE(schedule);
    verifying::forEachOp(*schedule, [&](const OpPlace& place, const Op& op) {
      if (place.inner >= 0 || mayBeLeftOut(file.string(), place, op)) return;
      Schedule broken = *schedule;
      auto& ops = broken.ranks[static_cast<std::size_t>(place.rank)]
                      .threadBlocks[static_cast<std::size_t>(place.threadBlock)]
                      .ops;
      ops.erase(ops.begin() + place.op);
      EXPECT_FALSE(verify(broken).valid()) << file << " without " << toString(place);
      ++removed;
    });
  }
  EXPECT_GT(removed, 100);
}

}  // namespace
}  // namespace theseus::schedule
