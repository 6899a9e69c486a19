// A single-producer single-consumer ring of bytes in memory that both sides map, at whatever address: only
// offsets are shared. One writer thread and one reader thread, of one process or of two. A peer that writes
// nonsense into the shared part can make the other side report an error, never read or write outside the
// ring.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace theseus::transport {

/// Everything in a ring moves in multiples of this, so that a header never wraps and copies stay aligned.
constexpr std::size_t kRingUnitBytes = 64;
constexpr std::size_t roundUpToRingUnit(std::size_t bytes) {
  return (bytes + kRingUnitBytes - 1) & ~(kRingUnitBytes - 1);
}

/// The shared part, all zero at the start. Writer and reader own a cache line each.
struct RingControl {
  alignas(64) std::atomic<std::uint64_t> written;      // bytes ever published; stored by the writer only
  std::atomic<std::uint32_t> writerClosed;             // 1: the writer said goodbye after its last byte
  alignas(64) std::atomic<std::uint64_t> freed;        // bytes ever given back; stored by the reader only
  std::atomic<std::uint32_t> readerClosed;             // 1: the reader will never read again
  alignas(64) std::atomic<std::uint32_t> writerWaits;  // 1: the writer sleeps until room appears; stored by
                                                       // the writer only
};
static_assert(sizeof(RingControl) == 192);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "a lock beside the value would not be shared between processes");

/// Where one ring lies in this process. The capacity is agreed beforehand, never read from shared memory.
struct RingMemory {
  RingControl* control = nullptr;
  std::byte* bytes = nullptr;
  std::size_t capacity = 0;  // a power of two, at least 2 * kRingUnitBytes
};

class RingWriter {
 public:
  RingWriter() = default;
  explicit RingWriter(RingMemory memory) : memory_(memory) {}

  /// Free bytes, a multiple of the unit; looks at the shared counter only when fewer than `wanted` are known
  /// to be free.
  std::size_t room(std::size_t wanted) {
    if (memory_.capacity - (position_ - freed_) < wanted) {
      // acquire: the reader's loads from the bytes it gave back come before our stores that overwrite them.
      freed_ = memory_.control->freed.load(std::memory_order_acquire);
      if (position_ - freed_ > memory_.capacity || freed_ % kRingUnitBytes != 0) corrupt_ = true;
    }
    return corrupt_ ? 0 : memory_.capacity - (position_ - freed_);
  }

  /// Copies `count` <= room() bytes in, and skips to the next unit. Unseen by the reader until publish().
  void write(const void* source, std::size_t count) {
    const std::size_t at = position_ & (memory_.capacity - 1);
    const std::size_t first = std::min(count, memory_.capacity - at);
    std::memcpy(memory_.bytes + at, source, first);
    if (count > first)
      std::memcpy(memory_.bytes, static_cast<const std::byte*>(source) + first, count - first);
    position_ += roundUpToRingUnit(count);
  }

  void publish() {
    // release: the bytes copied in are visible to whoever sees the new count.
    memory_.control->written.store(position_, std::memory_order_release);
  }

  bool corrupt() const { return corrupt_; }
  RingControl& control() const { return *memory_.control; }

 private:
  RingMemory memory_;
  std::uint64_t position_ = 0;
  std::uint64_t freed_ = 0;  // last seen; too small at worst
  bool corrupt_ = false;
};

class RingReader {
 public:
  RingReader() = default;
  explicit RingReader(RingMemory memory) : memory_(memory) {}

  /// Published bytes not yet read, a multiple of the unit; looks at the shared counter only when fewer than
  /// `wanted` are known.
  std::size_t available(std::size_t wanted) {
    if (written_ - position_ < wanted) {
      // acquire: pairs with publish(), so that the bytes behind the count are there.
      written_ = memory_.control->written.load(std::memory_order_acquire);
      if (written_ - position_ > memory_.capacity || written_ % kRingUnitBytes != 0) corrupt_ = true;
    }
    return corrupt_ ? 0 : written_ - position_;
  }

  /// Copies `count` <= available() bytes out, and skips to the next unit.
  void read(void* destination, std::size_t count) {
    const std::size_t at = position_ & (memory_.capacity - 1);
    const std::size_t first = std::min(count, memory_.capacity - at);
    std::memcpy(destination, memory_.bytes + at, first);
    if (count > first)
      std::memcpy(static_cast<std::byte*>(destination) + first, memory_.bytes, count - first);
    position_ += roundUpToRingUnit(count);
  }

  void giveBack() {
    // release: our loads from these bytes are done before the writer can see that they are free.
    memory_.control->freed.store(position_, std::memory_order_release);
    givenBack_ = position_;
  }
  std::size_t notGivenBack() const { return position_ - givenBack_; }

  bool corrupt() const { return corrupt_; }
  RingControl& control() const { return *memory_.control; }

 private:
  RingMemory memory_;
  std::uint64_t position_ = 0;
  std::uint64_t givenBack_ = 0;
  std::uint64_t written_ = 0;  // last seen; too small at worst
  bool corrupt_ = false;
};

}  // namespace theseus::transport
