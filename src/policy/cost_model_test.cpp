#include "policy/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "schedule/builder.h"
#include "synth/generators.h"

namespace theseus::policy {
namespace {

constexpr double kRate = 100e6;
constexpr double kLatency = 20e-6;
constexpr std::uint64_t kLarge = 64ull << 20;

CostConditions healthy(int ranks) {
  return {kLatency, 1e18, std::vector<double>(static_cast<std::size_t>(ranks), kRate)};
}

CostConditions withStraggler(int ranks, Rank straggler, double ratio) {
  CostConditions conditions = healthy(ranks);
  conditions.bytesPerSecond[static_cast<std::size_t>(straggler)] /= ratio;
  return conditions;
}

CostModel modelOf(const synth::GeneratorCall& call) {
  auto schedule = synth::generate(call);
  if (!schedule) ADD_FAILURE() << schedule.error().message;
  auto model = CostModel::make(*schedule);
  if (!model) ADD_FAILURE() << model.error().message;
  return *model;
}

/// The plain ring: one channel, one piece a step.
CostModel ring(int ranks) {
  return modelOf({"ring", Collective::kAllReduce, ranks, {{"channels", 1}, {"segments", 1}}});
}

double inMessageTimes(double seconds) { return seconds / (static_cast<double>(kLarge) / kRate); }

TEST(CostModel, CountsWhatARingAsksOfThePorts) {
  for (const int ranks : {2, 3, 4, 8}) {
    const CostModel model = ring(ranks);
    const CostSummary& summary = model.summary();
    for (int rank = 0; rank < ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      EXPECT_NEAR(summary.egress[at], 2.0 * (ranks - 1) / ranks, 1e-9);
      EXPECT_NEAR(summary.ingress[at], 2.0 * (ranks - 1) / ranks, 1e-9);
      EXPECT_EQ(summary.messagesOut[at], static_cast<std::uint64_t>(2 * (ranks - 1)));
    }
    EXPECT_EQ(summary.depth, 2 * (ranks - 1));
  }
}

TEST(CostModel, RingTakesItsClosedForm) {
  for (const int ranks : {2, 3, 4, 8}) {
    const CostModel model = ring(ranks);
    const double steps = 2.0 * (ranks - 1);
    const double expected = steps * (static_cast<double>(kLarge) / ranks / kRate + kLatency);
    EXPECT_NEAR(model.predict(kLarge, healthy(ranks)) / expected, 1, 0.005) << ranks << " ranks";
    EXPECT_NEAR(model.predict(1, healthy(ranks)) / (steps * kLatency), 1, 0.01)
        << "small messages are all latency";
  }
}

TEST(CostModel, RingWaitsForItsSlowestLink) {
  for (const double ratio : {8.0 / 7, 2.0, 4.0}) {
    const double time = ring(8).predict(kLarge, withStraggler(8, 3, ratio));
    EXPECT_NEAR(inMessageTimes(time) / (ratio * 2 * 7 / 8), 1, 0.01) << "ratio " << ratio;
  }
}

TEST(CostModel, StragglerAwareNeedsLittleMoreThanTheSlowLink) {
  for (const int ranks : {4, 8}) {
    constexpr double kSegments = 32;
    const CostModel model = modelOf({"straggler_aware",
                                     Collective::kAllReduce,
                                     ranks,
                                     {{"rank", 1}, {"ratio", 2}, {"segments", kSegments}}});
    EXPECT_NEAR(model.summary().egress[1], 1, 0.01) << "the slow rank gives its vector once";
    EXPECT_NEAR(model.summary().ingress[1], 1, 0.01);
    EXPECT_NEAR(model.summary().egress[0], (2.0 * ranks - 3) / (ranks - 1), 0.01);
    const double p = ranks;
    const double bound = std::max(2.0, (2 * p - 3) / (p - 1));
    const double time = inMessageTimes(model.predict(kLarge, withStraggler(ranks, 1, 2)));
    EXPECT_GE(time, bound);
    EXPECT_LE(time, bound * (1 + 8 / kSegments)) << ranks << " ranks";
    EXPECT_LT(time, 0.8 * inMessageTimes(ring(ranks).predict(kLarge, withStraggler(ranks, 1, 2))));
  }
}

TEST(CostModel, NeverBeatsTheBusiestPortNorTheLongestChain) {
  for (const synth::GeneratorInfo& info : synth::generators()) {
    for (const Collective collective : info.collectives) {
      const int ranks = std::max(4, info.minRanks);
      auto schedule = synth::generate({info.name, collective, ranks, {}});
      if (!schedule) continue;
      const auto model = CostModel::make(*schedule);
      ASSERT_TRUE(model.has_value()) << info.name << ": " << model.error().message;
      const CostSummary& summary = model->summary();
      const double load = std::max(*std::max_element(summary.egress.begin(), summary.egress.end()),
                                   *std::max_element(summary.ingress.begin(), summary.ingress.end()));
      const double time = model->predict(kLarge, healthy(ranks));
      EXPECT_GE(inMessageTimes(time), load * (1 - 1e-9)) << info.name << " " << name(collective);
      EXPECT_GE(model->predict(1, healthy(ranks)), summary.depth * kLatency * (1 - 1e-9)) << info.name;
      EXPECT_TRUE(std::isfinite(time)) << info.name;
      const double sent = std::accumulate(summary.egress.begin(), summary.egress.end(), 0.0);
      const double received = std::accumulate(summary.ingress.begin(), summary.ingress.end(), 0.0);
      EXPECT_NEAR(sent, received, 1e-9 * (1 + sent));
    }
  }
}

TEST(CostModel, GrowsWithTheMessage) {
  const CostModel model = ring(4);
  double before = 0;
  for (std::uint64_t bytes = 1; bytes < (1ull << 40); bytes *= 4) {
    const double time = model.predict(bytes, healthy(4));
    EXPECT_GT(time, before);
    before = time;
  }
  EXPECT_NEAR(model.predict(1ull << 40, healthy(4)) / model.predict(1ull << 39, healthy(4)), 2, 1e-4);
}

TEST(CostModel, APortSendsOneMessageAfterTheOther) {
  // Rank 0 sends a quarter of the message to each of three ranks; rank 3 has both a quick and a slow sender.
  schedule::Builder builder("fan", Collective::kCustom, 4);
  builder.chunks(4, 4, 4);
  schedule::BlockBuilder root = builder.block(0);
  std::vector<schedule::BlockBuilder> others;
  for (Rank peer = 1; peer < 4; ++peer) others.push_back(builder.block(peer));
  for (Rank peer = 1; peer < 4; ++peer) {
    builder.connect(root, others[static_cast<std::size_t>(peer - 1)]);
    root.put(peer, {schedule::BufferKind::kInput, static_cast<std::uint32_t>(peer)},
             {schedule::BufferKind::kScratch, 0});
    root.signal(peer);
    others[static_cast<std::size_t>(peer - 1)].wait(0);
  }
  const auto model = CostModel::make(std::move(builder).build());
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_NEAR(model->summary().egress[0], 0.75, 1e-9);
  EXPECT_EQ(model->summary().depth, 1);
  EXPECT_NEAR(inMessageTimes(model->predict(kLarge, healthy(4))), 0.75, 0.001);
  EXPECT_NEAR(inMessageTimes(model->predict(kLarge, withStraggler(4, 2, 8))), 0.25 + 8 * 0.25, 0.001)
      << "the slow receiver does not hold up the third message";
}

}  // namespace
}  // namespace theseus::policy
