#include "telemetry/trace_json.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

namespace theseus::telemetry {
namespace {

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < ' ') {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      result += c;
    }
  }
  return result + '"';
}

class Writer {
 public:
  explicit Writer(int rank) : rank_(rank) {
    add(fmt::format(R"("name":"process_name","ph":"M","pid":{},"tid":0,"args":{{"name":"rank {}"}})", rank,
                    rank));
  }

  void thread(int number, const ThreadEvents& thread) {
    thread_ = number;
    add(fmt::format(R"("name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}})", rank_, number,
                    quoted(thread.thread)));
    std::map<std::pair<std::string_view, std::uint64_t>, Event> open;
    for (const Event& event : thread.events) place(event, open);
    for (const auto& [key, begin] : open) header("B", begin, begin.nanoseconds, arguments(begin));
  }

  std::string finish() && { return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + text_ + "\n]}\n"; }

 private:
  using Open = std::map<std::pair<std::string_view, std::uint64_t>, Event>;

  void place(const Event& event, Open& open) {
    if (static_cast<std::size_t>(event.id) >= kEventCount) return;
    const EventTraits& row = traits(event.id);
    if (row.kind == EventKind::Instant)
      return header("i", event, event.nanoseconds, R"("s":"t",)" + arguments(event));
    const auto key = std::make_pair(row.track, event.a);
    if (row.kind == EventKind::Begin) {
      open[key] = event;
      return;
    }
    const auto begin = open.find(key);
    if (begin == open.end()) return;
    const std::int64_t duration = event.nanoseconds - begin->second.nanoseconds;
    std::string values =
        fmt::format("\"dur\":{},\"args\":{{{}", microseconds(duration), fields(begin->second));
    if (row.b != traits(begin->second.id).b) values += fmt::format(",{}:{}", quoted(row.b), event.b);
    header("X", event, begin->second.nanoseconds, values + "}");
    open.erase(begin);
  }

  static std::string microseconds(std::int64_t nanoseconds) {
    return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
  }
  static std::string fields(const Event& event) {
    const EventTraits& row = traits(event.id);
    return fmt::format("{}:{},{}:{}", quoted(row.a), event.a, quoted(row.b), event.b);
  }
  static std::string arguments(const Event& event) { return fmt::format("\"args\":{{{}}}", fields(event)); }

  void header(const char* phase, const Event& event, std::int64_t start, const std::string& rest) {
    add(fmt::format(R"("name":{},"ph":"{}","pid":{},"tid":{},"ts":{},{})", quoted(traits(event.id).track),
                    phase, rank_, thread_, microseconds(start), rest));
  }
  void add(const std::string& members) { text_ += (text_.empty() ? "{" : ",\n{") + members + "}"; }

  int rank_;
  int thread_ = 0;
  std::string text_;
};

}  // namespace

std::string traceJson(std::span<const ThreadEvents> threads, int rank) {
  Writer writer(rank);
  int number = 0;
  for (const ThreadEvents& thread : threads) writer.thread(++number, thread);
  return std::move(writer).finish();
}

}  // namespace theseus::telemetry
