// Which bytes of scratch have arrived as packets in the current collective: a set of disjoint ranges. One
// thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace theseus::exec {

class Arrivals {
 public:
  void clear() { ranges_.clear(); }

  void add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    auto first = std::lower_bound(ranges_.begin(), ranges_.end(), begin,
                                  [](const Range& range, std::uint64_t value) { return range.end < value; });
    auto last = first;
    while (last != ranges_.end() && last->begin <= end) {
      begin = std::min(begin, last->begin);
      end = std::max(end, last->end);
      ++last;
    }
    first = ranges_.erase(first, last);
    ranges_.insert(first, Range{begin, end});
  }

  bool covers(std::uint64_t begin, std::uint64_t end) const {
    if (begin >= end) return true;
    auto found = std::lower_bound(ranges_.begin(), ranges_.end(), begin,
                                  [](const Range& range, std::uint64_t value) { return range.end <= value; });
    return found != ranges_.end() && found->begin <= begin && end <= found->end;
  }

 private:
  struct Range {
    std::uint64_t begin;
    std::uint64_t end;
  };
  std::vector<Range> ranges_;  // sorted, disjoint, not touching
};

}  // namespace theseus::exec
