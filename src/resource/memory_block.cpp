#include "resource/memory_block.h"

#include <fmt/format.h>
#include <sys/mman.h>

namespace theseus::resource {
namespace {

constexpr std::uint64_t kHugePageBytes = 2u << 20;

std::uint64_t roundUp(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

MemoryBlock::~MemoryBlock() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Status MemoryBlock::reserve(std::uint64_t bytes) {
  if (bytes <= bytes_) return {};
  // Doubling keeps the number of growths logarithmic when message sizes creep up.
  const std::uint64_t wanted =
      roundUp(bytes < 2 * bytes_ ? 2 * bytes_ : bytes, bytes < kHugePageBytes ? 4096 : kHugePageBytes);
  void* memory = mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(ErrorCode::kOutOfMemory, fmt::format("cannot map {} bytes of scratch memory", wanted));
  }
  if (wanted >= kHugePageBytes) madvise(memory, wanted, MADV_HUGEPAGE);
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = static_cast<std::byte*>(memory);
  bytes_ = wanted;
  return {};
}

}  // namespace theseus::resource
