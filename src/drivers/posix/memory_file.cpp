#include "drivers/posix/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/check.h"

namespace theseus::drivers {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

MemoryMapping::MemoryMapping(MemoryMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MemoryMapping& MemoryMapping::operator=(MemoryMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryMapping::~MemoryMapping() {
  if (data_) ::munmap(data_, bytes_);
}

Result<MemoryMapping> MemoryMapping::anonymous(std::size_t bytes) {
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    return failSystem("mapping " + std::to_string(bytes) + " bytes", errno, ErrorCode::kOutOfMemory);
  return MemoryMapping(static_cast<std::byte*>(data), bytes);
}

Result<MemoryMapping> MemoryMapping::shared(const FileDescriptor& file, std::size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED)
    return failSystem("mapping " + std::to_string(bytes) + " shared bytes", errno, ErrorCode::kOutOfMemory);
  return MemoryMapping(static_cast<std::byte*>(data), bytes);
}

void MemoryMapping::populate(std::size_t offset, std::size_t bytes) const {
  THESEUS_CHECK(offset + bytes <= bytes_, "populate within the mapping");
#ifdef MADV_POPULATE_WRITE
  (void)::madvise(data_ + offset, bytes, MADV_POPULATE_WRITE);
#endif
}

Result<FileDescriptor> createSealedMemoryFile(const std::string& label, std::size_t bytes) {
  FileDescriptor file(::memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return failSystem("memfd_create " + label, errno);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return failSystem("sizing memfd " + label + " to " + std::to_string(bytes) + " bytes", errno);
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return failSystem("sealing memfd " + label, errno);
  return file;
}

Status checkSealedMemoryFile(const FileDescriptor& file, std::size_t bytes) {
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  struct stat status{};
  if (seals < 0 || ::fstat(file.get(), &status) != 0)
    return failSystem("looking at a peer's memory file", errno);
  if ((seals & kSeals) != kSeals)
    return fail(ErrorCode::kTransport, "a peer's memory file can still change its size");
  if (static_cast<std::size_t>(status.st_size) != bytes)
    return fail(ErrorCode::kTransport, "a peer's memory file has " + std::to_string(status.st_size) +
                                           " bytes, not " + std::to_string(bytes) +
                                           ": another version or size of job");
  return {};
}

}  // namespace theseus::drivers
