#include "run_supervisor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "base/hmac.h"
#include "drivers/posix/descriptor.h"
#include "run_output.h"
#include "runtime/control_server.h"

extern char** environ;

namespace theseus::cli {
namespace {

using Clock = std::chrono::steady_clock;
using drivers::FileDescriptor;

constexpr int kExitCannotStart = 127;

void say(const std::string& text) { std::fprintf(stderr, "theseus run: %s\n", text.c_str()); }

std::string randomSecret() {
  unsigned char bytes[16];
  base::fillRandom(bytes, sizeof(bytes));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

/// A port that nobody uses now. Should somebody take it before rank 0 does, the rendezvous moves on to the
/// next one.
int freePort() {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (!socket.valid() || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return 0;
  }
  return ntohs(address.sin_port);
}

sigset_t watchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&set, signal);
  return set;
}

/// Variables of the launcher's own environment, with those of the job put in or taken out.
class RankEnvironment {
 public:
  RankEnvironment() {
    for (char** entry = environ; *entry != nullptr; ++entry) lines_.emplace_back(*entry);
    // Of an outer launcher; they would lead the ranks astray.
    for (const char* name : {"TORCHELASTIC_RUN_ID", "THESEUS_PORT", "THESEUS_BIND_ADDRESS"}) remove(name);
  }
  void set(const std::string& name, const std::string& value) {
    remove(name);
    lines_.push_back(name + "=" + value);
  }
  std::vector<char*> pointers() {
    std::vector<char*> result;
    for (std::string& line : lines_) result.push_back(line.data());
    result.push_back(nullptr);
    return result;
  }

 private:
  void remove(const std::string& name) {
    std::erase_if(lines_,
                  [&](const std::string& line) { return line.compare(0, name.size() + 1, name + "=") == 0; });
  }
  std::vector<std::string> lines_;
};

struct RankProcess {
  pid_t pid = -1;
  bool running = false;
  std::vector<std::unique_ptr<TaggedOutput>> outputs;
};

class Supervisor {
 public:
  explicit Supervisor(const RunOptions& options)
      : options_(options), ranks_(static_cast<std::size_t>(options.ranks)) {}
  int run();

 private:
  struct Pipe {
    FileDescriptor read;
    FileDescriptor write;
  };
  bool prepare();
  bool startAll();
  bool startRank(int rank);
  [[noreturn]] void becomeRank(int rank, const Pipe& failure, const std::vector<Pipe>& outputs,
                               const std::vector<char*>& environment);
  bool makePipe(Pipe& pipe);
  void step();
  void takeSignals();
  void reap();
  void note(int rank, const siginfo_t& info);
  void stopOthers(int signal);
  void signalAll(int signal);
  bool anyRunning() const;
  void cleanUp();
  void endAdopted();

  RunOptions options_;
  std::vector<RankProcess> ranks_;
  FileDescriptor signals_;
  sigset_t formerMask_{};
  RankEnvironment environment_;
  pid_t self_ = ::getpid();
  std::optional<int> exitCode_;  // decided by the first failure or signal
  bool stopping_ = false;
  std::optional<Clock::time_point> killAt_;
};

bool Supervisor::prepare() {
  if (options_.port == 0) options_.port = freePort();
  if (options_.port == 0) {
    say("no TCP port of 127.0.0.1 is free");
    return false;
  }
  if (options_.job.empty()) options_.job = fmt::format("run-{}", self_);
  environment_.set("WORLD_SIZE", std::to_string(options_.ranks));
  environment_.set("LOCAL_WORLD_SIZE", std::to_string(options_.ranks));
  environment_.set("MASTER_ADDR", "127.0.0.1");
  environment_.set("MASTER_PORT", std::to_string(options_.port));
  environment_.set("THESEUS_SECRET", randomSecret());
  environment_.set("THESEUS_JOB", options_.job);
  if (!options_.transport.empty()) environment_.set("THESEUS_TRANSPORT", options_.transport);

  const sigset_t watched = watchedSignals();
  ::sigprocmask(SIG_BLOCK, &watched, &formerMask_);
  ::signal(SIGPIPE, SIG_IGN);  // a reader of our output that goes away must not end the job
  signals_ = FileDescriptor(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  // Whatever a rank starts and leaves alone comes to us, so that we can end it.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (signals_.valid()) return true;
  say(fmt::format("cannot watch for signals: {}", std::strerror(errno)));
  return false;
}

bool Supervisor::makePipe(Pipe& pipe) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    say(fmt::format("cannot create a pipe: {}", std::strerror(errno)));
    return false;
  }
  pipe.read = FileDescriptor(ends[0]);
  pipe.write = FileDescriptor(ends[1]);
  return true;
}

