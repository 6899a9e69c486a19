// A growable block of memory for scratch and staging: page aligned, huge pages asked for, contents lost when
// it grows. Owned by the communicator (level L0 of the resource tree), used by the thread that runs its
// collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "theseus/result.h"

namespace theseus::resource {

class MemoryBlock {
 public:
  MemoryBlock() = default;
  ~MemoryBlock();
  MemoryBlock(const MemoryBlock&) = delete;
  MemoryBlock& operator=(const MemoryBlock&) = delete;

  /// Makes at least `bytes` available; keeps what is there when it is enough. Errors: out of memory, with the
  /// size asked for.
  Status reserve(std::uint64_t bytes);
  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace theseus::resource
