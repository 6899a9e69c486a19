#include "schedule/verify/verify.h"

#include <fmt/format.h>

#include "schedule/chunk_layout.h"
#include "schedule/verify/passes.h"
#include "schedule/verify/program.h"
#include "schedule/verify/report.h"
#include "schedule/verify/trace.h"

namespace theseus::schedule {
namespace {

using verifying::ExaminedSize;
using verifying::Report;

struct Examination {
  bool tailSynchronized = true;
  std::optional<Finding> unevenFinding;
  std::optional<Finding> pairwiseFinding;
};

/// Whether the plan also holds where a rank's messages keep no order with those of third ranks.
void examinePairwise(const verifying::RaceInput& shared, Examination& result) {
  if (result.pairwiseFinding || shared.program.schedule->rankCount() < 3) return;
  Report limits(1);
  const bool tail =
      verifying::checkRaces({shared.program, shared.trace, verifying::Delivery::kPairwise}, limits);
  result.tailSynchronized = result.tailSynchronized && (tail || !limits.empty());
  if (!limits.empty()) result.pairwiseFinding = std::move(limits).take().front();
}

/// The dynamic passes for one size and buffer mode, until one finds something.
void examine(const Schedule& schedule, const ExaminedSize& size, Report& report, Examination& result) {
  const auto program = verifying::buildProgram(schedule, size.size, size.inPlace);
  if (!program) {
    report.add({VerifyPass::kResources, "unresolvable", {}, std::nullopt, program.error().message});
    return;
  }
  verifying::checkBalance(*program, report);
  if (!report.empty()) return;
  const auto trace = verifying::runToEnd(*program, report);
  if (!report.empty()) return;
  const bool tailSynchronized = verifying::checkRaces({*program, trace}, report);
  result.tailSynchronized = result.tailSynchronized && tailSynchronized;
  if (!report.empty()) return;
  if (schedule.collective() != Collective::kCustom && schedule.collective() != Collective::kBarrier) {
    verifying::checkMeaning({*program, trace, !size.even}, report);
  }
  if (report.empty()) examinePairwise({*program, trace}, result);
}

/// Examines both classes of sizes: what fails for even chunks refuses the plan, what fails only for uneven
/// ones limits it.
Examination examineAll(const Schedule& schedule, Report& report) {
  Examination result;
  for (const ExaminedSize& size : verifying::examinedSizes(schedule)) {
    if (size.even || !size.evenExists) {
      examine(schedule, size, report, result);
      if (!report.empty()) return {false, std::nullopt, std::nullopt};
      continue;
    }
    if (result.unevenFinding) continue;
    Report limits(1);
    Examination uneven = result;
    examine(schedule, size, limits, uneven);
    if (limits.empty()) {
      result = std::move(uneven);
    } else {
      result.unevenFinding = std::move(limits).take().front();
    }
  }
  return result;
}

}  // namespace

std::string_view name(VerifyPass pass) {
  switch (pass) {
    case VerifyPass::kStructure:
      return "structure";
    case VerifyPass::kResources:
      return "resources";
    case VerifyPass::kDeadlock:
      return "deadlock";
    case VerifyPass::kRace:
      return "race";
    case VerifyPass::kMeaning:
      return "meaning";
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
    Examination examination = examineAll(schedule, report);
    verdict.tailSynchronized = examination.tailSynchronized;
    verdict.unevenFinding = std::move(examination.unevenFinding);
    verdict.pairwiseFinding = std::move(examination.pairwiseFinding);
    verdict.meaningChecked = schedule.collective() != Collective::kCustom;
  }
  verdict.findings = std::move(report).take();
  return verdict;
}

bool isEven(const Schedule& schedule, const MessageSize& size) {
  const auto layout = ChunkLayout::make(schedule, size);
  return layout && layout->uniform();
}

}  // namespace theseus::schedule
