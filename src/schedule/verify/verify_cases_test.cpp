// The verdict on every real plan, made by other people's tools, pinned. docs/compatibility.md gives the
// reasons.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "schedule/case_files_for_test.h"
#include "schedule/json.h"
#include "schedule/verify/verify.h"
#include "schedule/xml.h"

namespace theseus::schedule {
namespace {

/// Expected first finding of the plans that are refused, "" for a valid one; what is not listed is valid.
const std::map<std::string, std::string> kRefused = {
    {"mscclpp-vectors/gen_allreduce_2x2_inst2.json",
     "race: rank 1 block 2 op 1: write-write-race with rank 0 block 3 op 0"},
    {"mscclpp-vectors/upstream_exec_reduce_tbg.json",
     "race: rank 0 block 0 op 7: read-write-race with rank 1 block 1 op 0"},
    {"mscclpp-fragments/unit_flush_fuse_test.json", "resources: rank 0: unpaired-channel with rank 1"},
    {"mscclpp-fragments/unit_flush_test.json", "resources: rank 0: unpaired-channel with rank 1"},
    {"mscclpp-fragments/unit_get_fuse_test.json", "resources: rank 0 block 0 op 5: overlapping-operands"},
    {"mscclpp-fragments/unit_put_fuse_test.json",
     "race: rank 0 block 0 op 5: read-write-race with rank 1 block 0 op 5"},
    {"mscclpp-fragments/unit_reduce_copy_packet_test.json", "deadlock: rank 0 block 0 op 0: never-signaled"},
    {"mscclpp-fragments/unit_reduce_copy_send_packet_test.json",
     "resources: rank 0: unpaired-channel with rank 1"},
    {"mscclpp-fragments/unit_relaxed_signal_wait_fuse_test.json",
     "resources: rank 1 block 0 op 1: signal-imbalance"},
    {"mscclpp-fragments/unit_signal_wait_fuse_test.json", "resources: rank 1 block 0 op 1: signal-imbalance"},
};

/// Valid, but only for messages whose chunks are equally long.
const std::set<std::string> kEvenOnly = {};

/// Valid, but a rank can end while a peer still touches its buffers.
const std::set<std::string> kOpenTail = {
    "mscclpp-vectors/upstream_exec_reduce_nvls.json",
    "mscclpp-vectors/upstream_exec_reduce_nvls_pipeline.json",
    "mscclpp-switch/allgather_nvls_zero_copy_n2.json",
    "mscclpp-switch/allreduce_nvls_zero_copy_n2.json",
    "mscclpp-fragments/unit_put_packet_test.json",
    "mscclpp-fragments/unit_switch_broadcast_test.json",
    "mscclpp-fragments/unit_switch_reduce_test.json",
    "mscclpp-fragments/unit_tbg_reduce_send_test.json",
};

void checkPlan(const std::string& key, const Schedule& schedule) {
  const Verdict verdict = verify(schedule);
  const auto refused = kRefused.find(key);
  if (refused == kRefused.end()) {
    for (const Finding& finding : verdict.findings) ADD_FAILURE() << key << ": " << toString(finding);
    EXPECT_EQ(verdict.tailSynchronized, kOpenTail.count(key) == 0) << key;
    EXPECT_EQ(verdict.unevenFinding.has_value(), kEvenOnly.count(key) != 0)
        << key << ": " << (verdict.unevenFinding ? toString(*verdict.unevenFinding) : "no finding");
    EXPECT_FALSE(verdict.pairwiseFinding) << key << ": " << toString(*verdict.pairwiseFinding);
  } else {
    ASSERT_FALSE(verdict.valid()) << key;
    EXPECT_TRUE(toString(verdict.findings[0]).starts_with(refused->second + ": "))
        << key << ": " << toString(verdict.findings[0]);
  }
  EXPECT_EQ(verdict.usesSwitch, schedule.usesSwitch()) << key;
  if (verdict.valid()) {
    EXPECT_EQ(verdict.meaningChecked, schedule.collective() != Collective::kCustom) << key;
  }
}

TEST(VerifyCasesTest, EveryRealPlanHasItsPinnedVerdict) {
  THESEUS_SKIP_WITHOUT_CASES();
  int plans = 0;
  for (const std::string folder : {"mscclpp", "mscclpp-vectors", "mscclpp-switch", "mscclpp-fragments"}) {
    for (const auto& file : testing::caseFiles(folder, ".json")) {
      const auto schedule = readJson(testing::readFile(file));
      ASSERT_TRUE(schedule) << file << ": " << schedule.error().message;
      checkPlan(folder + "/" + file.filename().string(), *schedule);
      ++plans;
    }
  }
  for (const auto& file : testing::caseFiles("msccl-xml", ".xml")) {
    const auto schedule = readXml(testing::readFile(file));
    ASSERT_TRUE(schedule) << file << ": " << schedule.error().message;
    checkPlan("msccl-xml/" + file.filename().string(), *schedule);
    ++plans;
  }
  EXPECT_EQ(plans, 86);
}

/// A whole step of the plan's data missing must never pass: takes each data op away from each complete real
/// plan in turn.
TEST(VerifyCasesTest, EveryDataOpOfARealPlanIsNeeded) {
  THESEUS_SKIP_WITHOUT_CASES();
  for (const std::string name :
       {"allreduce_pkt_n4", "def_ar_2x2", "mn_reducescatter_2x2", "alltoall_n4", "sn_allgather_tbg"}) {
    const auto schedule = readJson(testing::readFile(testing::casesFolder() / "mscclpp" / (name + ".json")));
    ASSERT_TRUE(schedule);
    auto& ranks = schedule->ranks;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (std::size_t block = 0; block < ranks[rank].threadBlocks.size(); ++block) {
        for (std::size_t i = 0; i < ranks[rank].threadBlocks[block].ops.size(); ++i) {
          if (traits(ranks[rank].threadBlocks[block].ops[i].code).opClass == OpClass::Sync) continue;
          Schedule broken = *schedule;
          auto& ops = broken.ranks[rank].threadBlocks[block].ops;
          ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(i));
          EXPECT_FALSE(verify(broken).valid())
              << name << " without rank " << rank << " block " << block << " op " << i;
        }
      }
    }
  }
}

TEST(VerifyCasesTest, SixteenRanksAreVerifiedInTime) {
  THESEUS_SKIP_WITHOUT_CASES();
  const auto schedule = readJson(
      testing::readFile(testing::casesFolder() / "mscclpp-vectors" / "default_allreduce_2nodes_1K_64K.json"));
  ASSERT_TRUE(schedule);
  auto best = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(verify(*schedule).valid());
    best = std::min(best, std::chrono::steady_clock::now() - start);
  }
  // Well under 100 ms in release on an idle machine; the bound leaves room for sanitizers and busy machines.
  EXPECT_LT(best, std::chrono::seconds(3));
}

}  // namespace
}  // namespace theseus::schedule
