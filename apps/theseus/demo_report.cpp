#include "demo_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "demo_message.h"
#include "demo_view.h"

namespace theseus::demo {
namespace {

struct Row {
  std::string name;
  std::string schedule;
  std::size_t collectives = 0;
  double seconds = 0;
  double bound = 0;
  double rivalSeconds = 0;  // 0: none
};

double slowdownIn(const ReportContext& context, const std::string& phase) {
  const bool degraded = phase.rfind("degraded", 0) == 0;
  return degraded ? context.options.megabitsPerSecond / context.options.slowMegabitsPerSecond : 1.0;
}

const Phase* rivalOf(const ScenarioResult& result, const std::string& phase) {
  const std::string wanted = phase.substr(0, phase.find('-'));
  for (const Phase& rival : result.rivalPhases) {
    if (rival.name == wanted) return &rival;
  }
  return nullptr;
}

/// The phase's last schedule: a phase begins with a swap and may see a finer one.
std::string scheduleOf(const Phase& phase) {
  return phase.outcomes.empty() ? "" : phase.outcomes.back().schedule;
}

std::vector<Row> makeRows(const ReportContext& context, const ScenarioResult& result) {
  std::vector<Row> rows;
  for (const Phase& phase : result.phases) {
    if (phase.outcomes.empty()) continue;
    Row row;
    row.name = phase.name;
    row.schedule = scheduleOf(phase);
    row.collectives = phase.outcomes.size();
    row.seconds = medianSeconds(phase);
    row.bound = boundSeconds(context, slowdownIn(context, phase.name));
    if (const Phase* rival = rivalOf(result, phase.name)) row.rivalSeconds = medianSeconds(*rival);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string phaseJson(const ReportContext& context, const Row& row) {
  return fmt::format(
      R"({{"name":{},"schedule":{},"p50_ms":{:.3f},"busbw_gbps":{:.4f},"collectives":{},"bound_ms":{:.3f}}})",
      quoteJson(row.name), quoteJson(row.schedule), row.seconds * 1e3,
      busBandwidth(context.options.bytes, context.options.ranks, row.seconds), row.collectives,
      row.bound * 1e3);
}

std::string swapJson(const ObservedSwap& swap) {
  return fmt::format(
      R"({{"from":{},"to":{},"reason":{},"detect_collectives":{},"stall_us":{:.1f},"sequence":{}}})",
      quoteJson(swap.from), quoteJson(swap.to), quoteJson(swap.reason), swap.detectCollectives,
      swap.stallSeconds * 1e6, swap.sequence);
}

std::string rivalJson(const ReportContext& context, const ScenarioResult& result) {
  std::vector<std::string> phases;
  for (const Phase& phase : result.rivalPhases) {
    const double seconds = medianSeconds(phase);
    phases.push_back(fmt::format(
        R"({{"name":{},"schedule":{},"p50_ms":{:.3f},"busbw_gbps":{:.4f},"collectives":{}}})",
        quoteJson(phase.name), quoteJson(scheduleOf(phase)), seconds * 1e3,
        busBandwidth(context.options.bytes, context.options.ranks, seconds), phase.outcomes.size()));
  }
  return fmt::format(R"({{"wrong":{},"phases":[{}]}})", result.rivalWrong, fmt::join(phases, ","));
}

}  // namespace

double boundSeconds(const ReportContext& context, double slowdown) {
  const double others = context.options.ranks - 1;
  const double factor = std::max(2 * slowdown * others / (slowdown * others + 1), slowdown);
  return factor * static_cast<double>(context.options.bytes) / context.bytesPerSecond;
}

std::string tableText(const ReportContext& context, const ScenarioResult& result) {
  const bool rival = !context.rivalName.empty();
  std::string text = fmt::format("\n{:<16} {:>4} {:>9} {:>9} {:>9} {:>7}", "phase", "n", "p50 ms", "busbw",
                                 "bound ms", "ratio");
  if (rival) text += fmt::format(" {:>11} {:>8}", context.rivalName + " ms", "speed-up");
  text += "  schedule\n";
  for (const Row& row : makeRows(context, result)) {
    text += fmt::format("{:<16} {:>4} {:>9.1f} {:>9.4f} {:>9.1f} {:>7.3f}", row.name, row.collectives,
                        row.seconds * 1e3,
                        busBandwidth(context.options.bytes, context.options.ranks, row.seconds),
                        row.bound * 1e3, row.seconds / row.bound);
    if (rival && row.rivalSeconds > 0) {
      text += fmt::format(" {:>11.1f} {:>8.2f}", row.rivalSeconds * 1e3, row.rivalSeconds / row.seconds);
    } else if (rival) {
      text += fmt::format(" {:>11} {:>8}", "-", "-");
    }
    text += "  " + row.schedule + "\n";
  }
  text += fmt::format(
      "times: median of the slowest rank; busbw GB/s as in nccl-tests; bound: least time of any allReduce "
      "when TCP carries {:.1f} MB/s"
      " over a healthy link ({})\n",
      context.bytesPerSecond / 1e6, context.bytesPerSecondHow);
  for (const ObservedSwap& swap : result.swaps) {
    const std::string detect = swap.detectCollectives < 0
                                   ? "no link had changed"
                                   : fmt::format("{} collectives after the change", swap.detectCollectives);
    text += fmt::format("swap at {}: {} -> {} ({}; longest stall {:.0f} us)\n    reason: {}\n", swap.sequence,
                        swap.from, swap.to, detect, swap.stallSeconds * 1e6,
                        swap.reason.empty() ? "(none given)" : swap.reason);
  }
  text +=
      fmt::format("{} collectives, {} wrong elements (every element of every rank checked, bit for bit)\n",
                  result.collectives, result.wrong);
  return text;
}

std::string jsonText(const ReportContext& context, const ScenarioResult& result) {
  std::vector<std::string> phases;
  std::string recovering = "null";
  for (const Row& row : makeRows(context, result)) {
    if (row.name == "recovering") {
      recovering = phaseJson(context, row);
    } else {
      phases.push_back(phaseJson(context, row));
    }
  }
  std::vector<std::string> swaps;
  for (const ObservedSwap& swap : result.swaps) swaps.push_back(swapJson(swap));
  const ScenarioOptions& options = context.options;
  const double slowdown = options.megabitsPerSecond / options.slowMegabitsPerSecond;
  std::string text = fmt::format(
      R"({{"scenario":"failslow","ranks":{},"bytes":{},"collectives":{},"wrong":{},"phases":[{}],)"
      R"("swaps":[{}],"recovering":{},"success":{},"shortfall":{},"emulated":{},"slow_rank":{},)"
      R"("rate_mbit":{},"slow_rate_mbit":{},"busbw_unit":"GB/s as in nccl-tests",)"
      R"("bound":{{"tcp_bytes_per_second":{:.0f},"how":{},"healthy_ms":{:.3f},"degraded_ms":{:.3f}}})",
      options.ranks, options.bytes, result.collectives, result.wrong, fmt::join(phases, ","),
      fmt::join(swaps, ","), recovering, result.success(), quoteJson(result.shortfall), context.emulated,
      options.slowRank, options.megabitsPerSecond, options.slowMegabitsPerSecond, context.bytesPerSecond,
      quoteJson(context.bytesPerSecondHow), boundSeconds(context, 1.0) * 1e3,
      boundSeconds(context, slowdown) * 1e3);
  if (!context.rivalName.empty())
    text += fmt::format(R"(,{}:{})", quoteJson(context.rivalName), rivalJson(context, result));
  return text + "}\n";
}

}  // namespace theseus::demo
