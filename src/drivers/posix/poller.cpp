#include "drivers/posix/poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "base/check.h"

namespace theseus::drivers {
namespace {

constexpr int kEventsMax = 64;

int pollKernel(int descriptor, epoll_event* events, base::Nanoseconds timeout) {
  timeout = std::max(timeout, base::Nanoseconds{0});
  if (timeout.count() == 0) return ::epoll_wait(descriptor, events, kEventsMax, 0);
  timespec limit{};
  limit.tv_sec = timeout.count() / 1'000'000'000;
  limit.tv_nsec = timeout.count() % 1'000'000'000;
  const int count = ::epoll_pwait2(descriptor, events, kEventsMax, &limit, nullptr);
  if (count >= 0 || errno != ENOSYS) return count;
  // Before Linux 5.11: whole milliseconds, rounded up so that a short wait does not become a spin.
  const auto milliseconds = std::min<std::int64_t>((timeout.count() + 999'999) / 1'000'000, 60'000);
  return ::epoll_wait(descriptor, events, kEventsMax, static_cast<int>(milliseconds));
}

}  // namespace

Result<EventCounter> EventCounter::create() {
  FileDescriptor descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!descriptor.valid()) return failSystem("eventfd", errno);
  return EventCounter(std::move(descriptor));
}

void EventCounter::signal() const {
  const std::uint64_t one = 1;
  // Fails only when 2^64 - 2 signals were never read; the watcher has long been woken then.
  [[maybe_unused]] const ssize_t written = ::write(descriptor_.get(), &one, sizeof(one));
}

Result<Poller> Poller::create() {
  FileDescriptor descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!descriptor.valid()) return failSystem("epoll_create1", errno);
  return Poller(std::move(descriptor));
}

Status Poller::watch(const FileDescriptor& descriptor, std::uint64_t key) {
  return control(EPOLL_CTL_ADD, descriptor, key);
}

Status Poller::rewatch(const FileDescriptor& descriptor, std::uint64_t key) {
  return control(EPOLL_CTL_MOD, descriptor, key);
}

Status Poller::control(int operation, const FileDescriptor& descriptor, std::uint64_t key) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = key;
  if (::epoll_ctl(descriptor_.get(), operation, descriptor.get(), &event) != 0)
    return failSystem("epoll_ctl", errno);
  return {};
}

std::span<const PollEvent> Poller::poll(base::Nanoseconds timeout) {
  std::array<epoll_event, kEventsMax> raw;
  const int count = pollKernel(descriptor_.get(), raw.data(), timeout);
  THESEUS_CHECK(count >= 0 || errno == EINTR, "epoll_wait must work");
  events_.clear();
  for (int i = 0; i < count; ++i) {
    const std::uint32_t flags = raw[static_cast<std::size_t>(i)].events;
    const bool hangUp = (flags & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    events_.push_back({.key = raw[static_cast<std::size_t>(i)].data.u64,
                       .readable = hangUp || (flags & EPOLLIN) != 0,
                       .writable = (flags & EPOLLOUT) != 0,
                       .hangUp = hangUp});
  }
  return events_;
}

}  // namespace theseus::drivers
