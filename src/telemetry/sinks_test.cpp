#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "telemetry/counters.h"
#include "telemetry/prometheus.h"
#include "telemetry/trace_json.h"

namespace theseus::telemetry {
namespace {

TEST(Counters, AreOneForEachNameAndLabels) {
  CounterRegistry registry;
  Counter& sent = registry.counter("sent_total", "messages", {{"peer", "1"}});
  EXPECT_EQ(&registry.counter("sent_total", "messages", {{"peer", "1"}}), &sent);
  EXPECT_NE(&registry.counter("sent_total", "messages", {{"peer", "2"}}), &sent);
  sent.add();
  sent.add(4);
  EXPECT_EQ(sent.value(), 5u);
  Gauge& rate = registry.gauge("rate", "bytes/s");
  rate.set(2.5);
  EXPECT_EQ(registry.gauge("rate", "").value(), 2.5);
}

TEST(Counters, ManyThreadsCountAndMakeThem) {
  CounterRegistry registry;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) registry.counter("n" + std::to_string(k % 50), "").add();
    });
  }
  for (std::thread& thread : threads) thread.join();
  double sum = 0;
  for (const Figure& figure : registry.figures()) sum += figure.value;
  EXPECT_EQ(sum, 4000);
}

TEST(Prometheus, WritesTheTextFormat) {
  CounterRegistry registry;
  registry.gauge("theseus_link_rate", "bytes/s\nof a \\ link", {{"rank", "3"}, {"na me", "a\"b\\c\nd"}})
      .set(59.8e6);
  registry.gauge("theseus_link_rate", "", {{"rank", "10"}}).set(std::nan(""));
  registry.counter("theseus_calls_total", "calls").add(18'014'398'509'481'984);
  registry.gauge("7 up", "odd name").set(-HUGE_VAL);
  EXPECT_EQ(prometheusText(registry.figures()),
            "# HELP _7_up odd name\n"
            "# TYPE _7_up gauge\n"
            "_7_up -Inf\n"
            "# HELP theseus_calls_total calls\n"
            "# TYPE theseus_calls_total counter\n"
            "theseus_calls_total 1.8014398509481984e+16\n"
            "# HELP theseus_link_rate bytes/s\\nof a \\\\ link\n"
            "# TYPE theseus_link_rate gauge\n"
            "theseus_link_rate{na_me=\"a\\\"b\\\\c\\nd\",rank=\"3\"} 59800000\n"
            "theseus_link_rate{rank=\"10\"} NaN\n");
  EXPECT_EQ(prometheusText({}), "");
}

TEST(Trace, PairsBeginsWithEndsOnEachThread) {
  const std::vector<ThreadEvents> threads = {
      {"caller \"x\"\n",
       {{900, EventId::kCollectiveEnd, 6, 0},  // its Begin is lost
        {1500, EventId::kCollectiveBegin, 7, 4096},
        {1600, EventId::kSend, 2, 100},
        {2750, EventId::kCollectiveEnd, 7, 1},
        {3000, EventId::kCollectiveBegin, 8, 64}}},
      {"control", {{2000, EventId::kRoundBegin, 1, 9}, {5000, EventId::kRoundEnd, 1, 12}}},
  };
  const auto trace = nlohmann::json::parse(traceJson(threads, 3));
  std::map<std::string, nlohmann::json> byPhase;
  for (const auto& event : trace.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), 3);
    byPhase[event.at("ph").get<std::string>()].push_back(event);
  }
  ASSERT_EQ(byPhase["M"].size(), 3u);
  EXPECT_EQ(byPhase["M"][0].at("args").at("name"), "rank 3");
  EXPECT_EQ(byPhase["M"][1].at("args").at("name"), "caller \"x\"\n");
  ASSERT_EQ(byPhase["X"].size(), 2u);
  const auto& collective = byPhase["X"][0];
  EXPECT_EQ(collective.at("name"), "collective");
  EXPECT_EQ(collective.at("ts"), 1.5);
  EXPECT_EQ(collective.at("dur"), 1.25);
  EXPECT_EQ(collective.at("args"), nlohmann::json({{"sequence", 7}, {"bytes", 4096}, {"slot", 1}}));
  EXPECT_EQ(byPhase["X"][1].at("tid"), 2);
  EXPECT_EQ(byPhase["X"][1].at("args"), nlohmann::json({{"round", 1}, {"sequence", 9}, {"switch_at", 12}}));
  ASSERT_EQ(byPhase["i"].size(), 1u);
  EXPECT_EQ(byPhase["i"][0].at("args"), nlohmann::json({{"peer", 2}, {"bytes", 100}}));
  ASSERT_EQ(byPhase["B"].size(), 1u) << "what still runs";
  EXPECT_EQ(byPhase["B"][0].at("args").at("sequence"), 8);
}

TEST(Trace, OfNothingIsATrace) {
  const auto trace = nlohmann::json::parse(traceJson({}, 0));
  EXPECT_EQ(trace.at("traceEvents").size(), 1u);
}

}  // namespace
}  // namespace theseus::telemetry
