#include "demo_link_probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace theseus::demo {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kProbePort = 29499;
/// The stream's start (slow start, full bucket) is not counted.
constexpr double kIgnoredSeconds = 0.1;
constexpr double kCountedSeconds = 0.5;
constexpr int kReceiveTimeoutSeconds = 5;

sockaddr_in socketAddress(const std::string& text) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(kProbePort);
  ::inet_pton(AF_INET, text.c_str(), &address.sin_addr);
  return address;
}

/// Runs in a child: connects (the listener exists already) and writes until the receiver has had enough.
[[noreturn]] void sendStream(int namespaceDescriptor, const std::string& receiver, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent || ::setns(namespaceDescriptor, CLONE_NEWNET) != 0) ::_exit(1);
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = socketAddress(receiver);
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) ::_exit(1);
  const std::vector<char> piece(262144);
  while (::send(connection, piece.data(), piece.size(), MSG_NOSIGNAL) > 0) {
  }
  ::_exit(0);
}

/// A listener inside the namespace; sockets stay in the namespace they were made in.
Result<Descriptor> listenIn(int namespaceDescriptor, const std::string& where) {
  Descriptor home(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (home.value() < 0 || ::setns(namespaceDescriptor, CLONE_NEWNET) != 0) {
    return fail(ErrorCode::kIo, fmt::format("cannot enter a rank's namespace: {}", std::strerror(errno)));
  }
  Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  THESEUS_CHECK(::setns(home.value(), CLONE_NEWNET) == 0,
                "the way back to the own network namespace is lost");
  const sockaddr_in address = socketAddress(where);
  const timeval bound{kReceiveTimeoutSeconds, 0};
  const int on = 1;
  ::setsockopt(listener.value(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(listener.value(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
  if (::bind(listener.value(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.value(), 1) != 0) {
    return fail(ErrorCode::kIo, fmt::format("cannot listen at {}: {}", where, std::strerror(errno)));
  }
  return listener;
}

Result<double> receiveStream(int listener) {
  Descriptor connection(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.value() < 0) return fail(ErrorCode::kTimeout, "the link probe's sender did not come");
  const timeval bound{kReceiveTimeoutSeconds, 0};
  ::setsockopt(connection.value(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
  std::vector<char> piece(262144);
  const auto begin = SteadyClock::now();
  auto countedFrom = begin;
  double bytes = 0;
  while (true) {
    const ssize_t got = ::recv(connection.value(), piece.data(), piece.size(), 0);
    if (got <= 0)
      return fail(ErrorCode::kTransport, fmt::format("the link probe broke off: {}", std::strerror(errno)));
    const auto now = SteadyClock::now();
    if (std::chrono::duration<double>(now - begin).count() < kIgnoredSeconds) {
      countedFrom = now;
      continue;
    }
    bytes += static_cast<double>(got);
    const double counted = std::chrono::duration<double>(now - countedFrom).count();
    if (counted >= kCountedSeconds) return bytes / counted;
  }
}

}  // namespace

Result<double> measureLink(const DemoNetwork& network, int from, int to) {
  auto listener = listenIn(network.namespaceDescriptor(to), network.address(to));
  if (!listener) return fail(listener.error());
  const pid_t parent = ::getpid();
  const pid_t sender = ::fork();
  if (sender < 0)
    return fail(ErrorCode::kIo, fmt::format("cannot fork for the link probe: {}", std::strerror(errno)));
  if (sender == 0) sendStream(network.namespaceDescriptor(from), network.address(to), parent);
  auto rate = receiveStream(listener->value());
  ::kill(sender, SIGKILL);
  while (::waitpid(sender, nullptr, 0) < 0 && errno == EINTR) {
  }
  return rate;
}

}  // namespace theseus::demo
