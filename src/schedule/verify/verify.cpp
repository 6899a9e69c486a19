#include "schedule/verify/verify.h"

#include <fmt/format.h>

#include "schedule/verify/passes.h"
#include "schedule/verify/program.h"
#include "schedule/verify/report.h"
#include "schedule/verify/trace.h"

namespace theseus::schedule {
namespace {

using verifying::Report;

/// The dynamic passes for one size and buffer mode. Returns whether the tail is synchronized.
bool examine(const Schedule& schedule, const MessageSize& size, bool inPlace, Report& report) {
  const auto program = verifying::buildProgram(schedule, size, inPlace);
  if (!program) {
    report.add({VerifyPass::kResources, "unresolvable", {}, std::nullopt, program.error().message});
    return false;
  }
  verifying::checkBalance(*program, report);
  if (!report.empty()) return false;
  const auto trace = verifying::runToEnd(*program, report);
  if (!report.empty()) return false;
  const bool tailSynchronized = verifying::checkRaces(*program, trace, report);
  if (!report.empty()) return false;
  if (schedule.collective() != Collective::kCustom && schedule.collective() != Collective::kBarrier) {
    verifying::checkMeaning(*program, trace, report);
  }
  return tailSynchronized;
}

bool examineAll(const Schedule& schedule, Report& report) {
  bool tailSynchronized = true;
  for (const bool inPlace : {false, true}) {
    if (inPlace && schedule.bufferMode == BufferMode::kOutOfPlace) continue;
    if (!inPlace && schedule.bufferMode == BufferMode::kInPlace) continue;
    for (const MessageSize& size : verifying::examinedSizes(schedule)) {
      tailSynchronized = examine(schedule, size, inPlace, report) && tailSynchronized;
      if (!report.empty()) return false;
    }
  }
  return tailSynchronized;
}

}  // namespace

std::string_view name(VerifyPass pass) {
  switch (pass) {
    case VerifyPass::kStructure: return "structure";
    case VerifyPass::kResources: return "resources";
    case VerifyPass::kDeadlock: return "deadlock";
    case VerifyPass::kRace: return "race";
    case VerifyPass::kMeaning: return "meaning";
  }
  return "unknown";
}

std::string toString(const OpPlace& place) {
  if (place.rank < 0) return "the plan";
  std::string text = fmt::format("rank {}", place.rank);
  if (place.threadBlock >= 0) text += fmt::format(" block {}", place.threadBlock);
  if (place.op >= 0) text += fmt::format(" op {}", place.op);
  if (place.inner >= 0) text += fmt::format(".{}", place.inner);
  return text;
}

std::string toString(const Finding& finding) {
  std::string text = fmt::format("{}: {}: {}", name(finding.pass), toString(finding.place), finding.kind);
  if (finding.second) text += fmt::format(" with {}", toString(*finding.second));
  return text + ": " + finding.message;
}

Verdict verify(const Schedule& schedule, const VerifyOptions& options) {
  Verdict verdict;
  verdict.usesSwitch = schedule.usesSwitch();
  Report report(options.maxFindings == 0 ? 1 : options.maxFindings);
  verifying::checkStructure(schedule, options, report);
  if (report.empty()) verifying::checkResources(schedule, report);
  if (report.empty()) {
    verdict.tailSynchronized = examineAll(schedule, report);
    verdict.meaningChecked = schedule.collective() != Collective::kCustom;
  }
  verdict.findings = std::move(report).take();
  return verdict;
}

}  // namespace theseus::schedule
