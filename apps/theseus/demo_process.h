// A child process that is spoken to in lines: commands on its standard input, reports from its standard
// output. It dies with its parent (PR_SET_PDEATHSIG), whatever ends the parent. Owned by the demonstration's
// parent; one thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "demo_network.h"
#include "theseus/result.h"

namespace theseus::demo {

struct ProcessRequest {
  std::string title;                                             // for errors: "rank 3"
  std::vector<std::string> arguments;                            // [0] is the program's path
  std::vector<std::pair<std::string, std::string>> environment;  // added to the parent's
  int namespaceDescriptor = -1;  // network namespace to run in; -1 = the parent's
};

class DemoProcess {
 public:
  static Result<DemoProcess> start(const ProcessRequest& request);
  /// Kills and reaps the child if it still runs.
  ~DemoProcess();
  DemoProcess(DemoProcess&& other) noexcept;
  DemoProcess& operator=(DemoProcess&& other) = delete;

  Status send(const std::string& line);
  int reportDescriptor() const { return reports_.value(); }
  /// Reads what is there (the descriptor must be readable). An error when the child has closed its output:
  /// says how it ended.
  Status readSome();
  /// The next complete line, if one has been read.
  std::optional<std::string> nextLine();
  pid_t id() const { return id_; }

 private:
  DemoProcess(std::string title, pid_t id, Descriptor commands, Descriptor reports);
  std::string howItEnded();

  std::string title_;
  pid_t id_ = -1;
  Descriptor commands_;
  Descriptor reports_;
  std::string unread_;
};

}  // namespace theseus::demo
