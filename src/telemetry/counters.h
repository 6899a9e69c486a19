// Named counters and gauges: cheap to change from any thread, read by the sinks. Each belongs to a Registry,
// which owns it; references stay valid as long as the registry lives.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace theseus::telemetry {

/// A number of things that only grows.
class Counter {
 public:
  // Relaxed, here and below: a figure orders nothing.
  void add(std::uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  // Relaxed: see above.
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// A value that goes up and down.
class Gauge {
 public:
  // Relaxed, here and below: a figure orders nothing.
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  // Relaxed: see above.
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

using Labels = std::map<std::string, std::string>;

/// One figure as a sink gets it.
struct Figure {
  std::string name;
  std::string help;
  bool counter = false;
  Labels labels;
  double value = 0;
};

class CounterRegistry {
 public:
  /// The counter of that name and those labels, made at the first call; keep the reference, looking it up
  /// takes a lock. By custom a counter's name ends in "_total" and a unit stands in the name:
  /// "theseus_sent_bytes_total".
  Counter& counter(std::string_view name, std::string_view help, Labels labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, Labels labels = {});

  /// All figures, sorted by name, then labels.
  std::vector<Figure> figures() const;

 private:
  struct Key {
    std::string name;
    Labels labels;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  template <class Value>
  struct Entry {
    std::string help;
    Value* value = nullptr;
  };

  mutable std::mutex mutex_;
  std::deque<Counter> counterStore_;  // a deque: references stay valid as it grows
  std::deque<Gauge> gaugeStore_;
  std::map<Key, Entry<Counter>> counters_;
  std::map<Key, Entry<Gauge>> gauges_;
};

/// The process's own registry.
CounterRegistry& counters();

}  // namespace theseus::telemetry