bool Supervisor::startRank(int rank) {
  RankProcess& process = ranks_[static_cast<std::size_t>(rank)];
  Pipe failure;
  std::vector<Pipe> outputs(options_.tag ? 2 : 0);
  if (!makePipe(failure) ||
      !std::all_of(outputs.begin(), outputs.end(), [&](Pipe& pipe) { return makePipe(pipe); }))
    return false;
  environment_.set("RANK", std::to_string(rank));
  environment_.set("LOCAL_RANK", std::to_string(rank));
  const std::vector<char*> environment = environment_.pointers();
  const pid_t pid = ::fork();
  if (pid < 0) {
    say(fmt::format("cannot start rank {}: {}", rank, std::strerror(errno)));
    return false;
  }
  if (pid == 0) becomeRank(rank, failure, outputs, environment);
  ::setpgid(pid, pid);  // here too: whoever comes first, we may signal the group from now on
  process.pid = pid;
  process.running = true;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    ::fcntl(outputs[i].read.get(), F_SETFL, O_NONBLOCK);
    process.outputs.push_back(std::make_unique<TaggedOutput>(std::move(outputs[i].read),
                                                             i == 0 ? STDOUT_FILENO : STDERR_FILENO, rank));
  }
  failure.write.close();
  int error = 0;
  // Ends at once: by exec (the other end closes) or by the error.
  ssize_t count = 0;
  do count = ::read(failure.read.get(), &error, sizeof(error));
  while (count < 0 && errno == EINTR);
  if (count != static_cast<ssize_t>(sizeof(error))) return true;
  say(fmt::format("cannot start {}: {}", options_.command.front(), std::strerror(error)));
  exitCode_ = kExitCannotStart;
  return false;
}

/// The child between fork and exec.
void Supervisor::becomeRank(int, const Pipe& failure, const std::vector<Pipe>& outputs,
                            const std::vector<char*>& environment) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != self_) ::_exit(kExitCannotStart);  // the launcher died before the line above
  ::setpgid(0, 0);
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &formerMask_, nullptr);
  const int empty = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (empty >= 0) ::dup2(empty, STDIN_FILENO);
  if (!outputs.empty()) {
    ::dup2(outputs[0].write.get(), STDOUT_FILENO);
    ::dup2(outputs[1].write.get(), STDERR_FILENO);
  }
  std::vector<char*> arguments;
  for (const std::string& argument : options_.command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  ::execvpe(arguments[0], arguments.data(), environment.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(failure.write.get(), &error, sizeof(error));
  ::_exit(kExitCannotStart);
}

bool Supervisor::startAll() {
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (startRank(rank)) continue;
    if (!exitCode_) exitCode_ = 1;
    stopOthers(SIGKILL);
    return false;
  }
  return true;
}

bool Supervisor::anyRunning() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const RankProcess& process) { return process.running; });
}

void Supervisor::signalAll(int signal) {
  for (const RankProcess& process : ranks_) {
    if (process.running) ::kill(-process.pid, signal);
  }
}

void Supervisor::stopOthers(int signal) {
  stopping_ = true;
  signalAll(signal);
  if (signal != SIGKILL) signalAll(SIGCONT);  // a stopped process takes no SIGTERM
  killAt_ = Clock::now() + options_.grace;
}

