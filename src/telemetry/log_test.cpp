#include "telemetry/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace theseus::telemetry {
namespace {

using ::testing::ElementsAre;

/// Collects lines; restores stderr and the level at the end.
class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    setLogSink(
        [this](const LogRecord& record) { lines_.push_back(formatLine(record).substr(kTimeLetters)); });
  }
  ~LogTest() override {
    setLogSink({});
    setLogRank(-1);
    setLogLevel(LogLevel::kWarning);
  }
  static constexpr std::size_t kTimeLetters = 28;
  std::vector<std::string> lines_;
};

TEST_F(LogTest, WritesFromItsLevelUp) {
  setLogLevel(LogLevel::kWarning);
  log(LogLevel::kDebug, "control", "a");
  log(LogLevel::kInfo, "control", "b");
  log(LogLevel::kWarning, "control", "c");
  log(LogLevel::kError, "tcp", "d");
  log(LogLevel::kOff, "tcp", "no message has this level");
  EXPECT_THAT(lines_, ElementsAre("warning control: c\n", "error tcp: d\n"));
  setLogLevel(LogLevel::kOff);
  EXPECT_FALSE(logs(LogLevel::kError));
  log(LogLevel::kError, "tcp", "e");
  setLogLevel(LogLevel::kDebug);
  log(LogLevel::kDebug, "tcp", "f");
  EXPECT_EQ(lines_.size(), 3u);
}

TEST_F(LogTest, ShowsTheRankOnceItIsKnown) {
  log(LogLevel::kError, "tcp", "before");
  setLogRank(3);
  log(LogLevel::kError, "tcp", "after");
  EXPECT_THAT(lines_, ElementsAre("error tcp: before\n", "rank 3 error tcp: after\n"));
}

TEST_F(LogTest, ManyThreadsWriteWholeLines) {
  constexpr int kThreads = 8;
  constexpr int kLines = 200;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([i] {
      for (int line = 0; line < kLines; ++line)
        log(LogLevel::kError, "test", std::string(50, static_cast<char>('a' + i)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(lines_.size(), static_cast<std::size_t>(kThreads * kLines));
  for (const std::string& line : lines_) {
    const std::string text = line.substr(std::string("error test: ").size());
    EXPECT_EQ(text, std::string(50, text[0]) + "\n");
  }
}

TEST(LogLine, IsOneLineWhateverTheMessage) {
  LogRecord record{LogLevel::kInfo, "control", "a\nb\tc\x7f\xc3\xa9", 1'772'366'400'123'456'789, 2};
  EXPECT_EQ(formatLine(record), "2026-03-01T12:00:00.123456Z rank 2 info control: a b c \xc3\xa9\n");
}

TEST(LogLevels, HaveNames) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError, LogLevel::kOff}) {
    EXPECT_EQ(parseLogLevel(name(level)), level);
  }
  EXPECT_FALSE(parseLogLevel("loud").has_value());
}

}  // namespace
}  // namespace theseus::telemetry
