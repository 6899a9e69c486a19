#include "exec/reference/reference_memory.h"

#include <algorithm>

#include "base/check.h"

namespace theseus::exec {

using schedule::BufferKind;

void RangeSet::add(std::uint64_t begin, std::uint64_t end) {
  if (begin == end) return;
  auto first =
      std::find_if(ranges_.begin(), ranges_.end(), [&](const auto& range) { return range.second >= begin; });
  auto last = first;
  for (; last != ranges_.end() && last->first <= end; ++last) {
    begin = std::min(begin, last->first);
    end = std::max(end, last->second);
  }
  first = ranges_.erase(first, last);
  ranges_.insert(first, {begin, end});
}

bool RangeSet::covers(std::uint64_t begin, std::uint64_t end) const {
  if (begin == end) return true;
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const auto& range) { return range.first <= begin && end <= range.second; });
}

RankMemory::RankMemory(const Shape& shape, const std::vector<std::byte>& input) : shape_(shape) {
  const schedule::MessageSize& size = shape.size;
  first_.assign(shape.inPlace ? std::max(size.inputBytes, size.outputBytes) : size.inputBytes,
                kUndefinedByte);
  if (!shape.inPlace) second_.assign(size.outputBytes, kUndefinedByte);
  scratch_.assign(shape.scratchBytes, kUndefinedByte);
  THESEUS_CHECK(input.size() == size.inputBytes, "the caller has checked the size of the input");
  std::copy(input.begin(), input.end(), buffer(BufferKind::kInput).begin());
}

std::span<std::byte> RankMemory::buffer(BufferKind kind) {
  const schedule::MessageSize& size = shape_.size;
  const auto rank = static_cast<std::uint64_t>(shape_.rank);
  switch (kind) {
    case BufferKind::kInput: {
      const bool block = shape_.inPlace && shape_.collective == Collective::kAllGather;
      return std::span(first_).subspan(block ? rank * size.inputBytes : 0, size.inputBytes);
    }
    case BufferKind::kOutput: {
      if (!shape_.inPlace) return second_;
      const bool block = shape_.collective == Collective::kReduceScatter;
      return std::span(first_).subspan(block ? rank * size.outputBytes : 0, size.outputBytes);
    }
    case BufferKind::kScratch:
      return scratch_;
  }
  return {};
}

}  // namespace theseus::exec
