#include "sim/simulation.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "sim/sweep.h"

namespace theseus::sim {
namespace {

SimulationResult run(std::uint64_t seed, std::optional<int> ranks = std::nullopt) {
  SimulationOptions options;
  options.seed = seed;
  options.ranks = ranks;
  return simulate(options);
}

TEST(Simulation, HundredsOfSeedsKeepEveryInvariant) {
  SweepOptions options;
  options.seeds = 500;
  options.threads = 2;
  const SweepTotals totals = sweep(options, [](const SimulationResult& result) {
    EXPECT_FALSE(result.violation) << "seed " << result.seed << ": " << *result.violation;
  });
  EXPECT_EQ(totals.seeds, 500u);
  EXPECT_EQ(totals.violations, 0u);
  // A simulator in which nothing happens finds nothing.
  EXPECT_GT(totals.rounds, 5000u);
  EXPECT_GT(totals.entries, 5000u);
  EXPECT_GT(totals.stalls, 1000u);
  EXPECT_GT(totals.refusedProposals, 100u);
  EXPECT_GT(totals.ranks.value, 100u);
}

TEST(Simulation, TheLimitRuleIsNeeded) {
  SweepOptions options;
  options.seeds = 20;
  options.skipLimitRule = true;
  int differentTables = 0;
  const SweepTotals totals = sweep(options, [&](const SimulationResult& result) {
    if (!result.violation) return;
    EXPECT_EQ(result.violation->rfind("(a)", 0), 0u) << *result.violation;
    ++differentTables;
  });
  EXPECT_GE(totals.violations, 3u);
  EXPECT_EQ(static_cast<std::uint64_t>(differentTables), totals.violations);
}

TEST(Simulation, ASeedReplays) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const SimulationResult first = run(seed), second = run(seed);
    EXPECT_EQ(first.traceHash, second.traceHash) << "seed " << seed;
    EXPECT_EQ(first.events, second.events);
    EXPECT_NE(first.traceHash, run(seed + 1).traceHash);
  }
}

TEST(Simulation, TracingChangesNothing) {
  SimulationOptions options;
  options.seed = 12;
  std::uint64_t lines = 0;
  options.trace = [&](std::string_view line) {
    ++lines;
    EXPECT_EQ(line.find('\n'), std::string_view::npos);
  };
  const SimulationResult traced = simulate(options);
  EXPECT_EQ(traced.traceHash, run(12).traceHash);
  EXPECT_GT(lines, traced.messages);
}

TEST(Simulation, OneRankAndManyRanks) {
  for (const int ranks : {1, 2, 100, 256}) {
    const SimulationResult result = run(5, ranks);
    EXPECT_FALSE(result.violation) << ranks << " ranks: " << *result.violation;
    EXPECT_EQ(result.ranks, ranks);
    EXPECT_GT(result.rounds, 0u);
  }
}

TEST(Sweep, ResultsComeInOrderAndDoNotDependOnThreads) {
  SweepOptions options;
  options.firstSeed = 40;
  options.seeds = 40;
  std::vector<std::uint64_t> seeds;
  const auto note = [&](const SimulationResult& result) { seeds.push_back(result.seed); };
  options.threads = 3;
  const SweepTotals several = sweep(options, note);
  ASSERT_EQ(seeds.size(), 40u);
  for (std::size_t i = 0; i < seeds.size(); ++i) EXPECT_EQ(seeds[i], 40 + i);
  options.threads = 1;
  const SweepTotals one = sweep(options, note);
  EXPECT_EQ(several.traceHash, one.traceHash);
  EXPECT_EQ(several.events, one.events);
}

TEST(Regressions, KeptSeedsPass) {
  std::ifstream file(std::string(THESEUS_SOURCE_DIR) + "/tests/sim/regressions/seeds.txt");
  ASSERT_TRUE(file) << "tests/sim/regressions/seeds.txt is missing";
  int seeds = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line.substr(0, line.find('#')));
    std::uint64_t seed = 0;
    if (!(fields >> seed)) continue;
    int ranks = 0;
    const bool hasRanks = static_cast<bool>(fields >> ranks);
    const SimulationResult result = run(seed, hasRanks ? std::optional<int>(ranks) : std::nullopt);
    EXPECT_FALSE(result.violation) << line << ": " << *result.violation;
    ++seeds;
  }
  EXPECT_GT(seeds, 0);
}

}  // namespace
}  // namespace theseus::sim
