// Sleeping until descriptors stir: epoll, edge-triggered, and an event counter that other threads or
// processes ring. Poller: one thread. EventCounter::signal: any thread, any process that holds the
// descriptor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "drivers/posix/descriptor.h"
#include "theseus/result.h"

namespace theseus::drivers {

/// An eventfd. Watched edge-triggered it need never be read: every signal is a new edge.
class EventCounter {
 public:
  EventCounter() = default;
  explicit EventCounter(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}
  static Result<EventCounter> create();
  void signal() const;
  const FileDescriptor& descriptor() const { return descriptor_; }

 private:
  FileDescriptor descriptor_;
};

struct PollEvent {
  std::uint64_t key = 0;
  bool readable = false;
  bool writable = false;
  bool hangUp =
      false;  // the other side closed or the connection broke; what was sent before can still be read
};

class Poller {
 public:
  static Result<Poller> create();
  /// Reports changes (edges) of `descriptor` under `key`; the first poll reports its present state. Ends when
  /// it is closed.
  Status watch(const FileDescriptor& descriptor, std::uint64_t key);
  /// The same for one that is watched already, under another key from now on.
  Status rewatch(const FileDescriptor& descriptor, std::uint64_t key);
  /// Waits at most `timeout` (0: only looks). Valid until the next call. A signal may end it early with
  /// nothing.
  std::span<const PollEvent> poll(base::Nanoseconds timeout);

 private:
  Status control(int operation, const FileDescriptor& descriptor, std::uint64_t key);
  explicit Poller(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}
  FileDescriptor descriptor_;
  std::vector<PollEvent> events_;
};

}  // namespace theseus::drivers
