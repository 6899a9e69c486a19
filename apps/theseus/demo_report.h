// The end of the demonstration in figures: a table for people, JSON for programs. Pure functions on the
// scenario's result.
#pragma once

#include <string>

#include "demo_scenario.h"

namespace theseus::demo {

struct ReportContext {
  ScenarioOptions options;
  bool emulated = false;
  double bytesPerSecond = 0;      // what TCP carries over a healthy link: B of the bound
  std::string bytesPerSecondHow;  // "measured", ...
  std::string rivalName;          // empty: no rival ran
};

/// Least time of any allReduce of `bytes` when one rank's link is `slowdown` times slower than the others' (1
/// = none), both ways, and a healthy rank may serve a slow and a fast peer at once: max(2l(p-1)/(l(p-1)+1),
/// l) n/B.
double boundSeconds(const ReportContext& context, double slowdown);

std::string tableText(const ReportContext& context, const ScenarioResult& result);
std::string jsonText(const ReportContext& context, const ScenarioResult& result);

}  // namespace theseus::demo
