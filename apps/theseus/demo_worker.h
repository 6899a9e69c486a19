// One rank of the demonstration: a process of its own that runs the stream through theseus::Communicator.
// Started by the parent.
#pragma once

#include <cstddef>
#include <string>

namespace theseus::demo {

struct WorkerOptions {
  int rank = 0;
  int size = 1;
  std::size_t bytes = 0;
  std::string masterAddress = "127.0.0.1";
  int masterPort = 29500;
  std::string bindAddress;
  double emulatedLinkBytesPerSecond = 0;
  std::string schedule;  // fixed schedule instead of the policy's; empty = policy
};

/// The job's secret reaches the worker through this variable, not through its arguments, which anybody can
/// read.
inline constexpr const char* kSecretVariable = "THESEUS_DEMO_SECRET";

/// Exit code of the process.
int runWorker(const WorkerOptions& options);

}  // namespace theseus::demo
