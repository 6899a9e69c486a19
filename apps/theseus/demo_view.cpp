#include "demo_view.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <vector>

namespace theseus::demo {
namespace {

class PlainView final : public DemoView {
 public:
  explicit PlainView(const ViewOptions& options) : options_(options) {}

  void collective(const std::string& library, const std::string& phase,
                  const CollectiveOutcome& outcome) override {
    print(fmt::format(
        "{:<8} {:<16} {:>5}  {:>8.1f} ms  {:>6.3f} GB/s  epoch {:<3} {}{}", library, phase, outcome.number,
        outcome.seconds * 1e3, busBandwidth(options_.bytes, options_.ranks, outcome.seconds), outcome.round,
        outcome.schedule, outcome.wrong == 0 ? "" : fmt::format("  WRONG: {} elements", outcome.wrong)));
  }

  void event(const std::string& text) override { print("         ** " + text); }
  void linkRate(int, double) override {}

 private:
  static void print(const std::string& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
  }

  ViewOptions options_;
};

/// A few lines, redrawn in place. No alternate screen and no hidden cursor: an abrupt end leaves the terminal
/// as it is.
class LiveView final : public DemoView {
 public:
  explicit LiveView(const ViewOptions& options)
      : options_(options), rates_(static_cast<std::size_t>(options.ranks), options.megabitsPerSecond) {}

  void collective(const std::string& library, const std::string& phase,
                  const CollectiveOutcome& outcome) override {
    library_ = library;
    phase_ = phase;
    wrong_ += outcome.wrong;
    ++collectives_;
    last_ = outcome;
    milliseconds_.push_back(outcome.seconds * 1e3);
    if (milliseconds_.size() > kHistory) milliseconds_.pop_front();
    draw();
  }

  void event(const std::string& text) override {
    events_.push_back(fmt::format("{:>4}  {}", last_.number, text));
    if (events_.size() > kEvents) events_.pop_front();
    draw();
  }

  void linkRate(int rank, double megabitsPerSecond) override {
    rates_[static_cast<std::size_t>(rank)] = megabitsPerSecond;
  }

 private:
  static constexpr std::size_t kHistory = 64;
  static constexpr std::size_t kEvents = 5;

  std::string history() const {
    static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    if (milliseconds_.empty()) return "";
    const double highest = *std::max_element(milliseconds_.begin(), milliseconds_.end());
    std::string text;
    for (const double value : milliseconds_) {
      text += kBars[std::clamp(static_cast<int>(value / highest * 8), 0, 7)];
    }
    return fmt::format("{}  (full height {:.0f} ms)", text, highest);
  }

  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    lines.push_back(
        fmt::format("\x1b[1mallReduce of {:.1f} MiB over {} ranks{}\x1b[0m   phase \x1b[1m{}\x1b[0m ({})",
                    static_cast<double>(options_.bytes) / (1 << 20), options_.ranks,
                    options_.emulated ? ", links emulated" : "", phase_, library_));
    lines.push_back(fmt::format("schedule  \x1b[1;36m{}\x1b[0m   epoch {}", last_.schedule, last_.round));
    lines.push_back(fmt::format("collective {}   {:.1f} ms   {:.3f} GB/s bus   wrong elements {}",
                                collectives_, last_.seconds * 1e3,
                                busBandwidth(options_.bytes, options_.ranks, last_.seconds), wrong_));
    lines.push_back("times     " + history());
    std::string links = "Mbit/s   ";
    for (std::size_t rank = 0; rank < rates_.size(); ++rank) {
      const bool slow = rates_[rank] < options_.megabitsPerSecond;
      links +=
          fmt::format(" {}r{}:{:.0f}{}", slow ? "\x1b[1;31m" : "", rank, rates_[rank], slow ? "\x1b[0m" : "");
    }
    lines.push_back(links);
    for (const std::string& event : events_) lines.push_back("  " + event);
    return lines;
  }

  void draw() {
    std::string text;
    if (drawn_ > 0) text += fmt::format("\x1b[{}A", drawn_);
    const auto all = lines();
    // ?7l: a long line is cut at the edge instead of wrapped, or the count of lines to go up would be wrong.
    text += "\x1b[?7l";
    for (const std::string& line : all) text += "\r\x1b[2K" + line + "\n";
    text += "\x1b[?7h";
    drawn_ = all.size();
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  ViewOptions options_;
  std::vector<double> rates_;
  std::string library_;
  std::string phase_ = "start";
  CollectiveOutcome last_;
  std::uint64_t wrong_ = 0;
  std::uint64_t collectives_ = 0;
  std::deque<double> milliseconds_;
  std::deque<std::string> events_;
  std::size_t drawn_ = 0;
};

}  // namespace

std::unique_ptr<DemoView> makePlainView(const ViewOptions& options) {
  return std::make_unique<PlainView>(options);
}
std::unique_ptr<DemoView> makeLiveView(const ViewOptions& options) {
  return std::make_unique<LiveView>(options);
}

std::unique_ptr<DemoView> makeView(const ViewOptions& options) {
  return ::isatty(STDOUT_FILENO) == 1 ? makeLiveView(options) : makePlainView(options);
}

double busBandwidth(std::uint64_t bytes, int ranks, double seconds) {
  if (seconds <= 0) return 0;
  return static_cast<double>(bytes) / seconds * 2 * (ranks - 1) / ranks / 1e9;
}

}  // namespace theseus::demo
