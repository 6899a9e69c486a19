#include "telemetry/counters.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace theseus::telemetry {

Counter& CounterRegistry::counter(std::string_view name, std::string_view help, Labels labels) {
  std::scoped_lock lock(mutex_);
  auto& entry = counters_[Key{std::string(name), std::move(labels)}];
  if (entry.value == nullptr) entry = {std::string(help), &counterStore_.emplace_back()};
  return *entry.value;
}

Gauge& CounterRegistry::gauge(std::string_view name, std::string_view help, Labels labels) {
  std::scoped_lock lock(mutex_);
  auto& entry = gauges_[Key{std::string(name), std::move(labels)}];
  if (entry.value == nullptr) entry = {std::string(help), &gaugeStore_.emplace_back()};
  return *entry.value;
}

std::vector<Figure> CounterRegistry::figures() const {
  std::scoped_lock lock(mutex_);
  std::vector<Figure> list;
  for (const auto& [key, entry] : counters_) {
    list.push_back({key.name, entry.help, true, key.labels, static_cast<double>(entry.value->value())});
  }
  for (const auto& [key, entry] : gauges_)
    list.push_back({key.name, entry.help, false, key.labels, entry.value->value()});
  std::sort(list.begin(), list.end(), [](const Figure& left, const Figure& right) {
    return std::tie(left.name, left.labels) < std::tie(right.name, right.labels);
  });
  return list;
}

CounterRegistry& counters() {
  static CounterRegistry& instance =
      *new CounterRegistry;  // never destroyed: threads may count while the process ends
  return instance;
}

}  // namespace theseus::telemetry
