#include "telemetry/flight_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <set>
#include <string>
#include <thread>

namespace theseus::telemetry {
namespace {

TEST(EventRing, KeepsTheNewest) {
  EventRing ring;
  EXPECT_TRUE(ring.snapshot().empty());
  ring.record(5, EventId::kSend, 1, 2);
  ASSERT_EQ(ring.snapshot().size(), 1u);
  EXPECT_EQ(ring.snapshot()[0], (Event{5, EventId::kSend, 1, 2}));
  constexpr std::uint64_t kMore = 3 * EventRing::kCapacity + 7;
  for (std::uint64_t i = 0; i < kMore; ++i)
    ring.record(static_cast<std::int64_t>(i), EventId::kArrival, i, 2 * i);
  const std::vector<Event> events = ring.snapshot();
  ASSERT_EQ(events.size(), EventRing::kCapacity);
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].a, kMore - EventRing::kCapacity + i);
  EXPECT_EQ(ring.recorded(), kMore + 1);
}

TEST(EventRing, IsReadWhileItIsWritten) {
  EventRing ring;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !stop.load(); ++i)
      ring.record(static_cast<std::int64_t>(3 * i), EventId::kSend, i, ~i);
  });
  while (ring.recorded() < 2 * EventRing::kCapacity) std::this_thread::yield();
  std::size_t seen = 0;
  for (int pass = 0; pass < 200; ++pass) {
    const std::vector<Event> events = ring.snapshot();
    seen += events.size();
    for (std::size_t i = 0; i < events.size(); ++i) {
      ASSERT_EQ(events[i].b, ~events[i].a) << "a torn event";
      ASSERT_EQ(events[i].nanoseconds, static_cast<std::int64_t>(3 * events[i].a)) << "a torn event";
      if (i > 0) {
        ASSERT_GT(events[i].a, events[i - 1].a);
      }
    }
  }
  stop.store(true);
  writer.join();
  EXPECT_GT(seen, 0u);
  EXPECT_EQ(ring.snapshot().size(), EventRing::kCapacity);
}

const ThreadEvents* find(const std::vector<ThreadEvents>& threads, const std::string& name) {
  const auto found = std::find_if(threads.begin(), threads.end(),
                                  [&](const ThreadEvents& row) { return row.thread == name; });
  return found == threads.end() ? nullptr : &*found;
}

TEST(FlightRecorder, EveryThreadHasItsOwnRingThatOutlivesIt) {
  std::thread([] {
    nameThread("first");
    record(EventId::kRoundBegin, 41, 7);
    record(EventId::kRoundEnd, 41, 9);
    // Alive at the same time, so that it cannot take over the first one's ring.
    std::thread([] {
      nameThread("second");
      record(EventId::kEpoch, 42);
    }).join();
  }).join();
  const auto threads = flightRecord();
  const ThreadEvents* first = find(threads, "first");
  const ThreadEvents* second = find(threads, "second");
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  ASSERT_GE(first->events.size(), 2u);
  const Event& last = first->events.back();
  EXPECT_EQ(last.id, EventId::kRoundEnd);
  EXPECT_EQ(last.a, 41u);
  EXPECT_EQ(last.b, 9u);
  EXPECT_GE(last.nanoseconds, first->events[first->events.size() - 2].nanoseconds);
  EXPECT_EQ(second->events.back().a, 42u);
}

TEST(FlightRecorder, ManyShortThreadsDoNotMakeManyRings) {
  const std::size_t before = flightRecord().size();
  for (int i = 0; i < 100; ++i) std::thread([] { record(EventId::kEpoch); }).join();
  EXPECT_LE(flightRecord().size(), before + 1);
}

TEST(FlightRecorder, IsReadWhileThreadsComeAndGo) {
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop.load()) {
      for (const ThreadEvents& row : flightRecord()) {
        for (const Event& event : row.events) ASSERT_LT(static_cast<std::size_t>(event.id), kEventCount);
      }
    }
  });
  for (int i = 0; i < 50; ++i) {
    std::thread([] {
      for (std::uint64_t k = 0; k < 100; ++k) record(EventId::kSend, k, k);
    }).join();
  }
  stop.store(true);
  reader.join();
}

TEST(FlightRecorder, RecordingCostsLittle) {
  constexpr int kEvents = 1'000'000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kEvents; ++i) record(EventId::kSend, 1, 2);
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  RecordProperty("nanoseconds_per_event", std::to_string(time.count() / kEvents));
  std::printf("  %.1f ns an event, clock included\n", time.count() / kEvents);
  EXPECT_LT(time.count() / kEvents, 10'000)
      << "far above what a busy machine or a sanitizer explains: it has become a system call";
}

TEST(Events, HaveDistinctNamesAndPairs) {
  std::set<std::string_view> names;
  std::multiset<std::string_view> begins;
  std::multiset<std::string_view> ends;
  for (const EventTraits& row : kEventTraits) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    if (row.kind == EventKind::Begin) begins.insert(row.track);
    if (row.kind == EventKind::End) ends.insert(row.track);
  }
  EXPECT_EQ(begins, ends) << "every Begin has one End";
  EXPECT_EQ(traits(EventId::kCollectiveBegin).track, "collective");
  EXPECT_EQ(traits(EventId::kEpoch).track, "epoch");
}

}  // namespace
}  // namespace theseus::telemetry
