// `theseus run` with real processes: exit codes, deaths, signals, and that nothing is left behind. The ranks
// are shell scripts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

bool waitUntil(const std::function<bool()>& condition, std::chrono::seconds bound = 30s) {
  const auto deadline = Clock::now() + bound;
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Gone, or a zombie that only its new parent has still to collect.
bool ended(pid_t pid) {
  if (::kill(pid, 0) != 0) return true;
  const std::string stat = contents("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name = stat.rfind(')');
  return name == std::string::npos || stat.compare(name, 4, ") Z ") == 0;
}

/// One `theseus run` in the background, with its output in files of a folder of its own.
class Launcher {
 public:
  Launcher() {
    char folder[] = "/tmp/theseus-run-XXXXXX";
    folder_ = ::mkdtemp(folder);
  }
  ~Launcher() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }

  void start(const std::vector<std::string>& options, const std::string& script) {
    std::vector<std::string> words{THESEUS_PROGRAM, "run"};
    words.insert(words.end(), options.begin(), options.end());
    for (const char* word : {"--", "/bin/sh", "-c"}) words.push_back(word);
    words.push_back(script);
    pid_ = ::fork();
    if (pid_ != 0) return;
    const int out = ::open((folder_ + "/out").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    const int err = ::open((folder_ + "/err").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    ::setenv("FOLDER", folder_.c_str(), 1);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execv(arguments[0], arguments.data());
    ::_exit(126);
  }

  /// Exit code, or 1000 + signal; -1 when it does not end.
  int wait() {
    int status = 0;
    if (!waitUntil([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, 60s)) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  pid_t pid() const { return pid_; }
  std::string out() const { return contents(folder_ + "/out"); }
  std::string err() const { return contents(folder_ + "/err"); }
  /// Process numbers that the ranks wrote to files named pid.*, once there are `count`.
  std::vector<pid_t> pids(std::size_t count) const {
    std::vector<pid_t> found;
    waitUntil([&] {
      found.clear();
      for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
        if (entry.path().filename().string().rfind("pid.", 0) != 0) continue;
        const std::string text = contents(entry.path().string());
        if (!text.empty() && text.back() == '\n') found.push_back(std::stoi(text));
      }
      return found.size() >= count;
    });
    return found;
  }
  pid_t pidOfRank(int rank) const {
    std::string text;
    waitUntil([&] {
      return (text = contents(folder_ + "/pid." + std::to_string(rank))).size() > 1 && text.back() == '\n';
    });
    return std::stoi(text);
  }

 private:
  std::string folder_;
  pid_t pid_ = -1;
};

const char* const kNoteAndWait = "echo $$ > $FOLDER/pid.$RANK; while :; do sleep 0.05; done";

void expectAllEnded(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) EXPECT_TRUE(waitUntil([&] { return ended(pid); }, 10s)) << pid;
}

TEST(Run, RanksGetTheirEnvironmentAndSuccessIsZero) {
  Launcher launcher;
  launcher.start({"-n", "3", "--transport", "tcp"},
                 "echo "
                 "$RANK/$WORLD_SIZE/$LOCAL_RANK/$LOCAL_WORLD_SIZE/$MASTER_ADDR/$MASTER_PORT/"
                 "$THESEUS_TRANSPORT/$THESEUS_SECRET/$THESEUS_JOB");
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(launcher.err(), "");
  const std::string out = launcher.out();
  std::smatch first;
  ASSERT_TRUE(std::regex_search(
      out, first, std::regex("0/3/0/3/127\\.0\\.0\\.1/([0-9]+)/tcp/([0-9a-f]{32})/(run-[0-9]+)\n")))
      << out;
  for (const char* rank : {"1", "2"}) {
    const std::string line = std::string(rank) + "/3/" + rank + "/3/127.0.0.1/" + first[1].str() + "/tcp/" +
                             first[2].str() + "/" + first[3].str() + "\n";
    EXPECT_NE(out.find(line), std::string::npos) << out;
  }
}

TEST(Run, EachJobHasItsOwnSecret) {
  std::string secrets[2];
  for (std::string& secret : secrets) {
    Launcher launcher;
    launcher.start({"-n", "1"}, "echo $THESEUS_SECRET");
    EXPECT_EQ(launcher.wait(), 0);
    secret = launcher.out();
  }
  EXPECT_NE(secrets[0], secrets[1]);
}

TEST(Run, TheFirstFailureEndsTheOthersAndIsTheExitCode) {
  Launcher launcher;
  launcher.start({"-n", "4"},
                 "echo $$ > $FOLDER/pid.$RANK; if [ $RANK = 2 ]; then "
                 "while [ ! -s $FOLDER/pid.0 -o ! -s $FOLDER/pid.1 -o ! -s $FOLDER/pid.3 ]; do sleep 0.02; "
                 "done; exit 7; fi; sleep 100");
  const auto pids = launcher.pids(4);
  EXPECT_EQ(launcher.wait(), 7);
  EXPECT_TRUE(std::regex_search(
      launcher.err(), std::regex("rank 2 \\(pid [0-9]+\\) exited with code 7; stopping the other 3\n")))
      << launcher.err();
  expectAllEnded(pids);
}

TEST(Run, AKilledRankIsNamedWithItsSignal) {
  Launcher launcher;
  launcher.start({"-n", "3"}, kNoteAndWait);
  const auto pids = launcher.pids(3);
  ASSERT_EQ(pids.size(), 3u);
  ::kill(launcher.pidOfRank(1), SIGKILL);
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  EXPECT_TRUE(std::regex_search(launcher.err(), std::regex("rank 1 \\(pid [0-9]+\\) was ended by signal 9")))
      << launcher.err();
  expectAllEnded(pids);
}

TEST(Run, ARankThatIgnoresSigtermIsKilledAfterTheGrace) {
  Launcher launcher;
  launcher.start({"-n", "2", "--grace", "0.3"},
                 "trap '' TERM; echo $$ > $FOLDER/pid.$RANK; "
                 "if [ $RANK = 0 ]; then while [ ! -s $FOLDER/pid.1 ]; do sleep 0.02; done; exit 3; fi; "
                 "while :; do sleep 0.05; done");
  const auto pids = launcher.pids(2);
  EXPECT_EQ(launcher.wait(), 3);
  expectAllEnded(pids);
}

TEST(Run, AStoppedRankIsEndedToo) {
  Launcher launcher;
  launcher.start({"-n", "2"}, kNoteAndWait);
  const auto pids = launcher.pids(2);
  ::kill(launcher.pidOfRank(0), SIGSTOP);
  ::kill(launcher.pidOfRank(1), SIGKILL);
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  expectAllEnded(pids);
}

TEST(Run, InterruptAndTerminateArePassedOn) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Launcher launcher;
    launcher.start({"-n", "2"}, "trap 'echo got; exit 5' INT TERM; " + std::string(kNoteAndWait));
    const auto pids = launcher.pids(2);
    ::kill(launcher.pid(), signal);
    EXPECT_EQ(launcher.wait(), 128 + signal);
    EXPECT_EQ(launcher.out(), "got\ngot\n");
    expectAllEnded(pids);
  }
}

TEST(Run, TheSecondInterruptKills) {
  Launcher launcher;
  launcher.start({"-n", "2", "--grace", "1000"},
                 "trap 'echo got >> $FOLDER/seen' INT; " + std::string(kNoteAndWait));
  const auto pids = launcher.pids(2);
  ::kill(launcher.pid(), SIGINT);
  ASSERT_TRUE(waitUntil([&] { return launcher.err().find("passing") != std::string::npos; }));
  ::kill(launcher.pid(), SIGINT);
  EXPECT_EQ(launcher.wait(), 128 + SIGINT);
  expectAllEnded(pids);
}

TEST(Run, RanksDieWithTheLauncher) {
  Launcher launcher;
  launcher.start({"-n", "3"}, "trap '' HUP INT TERM; " + std::string(kNoteAndWait));
  const auto pids = launcher.pids(3);
  ASSERT_EQ(pids.size(), 3u);
  ::kill(launcher.pid(), SIGKILL);
  EXPECT_EQ(launcher.wait(), 1000 + SIGKILL);
  expectAllEnded(pids);
}

TEST(Run, WhatTheRanksStartedGoesToo) {
  Launcher launcher;
  launcher.start({"-n", "2"},
                 "sleep 300 & echo $! > $FOLDER/pid.child$RANK; setsid sh -c 'echo $$ > "
                 "$FOLDER/pid.daemon'$RANK'; exec sleep 300' & "
                 "while [ ! -s $FOLDER/pid.daemon$RANK ]; do sleep 0.02; done; exit 0");
  const auto pids = launcher.pids(4);
  ASSERT_EQ(pids.size(), 4u);
  EXPECT_EQ(launcher.wait(), 0);
  expectAllEnded(pids);
}

TEST(Run, OutputIsTaggedLineByLine) {
  Launcher launcher;
  launcher.start({"-n", "2", "--tag"}, "echo one; printf 'two\\nrest'; echo problem >&2");
  EXPECT_EQ(launcher.wait(), 0);
  const std::string out = launcher.out();
  for (const char* line : {"[0] one\n", "[1] one\n", "[0] two\n", "[0] rest\n", "[1] rest\n"})
    EXPECT_NE(out.find(line), std::string::npos) << out;
  EXPECT_NE(launcher.err().find("[1] problem\n"), std::string::npos);
}

TEST(Run, MuchOutputIsCompleteWhenTagged) {
  Launcher launcher;
  launcher.start({"-n", "2", "--tag"}, "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done");
  EXPECT_EQ(launcher.wait(), 0);
  const std::string out = launcher.out();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 6000);
  EXPECT_NE(out.find("[1] line 2999\n"), std::string::npos);
}

TEST(Run, AProgramThatIsNotThereIsOneClearLine) {
  Launcher launcher;
  launcher.start({"-n", "3", "--", "/nonexistent/program"}, "");
  EXPECT_EQ(launcher.wait(), 127);
  EXPECT_EQ(launcher.err(), "theseus run: cannot start /nonexistent/program: No such file or directory\n");
}

TEST(Run, WrongUsageIsTwo) {
  for (const auto& options : std::vector<std::vector<std::string>>{
           {"-n", "0"}, {"-n", "x"}, {"-n", "2", "--transport", "pigeon"}, {}}) {
    Launcher launcher;
    launcher.start(options, "exit 0");
    EXPECT_EQ(launcher.wait(), 2);
  }
}

}  // namespace
