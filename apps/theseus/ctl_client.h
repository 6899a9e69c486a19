// Finds the control sockets of running ranks and asks them over HTTP. One thread; every call is bounded in
// time.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "theseus/result.h"

namespace theseus::cli {

/// Where a rank's control server listens.
struct ControlTarget {
  std::string socketPath;  // empty: TCP
  std::string host;
  int port = 0;
  std::string token;
  std::string job;
  int rank = -1;
};

struct ControlSelection {
  std::optional<std::string> job;
  std::optional<int> rank;
};

/// The ranks that fit, all of one job, lowest rank first, never empty. Sockets of dead processes are removed
/// on the way. Errors: no job runs (and where it was looked for), or several do and none was named.
Result<std::vector<ControlTarget>> findControlTargets(const ControlSelection& selection);

struct ControlRequest {
  std::string path;    // "/status"
  bool write = false;  // POST
  std::vector<std::pair<std::string, std::string>> parameters;
  std::optional<std::string> body;          // with write: this in place of the parameters
  std::chrono::milliseconds timeout{2500};  // the rank itself takes at most 2 s
};

/// The answer's body. Errors carry what the rank said.
Result<std::string> askControl(const ControlTarget& target, const ControlRequest& request);

}  // namespace theseus::cli
