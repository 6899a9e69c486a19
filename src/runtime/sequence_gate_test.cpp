#include "runtime/sequence_gate.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"

namespace theseus::runtime {

TEST(SequenceGate, HoldsAtTheLimitUntilLifted) {
  SequenceGate gate;
  EXPECT_TRUE(gate.mayRun(gate.issue()));
  EXPECT_EQ(gate.promise(2), 3u);
  EXPECT_TRUE(gate.mayRun(gate.issue()));
  EXPECT_TRUE(gate.mayRun(gate.issue()));
  const SequenceNumber held = gate.issue();
  EXPECT_FALSE(gate.mayRun(held));
  EXPECT_FALSE(gate.waitUntilAllowed(held, std::chrono::milliseconds(5)));
  std::thread lifter([&] { gate.lift(); });
  EXPECT_TRUE(gate.waitUntilAllowed(held, std::chrono::seconds(10)));
  lifter.join();
}

TEST(SequenceGate, StopWakesForGood) {
  SequenceGate gate;
  gate.promise(1);
  const SequenceNumber first = gate.issue();
  EXPECT_TRUE(gate.mayRun(first));
  const SequenceNumber second = gate.issue();
  std::thread stopper([&] { gate.stop(); });
  EXPECT_FALSE(gate.waitUntilAllowed(second, std::chrono::seconds(10)));
  stopper.join();
}

// The rule that the switch stands on: whatever the interleaving, nothing at or above the promised limit runs
// before lift().
TEST(SequenceGate, NothingRunsBeyondAPromise) {
  SequenceGate gate;
  std::atomic<SequenceNumber> ran{0};  // highest number that was let through, plus one
  std::atomic<bool> stop{false};
  std::thread caller([&] {
    while (!stop.load()) {
      const SequenceNumber number = gate.issue();
      while (!gate.mayRun(number) && !gate.waitUntilAllowed(number, std::chrono::milliseconds(100)) &&
             !stop.load()) {
      }
      if (gate.mayRun(number)) ran.store(number + 1);
    }
  });
  base::Random random(3);
  // Long enough that the caller was held and let go many times.
  for (int i = 0; i < 2000 || ran.load() < 5000; ++i) {
    const SequenceNumber limit = gate.promise(1 + random.below(3));
    for (int spin = 0; spin < static_cast<int>(random.below(200)); ++spin) ASSERT_LE(ran.load(), limit);
    ASSERT_LE(ran.load(), limit);
    gate.lift();
  }
  stop = true;
  gate.stop();
  caller.join();
}

}  // namespace theseus::runtime
