// Events in order of simulated time, ties in order of creation: the only clock of the simulator. Owned by one
// simulation; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "sim/scenario.h"

namespace theseus::sim {

enum class EventKind : std::uint8_t { kIssue, kDeliver, kAction };

struct Event {
  EventKind kind = EventKind::kIssue;
  Rank rank = 0;
  Rank from = 0;           // kDeliver
  bool truncated = false;  // kDeliver
  std::size_t action = 0;  // kAction: position in Scenario::actions
  std::string bytes;       // kDeliver
};

class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  Microseconds now() const { return now_; }

  void push(Microseconds delay, Event event) {
    std::size_t place = events_.size();
    if (free_.empty()) {
      events_.push_back(std::move(event));
    } else {
      place = free_.back();
      free_.pop_back();
      events_[place] = std::move(event);
    }
    heap_.push_back({now_ + delay, created_++, place});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }

  /// Takes the next event and moves the clock to it.
  Event pop() {
    THESEUS_CHECK(!heap_.empty(), "there is an event to take");
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Node node = heap_.back();
    heap_.pop_back();
    now_ = node.at;
    free_.push_back(node.place);
    return std::move(events_[node.place]);
  }

 private:
  struct Node {
    Microseconds at;
    std::uint64_t created;
    std::size_t place;
  };
  static bool later(const Node& left, const Node& right) {
    return std::pair(left.at, left.created) > std::pair(right.at, right.created);
  }
  Microseconds now_ = 0;
  std::uint64_t created_ = 0;
  std::vector<Node> heap_;
  std::vector<Event> events_;  // places are reused: the heap moves small nodes only
  std::vector<std::size_t> free_;
};

}  // namespace theseus::sim
