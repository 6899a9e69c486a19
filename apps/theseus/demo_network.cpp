#include "demo_network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace theseus::demo {
namespace {

std::string systemError() { return std::strerror(errno); }

/// Opens the calling thread's namespace.
Result<Descriptor> openOwnNamespace() {
  Descriptor descriptor(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (descriptor.value() < 0) {
    return fail(ErrorCode::kIo,
                fmt::format("cannot open /proc/thread-self/ns/net: {}; is /proc mounted?", systemError()));
  }
  return descriptor;
}

/// A new namespace that only the returned descriptor keeps alive.
Result<Descriptor> makeNamespace() {
  auto home = openOwnNamespace();
  if (!home) return home;
  if (::unshare(CLONE_NEWNET) != 0) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("cannot make a network namespace: {}; run as root or use --emulate", systemError()));
  }
  auto made = openOwnNamespace();
  THESEUS_CHECK(::setns(home->value(), CLONE_NEWNET) == 0,
                "the way back to the own network namespace is lost");
  return made;
}

struct Pipe {
  Descriptor read;
  Descriptor write;
};

Result<Pipe> makePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return fail(ErrorCode::kIo, fmt::format("cannot make a pipe: {}", systemError()));
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

[[noreturn]] void becomeTool(int namespaceDescriptor, const char* tool, int input, int output) {
  const char* path = std::getenv("PATH");
  const std::string search = std::string(path == nullptr ? "" : path) + ":/usr/sbin:/sbin:/usr/bin:/bin";
  ::setenv("PATH", search.c_str(), 1);
  if (::setns(namespaceDescriptor, CLONE_NEWNET) == 0 && ::dup2(input, 0) >= 0 && ::dup2(output, 1) >= 0 &&
      ::dup2(output, 2) >= 0) {
    ::execlp(tool, tool, "-batch", "-", nullptr);
    ::dprintf(2, "cannot run %s: %s; install iproute2", tool, std::strerror(errno));
  }
  ::_exit(127);
}

std::string readAll(int descriptor) {
  std::string text;
  char piece[512];
  while (true) {
    const ssize_t got = ::read(descriptor, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(piece, static_cast<std::size_t>(got));
  }
}

/// Runs `ip` or `tc` inside a namespace with its commands on standard input (they fit a pipe: a few hundred
/// bytes).
Status runTool(int namespaceDescriptor, const char* tool, const std::string& commands) {
  auto input = makePipe();
  if (!input) return fail(input.error());
  auto output = makePipe();
  if (!output) return fail(output.error());
  if (::write(input->write.value(), commands.data(), commands.size()) !=
      static_cast<ssize_t>(commands.size())) {
    return fail(ErrorCode::kIo, fmt::format("cannot hand its commands to {}: {}", tool, systemError()));
  }
  const pid_t child = ::fork();
  if (child < 0) return fail(ErrorCode::kIo, fmt::format("cannot fork for {}: {}", tool, systemError()));
  if (child == 0) becomeTool(namespaceDescriptor, tool, input->read.value(), output->write.value());
  input->write.reset();
  output->write.reset();
  const std::string printed = readAll(output->read.value());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status == 0) return {};
  return fail(ErrorCode::kIo, fmt::format("{} failed in the demonstration's namespace: {} (commands: {})",
                                          tool, printed, commands));
}

std::string shape(const std::string& device, double megabitsPerSecond) {
  // burst: 0.65 ms at 1 Gbit/s, two timer ticks of a 4 ms tick are bridged by the limit; goodput of TCP is
  // then 95.6 % of the rate.
  return fmt::format("qdisc replace dev {} root tbf rate {}kbit burst 80kb limit 512kb\n", device,
                     static_cast<long>(megabitsPerSecond * 1000));
}

}  // namespace

Descriptor::~Descriptor() { reset(); }

Descriptor::Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    value_ = std::exchange(other.value_, -1);
  }
  return *this;
}

void Descriptor::reset() {
  if (value_ >= 0) ::close(value_);
  value_ = -1;
}

Result<std::unique_ptr<DemoNetwork>> DemoNetwork::create(int ranks, double megabitsPerSecond) {
  if (ranks < 1 || ranks > kMaxRanks) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} ranks: the demonstration's network takes 1 to {}", ranks, kMaxRanks));
  }
  std::unique_ptr<DemoNetwork> network(new DemoNetwork());
  auto hub = makeNamespace();
  if (!hub) return fail(hub.error());
  network->hub_ = std::move(*hub);
  THESEUS_TRY(runTool(network->hub_.value(), "ip", "link add bridge0 type bridge\nlink set bridge0 up\n"));
  for (int rank = 0; rank < ranks; ++rank) {
    THESEUS_TRY(network->joinRank(rank));
    THESEUS_TRY(network->setRate(rank, megabitsPerSecond));
  }
  return network;
}

Status DemoNetwork::joinRank(int rank) {
  auto made = makeNamespace();
  if (!made) return fail(made.error());
  // `ip` takes a path wherever it takes the name of a namespace; the pair is born with its far end already
  // inside.
  THESEUS_TRY(runTool(hub_.value(), "ip",
                      fmt::format("link add port{0} type veth peer name eth0 netns /proc/{1}/fd/{2}\n"
                                  "link set port{0} master bridge0 up\n",
                                  rank, ::getpid(), made->value())));
  THESEUS_TRY(
      runTool(made->value(), "ip",
              fmt::format("link set lo up\naddress add {}/24 dev eth0\nlink set eth0 up\n", address(rank))));
  ranks_.push_back(std::move(*made));
  return {};
}

Status DemoNetwork::setRate(int rank, double megabitsPerSecond) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= ranks_.size() || megabitsPerSecond < 0.01) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("no link of rank {} with {} Mbit/s", rank, megabitsPerSecond));
  }
  THESEUS_TRY(runTool(hub_.value(), "tc", shape(fmt::format("port{}", rank), megabitsPerSecond)));
  return runTool(namespaceDescriptor(rank), "tc", shape("eth0", megabitsPerSecond));
}

std::string DemoNetwork::address(int rank) const { return fmt::format("10.77.0.{}", rank + 1); }

bool canMakeNamespaces() {
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child == 0) ::_exit(::unshare(CLONE_NEWNET) == 0 ? 0 : 1);
  int status = 1;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

}  // namespace theseus::demo
