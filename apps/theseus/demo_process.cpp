#include "demo_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace theseus::demo {
namespace {

constexpr std::size_t kMaxLineBytes = 16 << 20;

[[noreturn]] void becomeProgram(const ProcessRequest& request, pid_t parent, int input, int output) {
  // The parent may have died between fork and prctl: then nobody would send the signal any more.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(125);
  std::signal(SIGPIPE, SIG_DFL);
  if (request.namespaceDescriptor >= 0 && ::setns(request.namespaceDescriptor, CLONE_NEWNET) != 0) {
    ::dprintf(2, "%s: cannot enter its network namespace: %s\n", request.title.c_str(), std::strerror(errno));
    ::_exit(126);
  }
  for (const auto& [name, value] : request.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const auto& argument : request.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  if (::dup2(input, 0) >= 0 && ::dup2(output, 1) >= 0) ::execv(arguments[0], arguments.data());
  ::dprintf(2, "%s: cannot run %s: %s\n", request.title.c_str(), arguments[0], std::strerror(errno));
  ::_exit(127);
}

}  // namespace

Result<DemoProcess> DemoProcess::start(const ProcessRequest& request) {
  int down[2];
  int up[2];
  if (::pipe2(down, O_CLOEXEC) != 0)
    return fail(ErrorCode::kIo, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  Descriptor childInput(down[0]);
  Descriptor commands(down[1]);
  if (::pipe2(up, O_CLOEXEC) != 0)
    return fail(ErrorCode::kIo, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  Descriptor reports(up[0]);
  Descriptor childOutput(up[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    return fail(ErrorCode::kIo,
                fmt::format("cannot start {}: fork: {}", request.title, std::strerror(errno)));
  }
  if (child == 0) becomeProgram(request, parent, childInput.value(), childOutput.value());
  return DemoProcess(request.title, child, std::move(commands), std::move(reports));
}

DemoProcess::DemoProcess(std::string title, pid_t id, Descriptor commands, Descriptor reports)
    : title_(std::move(title)), id_(id), commands_(std::move(commands)), reports_(std::move(reports)) {}

DemoProcess::DemoProcess(DemoProcess&& other) noexcept
    : title_(std::move(other.title_)),
      id_(std::exchange(other.id_, -1)),
      commands_(std::move(other.commands_)),
      reports_(std::move(other.reports_)),
      unread_(std::move(other.unread_)) {}

DemoProcess::~DemoProcess() {
  if (id_ <= 0) return;
  ::kill(id_, SIGKILL);
  while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Status DemoProcess::send(const std::string& line) {
  const std::string text = line + "\n";
  const ssize_t written = ::write(commands_.value(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return {};
  return fail(ErrorCode::kAborted, fmt::format("{} takes no commands any more: {}", title_, howItEnded()));
}

Status DemoProcess::readSome() {
  char piece[65536];
  const ssize_t got = ::read(reports_.value(), piece, sizeof piece);
  if (got < 0 && errno == EINTR) return {};
  if (got <= 0)
    return fail(ErrorCode::kAborted, fmt::format("{} stopped reporting: {}", title_, howItEnded()));
  unread_.append(piece, static_cast<std::size_t>(got));
  if (unread_.size() <= kMaxLineBytes) return {};
  return fail(ErrorCode::kIo, fmt::format("{} wrote a line of more than {} bytes", title_, kMaxLineBytes));
}

std::optional<std::string> DemoProcess::nextLine() {
  const std::size_t end = unread_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return line;
}

std::string DemoProcess::howItEnded() {
  // It closed its output, so it is about to end; a bound all the same.
  int status = 0;
  for (int attempt = 0; attempt < 200; ++attempt) {
    const pid_t ended = ::waitpid(id_, &status, WNOHANG);
    if (ended == id_) {
      id_ = -1;
      if (WIFSIGNALED(status))
        return fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
      return fmt::format("it ended with exit code {}", WEXITSTATUS(status));
    }
    ::usleep(5000);
  }
  return "it still runs";
}

}  // namespace theseus::demo
