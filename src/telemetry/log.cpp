#include "telemetry/log.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <utility>

namespace theseus::telemetry {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"debug", "info", "warning", "error", "off"};
constexpr const char* kLevelVariable = "THESEUS_LOG";

struct Output {
  std::mutex mutex;
  LogSink sink;
  int rank = -1;
};

/// Never destroyed: threads may still log while the process ends.
Output& output() {
  static Output& instance = *new Output;
  return instance;
}

LogLevel levelFromEnvironment() {
  const char* text = std::getenv(kLevelVariable);
  if (text == nullptr) return LogLevel::kWarning;
  if (const auto level = parseLogLevel(text)) return *level;
  std::fprintf(stderr, "theseus: %s=\"%s\" must be: debug, info, warning, error, off; using warning\n",
               kLevelVariable, text);
  return LogLevel::kWarning;
}

}  // namespace

namespace detail {
std::atomic<LogLevel> threshold{levelFromEnvironment()};
}  // namespace detail

std::string_view name(LogLevel level) { return kNames[static_cast<std::size_t>(level)]; }

std::optional<LogLevel> parseLogLevel(std::string_view text) {
  for (std::size_t level = 0; level < kNames.size(); ++level) {
    if (kNames[level] == text) return static_cast<LogLevel>(level);
  }
  return std::nullopt;
}

void log(LogLevel level, std::string_view component, std::string message) {
  if (level >= LogLevel::kOff || !logs(level)) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  LogRecord record{level, component, message,
                   std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(), -1};
  Output& out = output();
  std::scoped_lock lock(out.mutex);
  record.rank = out.rank;
  if (out.sink) return out.sink(record);
  const std::string line = formatLine(record);
  // One call, so that lines of several processes that share stderr stay whole.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// Relaxed: see logs().
void setLogLevel(LogLevel level) { detail::threshold.store(level, std::memory_order_relaxed); }

void setLogRank(int rank) {
  std::scoped_lock lock(output().mutex);
  output().rank = rank;
}

void setLogSink(LogSink sink) {
  std::scoped_lock lock(output().mutex);
  output().sink = std::move(sink);
}

std::string formatLine(const LogRecord& record) {
  constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;
  const std::time_t seconds = record.wallNanoseconds / kNanosecondsPerSecond;
  const std::int64_t microseconds = record.wallNanoseconds % kNanosecondsPerSecond / 1000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::string line =
      fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z ", utc.tm_year + 1900, utc.tm_mon + 1,
                  utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, microseconds);
  if (record.rank >= 0) line += fmt::format("rank {} ", record.rank);
  line += fmt::format("{} {}: ", name(record.level), record.component);
  for (const char letter : record.message)
    line += static_cast<unsigned char>(letter) < ' ' || letter == 0x7f ? ' ' : letter;
  return line + '\n';
}

}  // namespace theseus::telemetry
