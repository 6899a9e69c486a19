// The ranks of one library as the parent sees them: N worker processes that run each collective together on
// the parent's word. The word comes when all have their input ready, so a collective's time is the slowest
// rank's own measurement. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "demo_message.h"
#include "demo_process.h"
#include "theseus/result.h"

namespace theseus::demo {

/// One collective over all ranks.
struct CollectiveOutcome {
  std::uint64_t number = 0;
  std::uint64_t sequence = 0;
  double seconds = 0;    // the slowest rank
  std::string schedule;  // equal on all ranks (checked)
  std::uint64_t round = 0;
  double limitWaitSeconds = 0;  // the longest of any rank
  std::uint64_t wrong = 0;      // elements, over all ranks
  bool mixed = false;           // a link's rate changed while it ran
};

/// Something to do while a collective runs.
struct Midway {
  std::chrono::duration<double> after{0};
  std::function<Status()> action;
};

class DemoTeam {
 public:
  /// Starts all workers and waits until each is ready; bounded.
  static Result<DemoTeam> start(const std::vector<ProcessRequest>& requests);

  /// `midway` may be null.
  Result<CollectiveOutcome> run(std::uint64_t number, const Midway* midway);
  Status tell(int rank, const std::string& line);
  /// The library's own account, from rank 0.
  Result<WorkerMessage> status();
  int size() const { return static_cast<int>(workers_.size()); }

 private:
  Result<std::vector<WorkerMessage>> gather(const std::string& event, const Midway* midway);
  Status poll(std::chrono::duration<double> bound);
  Status tellAll(const std::string& line);

  std::vector<DemoProcess> workers_;
};

/// From now on Ctrl-C and SIGTERM end the run in order: whatever waits returns an error.
void catchInterrupts();

}  // namespace theseus::demo
