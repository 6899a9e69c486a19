#include "bench_launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime/environment.h"

namespace theseus::cli {
namespace {

/// A port that is free now; rank 0 takes it a moment later.
Result<int> freePort() {
  const int socketDescriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool found = socketDescriptor >= 0 &&
                     bind(socketDescriptor, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     getsockname(socketDescriptor, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  if (socketDescriptor >= 0) close(socketDescriptor);
  if (!found) return fail(ErrorCode::kIo, "no free port on 127.0.0.1");
  return ntohs(address.sin_port);
}

std::string randomSecret() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return fmt::format("{}", getpid());
  std::string text;
  for (unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

[[noreturn]] void runChild(const CommunicatorOptions& options, pid_t parent,
                           const std::function<int(const CommunicatorOptions&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent ended before the line above
  const int code = body(options);
  std::fflush(nullptr);
  _exit(code);
}

/// Waits for all; at the first failure ends the rest.
int waitAll(std::vector<pid_t> children) {
  int failure = 0;
  while (!children.empty()) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended < 0) break;
    std::erase(children, ended);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code == 0 || failure != 0) continue;
    failure = code;
    for (pid_t child : children) kill(child, SIGTERM);
  }
  return failure;
}

}  // namespace

Result<int> runRanks(int ranks, CommunicatorOptions options,
                     const std::function<int(const CommunicatorOptions&)>& body) {
  if (std::getenv("RANK") != nullptr) {
    auto environment = runtime::optionsFromEnvironment();
    if (!environment) return fail(environment.error());
    environment->transport = options.transport;
    environment->schedule = options.schedule;
    return body(*environment);
  }
  auto port = freePort();
  if (!port) return fail(port.error());
  options.size = ranks;
  options.masterPort = *port;
  options.secret = randomSecret();
  const pid_t parent = getpid();
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (options.rank = 0; options.rank < ranks; ++options.rank) {
    const pid_t child = fork();
    if (child == 0) runChild(options, parent, body);
    if (child < 0) {
      for (pid_t started : children) kill(started, SIGKILL);
      waitAll(children);
      return fail(ErrorCode::kIo, "cannot start another process");
    }
    children.push_back(child);
  }
  return waitAll(std::move(children));
}

}  // namespace theseus::cli