void Supervisor::takeSignals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (!exitCode_) exitCode_ = 128 + signal;
    if (stopping_) {
      signalAll(SIGKILL);  // asked twice
    } else {
      say(fmt::format("passing {} on to the ranks", ::strsignal(signal)));
      stopOthers(signal);
    }
  }
}

void Supervisor::note(int rank, const siginfo_t& info) {
  const bool killed = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
  if ((!killed && info.si_status == 0) || exitCode_) return;
  exitCode_ = killed ? 128 + info.si_status : info.si_status;
  const auto left =
      std::count_if(ranks_.begin(), ranks_.end(), [](const RankProcess& process) { return process.running; });
  const std::string how =
      killed ? fmt::format("was ended by signal {} ({})", info.si_status, ::strsignal(info.si_status))
             : fmt::format("exited with code {}", info.si_status);
  say(fmt::format("rank {} (pid {}) {}{}", rank, info.si_pid, how,
                  left > 0 ? fmt::format("; stopping the other {}", left) : ""));
  if (left > 0) stopOthers(SIGTERM);
}

void Supervisor::reap() {
  struct Ended {
    int rank;
    siginfo_t info;
  };
  std::vector<Ended> ended;
  while (true) {
    siginfo_t info{};
    // Looked at first and collected afterwards: as long as it is not collected its number means this process
    // group and no other.
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].pid != info.si_pid) continue;
      ::kill(-info.si_pid, SIGKILL);  // a rank is over when its process is, with all that it started
      ranks_[rank].running = false;
      ended.push_back({static_cast<int>(rank), info});
    }
    ::waitpid(info.si_pid, nullptr, 0);
  }
  // The ranks that lose a peer fail too: of those that ended together, the one that was killed is the cause.
  std::stable_sort(ended.begin(), ended.end(), [](const Ended& left, const Ended& right) {
    return (left.info.si_code != CLD_EXITED) > (right.info.si_code != CLD_EXITED);
  });
  for (const Ended& one : ended) note(one.rank, one.info);
}

void Supervisor::step() {
  std::vector<pollfd> entries{{signals_.get(), POLLIN, 0}};
  std::vector<TaggedOutput*> outputs;
  for (RankProcess& process : ranks_) {
    for (auto& output : process.outputs) {
      if (!output->open()) continue;
      entries.push_back({output->source(), POLLIN, 0});
      outputs.push_back(output.get());
    }
  }
  int timeout = -1;  // signals end the wait: of the ranks, or from whoever started us
  if (killAt_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*killAt_ - Clock::now()).count();
    timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
  }
  (void)::poll(entries.data(), entries.size(), timeout);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (entries[i + 1].revents != 0) outputs[i]->pump();
  }
  takeSignals();
  reap();
  if (killAt_ && Clock::now() >= *killAt_) {
    signalAll(SIGKILL);
    killAt_ = Clock::now() + options_.grace;
  }
}

/// Ends what the ranks had started outside their process groups; as orphans these are our children now.
void Supervisor::endAdopted() {
  const std::string list = fmt::format("/proc/self/task/{}/children", self_);
  for (int attempt = 0; attempt < 100; ++attempt) {  // one that is ended may hand us its own children
    std::ifstream file(list);
    const std::vector<pid_t> children{std::istream_iterator<pid_t>(file), std::istream_iterator<pid_t>()};
    if (children.empty()) return;
    for (const pid_t child : children) ::kill(child, SIGKILL);
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  }
}

void Supervisor::cleanUp() {
  endAdopted();
  for (RankProcess& process : ranks_) {
    for (auto& output : process.outputs) output->finish();
  }
  runtime::removeDeadSockets(options_.job);
  ::sigprocmask(SIG_SETMASK, &formerMask_, nullptr);
}

int Supervisor::run() {
  if (!prepare()) return 1;
  startAll();
  while (anyRunning()) step();
  cleanUp();
  return exitCode_.value_or(0);
}

}  // namespace

int runJob(const RunOptions& options) { return Supervisor(options).run(); }

}  // namespace theseus::cli
