// Messages for people: one line on stderr unless another sink is set. Any thread; a line is written whole.
// For what happens often use the flight recorder: this takes a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace theseus::telemetry {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError, kOff };

std::string_view name(LogLevel level);  // "debug", "info", "warning", "error", "off"
std::optional<LogLevel> parseLogLevel(std::string_view text);

/// One message as a sink gets it.
struct LogRecord {
  LogLevel level = LogLevel::kInfo;
  std::string_view component;
  std::string_view message;
  std::int64_t wallNanoseconds = 0;  // since 1970, UTC
  int rank = -1;                     // -1 = not known (yet)
};

using LogSink = std::function<void(const LogRecord&)>;

namespace detail {
extern std::atomic<LogLevel> threshold;
}  // namespace detail

/// Whether a message of this level would be written: ask before building an expensive one.
inline bool logs(LogLevel level) {
  // Relaxed: a threshold that changes may be seen a moment later; nothing else hangs on it.
  return level >= detail::threshold.load(std::memory_order_relaxed);
}

/// Writes a message. `component` is the module or part that speaks: "control", "tcp".
void log(LogLevel level, std::string_view component, std::string message);

/// From THESEUS_LOG at the start of the process (a value that is none is reported and "warning" used); then
/// from here.
void setLogLevel(LogLevel level);
/// Shown in every line from now on; of use where a process is one rank.
void setLogRank(int rank);
/// Replaces the sink (stderr); an empty one restores stderr. Called under the log's lock: a sink must not
/// log.
void setLogSink(LogSink sink);

/// "2026-03-01T12:00:00.123456Z rank 3 warning control: text\n"; control characters in the message are
/// replaced, so that a message cannot pretend to be several lines.
std::string formatLine(const LogRecord& record);

}  // namespace theseus::telemetry
