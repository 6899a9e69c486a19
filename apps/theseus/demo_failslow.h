// Puts the fail-slow demonstration together: network or emulation, worker processes, rival, view, report. One
// thread.
#pragma once

#include <string>

#include "demo_scenario.h"

namespace theseus::demo {

struct FailSlowOptions {
  ScenarioOptions scenario;
  std::string jsonFile;  // empty: none
  std::string rival;     // "gloo" or empty
  bool emulate = false;
  bool plain = false;
  std::string workerProgram;  // another program that speaks the worker's protocol; tests
};

/// Exit code: 0 only if nothing was wrong and both swaps happened.
int runFailSlowDemo(const FailSlowOptions& options);

}  // namespace theseus::demo
