// The scenario against workers that move no data (tests/flow/fake_worker.py): what the parent makes of what
// it is told.
#include "demo_scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "demo_report.h"

namespace theseus::demo {
namespace {

using ::testing::HasSubstr;

class SilentView final : public DemoView {
 public:
  void collective(const std::string&, const std::string&, const CollectiveOutcome&) override {}
  void event(const std::string& text) override { events.push_back(text); }
  void linkRate(int, double) override {}
  std::vector<std::string> events;
};

class DemoScenario : public ::testing::Test {
 protected:
  DemoScenario() {
    options_.ranks = 4;
    options_.bytes = 4096;
    options_.healthyCollectives = 6;
    options_.degradedCollectives = 5;
    options_.recoveredCollectives = 4;
    options_.patienceCollectives = 8;
    board_ = std::filesystem::temp_directory_path() / ("theseus_board_" + std::to_string(::getpid()));
    std::filesystem::remove(board_);
  }
  ~DemoScenario() override { std::filesystem::remove(board_); }

  std::vector<ProcessRequest> requests(const std::string& wishes) const {
    std::vector<ProcessRequest> requests;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      ProcessRequest request;
      request.title = "rank " + std::to_string(rank);
      request.arguments = {THESEUS_SOURCE_DIR "/tests/flow/fake_worker.py",
                           "demo",
                           "worker",
                           "--rank",
                           std::to_string(rank),
                           "--emulate-rate",
                           "125000000"};
      request.environment = {{"FAKE_WORKER", wishes}, {"FAKE_WORKER_BOARD", board_.string()}};
      requests.push_back(std::move(request));
    }
    return requests;
  }

  Result<ScenarioResult> run(const std::string& wishes) {
    auto team = DemoTeam::start(requests(wishes));
    if (!team) return fail(team.error());
    ScenarioStage stage;
    stage.team = &*team;
    stage.view = &view_;
    stage.whileRunning = false;
    stage.setRate = [&](int rank, double megabits) {
      return team->tell(rank, "rate " + std::to_string(megabits * 1e6 / 8));
    };
    return runFailSlow(options_, stage);
  }

  ScenarioOptions options_;
  SilentView view_;
  std::filesystem::path board_;
};

TEST_F(DemoScenario, FollowsBothSwaps) {
  auto result = run("swap");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->success()) << result->shortfall;
  ASSERT_EQ(result->swaps.size(), 2u);
  EXPECT_EQ(result->swaps[0].from, "ring");
  EXPECT_EQ(result->swaps[0].to, "star");
  EXPECT_EQ(result->swaps[0].reason, "rank 3 slower");
  // The fake's rule: two calls after the change still run by the old schedule (it counts from the last call
  // it knew).
  EXPECT_EQ(result->swaps[0].detectCollectives, 2);
  EXPECT_NEAR(result->swaps[0].stallSeconds, 0.00003, 1e-9);
  EXPECT_EQ(result->swaps[1].to, "ring");
  ASSERT_EQ(result->phases.size(), 5u);
  EXPECT_EQ(result->phases[0].outcomes.size(), 6u);
  EXPECT_EQ(result->phases[1].outcomes.size(), 2u);
  EXPECT_EQ(result->phases[2].outcomes.size(), 5u);
  EXPECT_EQ(result->phases[4].outcomes.size(), 4u);
  // A collective takes as long as its slowest rank.
  EXPECT_DOUBLE_EQ(medianSeconds(result->phases[0]), 0.004);
}

TEST_F(DemoScenario, NoSwapIsNoSuccess) {
  auto result = run("late");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_FALSE(result->success());
  EXPECT_THAT(result->shortfall, HasSubstr("no swap in 8 collectives after the drop"));
  EXPECT_EQ(result->phases[1].outcomes.size(), 8u);
  EXPECT_EQ(result->linkRates, " 100.0 ?");
  EXPECT_EQ(result->explanation, std::vector<std::string>{"* ring: in force (predicted 1.5 ms)"});
}

TEST_F(DemoScenario, AWrongElementIsNoSuccess) {
  auto result = run("swap,wrong");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->wrong, 1u);
  EXPECT_FALSE(result->success());
  EXPECT_THAT(result->shortfall, HasSubstr("1 elements were wrong"));
}

TEST_F(DemoScenario, RanksThatDisagreeAreAnError) {
  auto result = run("swap,disagree");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kMismatch);
  EXPECT_THAT(result.error().message, HasSubstr("rank 1 ran 'star'"));
}

TEST_F(DemoScenario, ADeadWorkerIsNamed) {
  ::signal(SIGPIPE, SIG_IGN);
  auto result = run("swap,die");
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("rank 2"));
  EXPECT_THAT(result.error().message, HasSubstr("exit code 3"));
}

TEST_F(DemoScenario, NonsenseFromAWorkerIsAnError) {
  auto result = run("swap,babble");
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("not a JSON object: hello"));
}

TEST_F(DemoScenario, AMissingProgramIsAnError) {
  auto all = requests("swap");
  all[1].arguments[0] = "/nonexistent/worker";
  auto team = DemoTeam::start(all);
  ASSERT_FALSE(team);
  EXPECT_THAT(team.error().message, HasSubstr("rank 1"));
}

TEST_F(DemoScenario, TheSlowRankMustExist) {
  options_.slowRank = 4;
  EXPECT_FALSE(runFailSlow(options_, ScenarioStage{}));
}

TEST_F(DemoScenario, ReportsWhatHappened) {
  auto result = run("swap");
  ASSERT_TRUE(result) << result.error().message;
  ReportContext context;
  context.options = options_;
  context.bytesPerSecond = 1e8;
  context.bytesPerSecondHow = "given";
  const std::string json = jsonText(context, *result);
  EXPECT_EQ(json.find(R"({"scenario":"failslow","ranks":4,"bytes":4096,"collectives":)"), 0u) << json;
  EXPECT_THAT(
      json,
      HasSubstr(
          R"("wrong":0,"phases":[{"name":"healthy","schedule":"ring","p50_ms":4.000,"busbw_gbps":0.0015)"));
  EXPECT_THAT(
      json,
      HasSubstr(R"("swaps":[{"from":"ring","to":"star","reason":"rank 3 slower","detect_collectives":2,)"
                R"("stall_us":30.0)"));
  EXPECT_THAT(json, HasSubstr(R"("success":true)"));
  EXPECT_THAT(tableText(context, *result), HasSubstr("degraded-after"));
}

TEST(DemoReport, TheBoundIsTheRingsWhenAllIsWellAndTheStragglersOwnTimeWhenItIsVerySlow) {
  ReportContext context;
  context.options.ranks = 8;
  context.options.bytes = 1000000;
  context.bytesPerSecond = 1e8;
  EXPECT_NEAR(boundSeconds(context, 1.0), 0.01 * 2 * 7 / 8, 1e-12);
  EXPECT_NEAR(boundSeconds(context, 2.0), 0.01 * 2, 1e-12);
  EXPECT_NEAR(boundSeconds(context, 1.5), 0.01 * 2 * 1.5 * 7 / (1.5 * 7 + 1), 1e-12);
  EXPECT_NEAR(boundSeconds(context, 10.0), 0.01 * 10, 1e-12);
}

}  // namespace
}  // namespace theseus::demo
