// Memory that other processes can map without a name in the file system, and mappings that go with their
// owner. Any thread.
#pragma once

#include <cstddef>
#include <string>

#include "drivers/posix/descriptor.h"
#include "theseus/result.h"

namespace theseus::drivers {

/// A mapping, page-aligned, zero-filled where nobody wrote; unmapped with its owner.
class MemoryMapping {
 public:
  MemoryMapping() = default;
  MemoryMapping(MemoryMapping&& other) noexcept;
  MemoryMapping& operator=(MemoryMapping&& other) noexcept;
  ~MemoryMapping();

  /// Private to the process, touched lazily.
  static Result<MemoryMapping> anonymous(std::size_t bytes);
  /// Shared with whoever maps the same descriptor.
  static Result<MemoryMapping> shared(const FileDescriptor& file, std::size_t bytes);

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  /// Faults the range in now, so that its first use is fast. A failure is harmless and ignored.
  void populate(std::size_t offset, std::size_t bytes) const;

 private:
  MemoryMapping(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A sparse memfd of a size that nobody can change any more (a peer cannot shrink it under our feet).
Result<FileDescriptor> createSealedMemoryFile(const std::string& label, std::size_t bytes);

/// Checks that a descriptor that a peer sent is such a file of `bytes`.
Status checkSealedMemoryFile(const FileDescriptor& file, std::size_t bytes);

}  // namespace theseus::drivers
