// Starts the ranks of a job on this host, watches them, and leaves nothing behind: the first failure ends the
// others, signals are passed on, and the ranks die with the launcher. One call, on the main thread of a
// process that has no other threads or children.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace theseus::cli {

struct RunOptions {
  int ranks = 1;
  std::string transport;                  // empty = as in the environment
  int port = 0;                           // MASTER_PORT; 0 = one that is free
  std::string job;                        // THESEUS_JOB; empty = "run-PID"
  bool tag = false;                       // each line of output begins with [rank]
  std::chrono::milliseconds grace{5000};  // between SIGTERM and SIGKILL
  std::vector<std::string> command;
};

/// Returns the exit code for the launcher: 0, the code of the first rank that failed, or 128 + the signal
/// that ended it (or the launcher).
int runJob(const RunOptions& options);

}  // namespace theseus::cli
