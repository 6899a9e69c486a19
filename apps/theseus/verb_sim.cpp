// theseus sim: runs the control plane of many ranks through seeds of the deterministic simulator.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sim/sweep.h"
#include "verbs.h"

namespace theseus::cli {
namespace {

constexpr std::size_t kViolationsShown = 10;

struct SimOptions {
  sim::SweepOptions sweep;
  std::optional<std::uint64_t> seed;
  std::string broken;
  bool trace = false;
  std::string json;
};

std::string replayCommand(const SimOptions& options, std::uint64_t seed) {
  std::string command = fmt::format("theseus sim --seed {} --trace", seed);
  if (options.sweep.ranks) command += fmt::format(" --ranks {}", *options.sweep.ranks);
  if (!options.broken.empty()) command += fmt::format(" --break {}", options.broken);
  return command;
}

void printTotals(const sim::SweepTotals& totals, double seconds) {
  fmt::print("{} seeds, {} violations\n", totals.seeds, totals.violations);
  fmt::print(
      "{} events, {} messages, {} rounds, {} log entries, {} collectives, {} waits at a limit, {} proposals "
      "refused\n",
      totals.events, totals.messages, totals.rounds, totals.entries, totals.collectives, totals.stalls,
      totals.refusedProposals);
  const auto longest = [](const char* what, const sim::Longest& value, const char* unit) {
    fmt::print("  {:<28} {:>10} {:<3} (seed {})\n", what, value.value, unit, value.seed);
  };
  longest("most ranks", totals.ranks, "");
  longest("most rounds", totals.roundsOfOneSeed, "");
  longest("longest round, simulated", totals.roundMicroseconds, "us");
  longest("longest wait, simulated", totals.stallMicroseconds, "us");
  fmt::print("{:.1f} s, {:.0f} seeds/s, trace hash {:016x}\n", seconds,
             static_cast<double>(totals.seeds) / seconds, totals.traceHash);
}

struct Violation {
  std::uint64_t seed = 0;
  std::string what;
};

std::string jsonString(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

bool writeJson(const std::string& path, const sim::SweepTotals& totals,
               const std::vector<Violation>& violations, double seconds) {
  std::string report = "{\n";
  const auto figure = [&](const char* name, std::uint64_t value) {
    report += fmt::format("  \"{}\": {},\n", name, value);
  };
  figure("seeds", totals.seeds);
  figure("violations", totals.violations);
  figure("events", totals.events);
  figure("messages", totals.messages);
  figure("rounds", totals.rounds);
  figure("entries", totals.entries);
  figure("collectives", totals.collectives);
  figure("limit_waits", totals.stalls);
  figure("refused_proposals", totals.refusedProposals);
  figure("most_ranks", totals.ranks.value);
  figure("longest_round_us", totals.roundMicroseconds.value);
  figure("longest_wait_us", totals.stallMicroseconds.value);
  report +=
      fmt::format("  \"seconds\": {:.3f},\n  \"seeds_per_second\": {:.1f},\n  \"trace_hash\": \"{:016x}\",\n",
                  seconds, static_cast<double>(totals.seeds) / seconds, totals.traceHash);
  report += "  \"violating\": [";
  for (std::size_t i = 0; i < violations.size(); ++i) {
    report += fmt::format("{}\n    {{\"seed\": {}, \"violation\": {}}}", i == 0 ? "" : ",",
                          violations[i].seed, jsonString(violations[i].what));
  }
  report += violations.empty() ? "]\n}\n" : "\n  ]\n}\n";
  std::ofstream file(path);
  file << report;
  file.close();
  if (file) return true;
  fmt::print(stderr, "theseus sim: cannot write {}\n", path);
  return false;
}

int runSweep(const SimOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<Violation> violations;
  const auto each = [&](const sim::SimulationResult& result) {
    if (!result.violation || violations.size() >= kViolationsShown) return;
    fmt::print("seed {}: {} ranks, round {}, event {}: {}\n  replay: {}\n", result.seed, result.ranks,
               result.rounds, result.events, *result.violation, replayCommand(options, result.seed));
    violations.push_back({result.seed, *result.violation});
  };
  const sim::SweepTotals totals = sim::sweep(options.sweep, each);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  printTotals(totals, seconds);
  if (!options.json.empty() && !writeJson(options.json, totals, violations, seconds)) return 1;
  return totals.violations == 0 ? 0 : 1;
}

/// One seed with every event on a line of its own.
int runTraced(const SimOptions& options) {
  sim::SimulationOptions simulation;
  simulation.seed = options.sweep.firstSeed;
  simulation.ranks = options.sweep.ranks;
  simulation.skipLimitRule = options.sweep.skipLimitRule;
  simulation.trace = [](std::string_view line) { fmt::print("{}\n", line); };
  const sim::SimulationResult result = sim::simulate(simulation);
  fmt::print("seed {}: {} ranks, {} events, {} rounds, {} log entries, {} collectives, trace hash {:016x}\n",
             result.seed, result.ranks, result.events, result.rounds, result.entries, result.collectives,
             result.traceHash);
  if (result.violation) fmt::print("VIOLATION: {}\n", *result.violation);
  return result.violation ? 1 : 0;
}

}  // namespace

void addSim(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<SimOptions>();
  options->sweep.seeds = 1000;
  options->sweep.threads = std::max(1u, std::thread::hardware_concurrency());
  CLI::App* verb =
      app.add_subcommand("sim", "Run the control plane through seeds of the deterministic simulator");
  CLI::Option* seeds =
      verb->add_option("--seeds", options->sweep.seeds, "how many seeds")->check(CLI::PositiveNumber);
  CLI::Option* first = verb->add_option("--first", options->sweep.firstSeed, "the first of them");
  CLI::Option* seed =
      verb->add_option("--seed", options->seed, "only this seed")->excludes(seeds)->excludes(first);
  verb->add_flag("--trace", options->trace, "print every event of the seed")->needs(seed);
  verb->add_option("--ranks", options->sweep.ranks, "ranks, instead of what the seed draws")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--break", options->broken, "plant a bug that the simulator must find")
      ->check(CLI::IsMember({"limit"}));
  verb->add_option("--threads", options->sweep.threads, "threads, one simulation each")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--json", options->json, "write the figures to this file");
  verb->callback([options, &exitCode] {
    options->sweep.skipLimitRule = options->broken == "limit";
    if (options->seed) {
      options->sweep.firstSeed = *options->seed;
      options->sweep.seeds = 1;
    }
    exitCode = options->trace ? runTraced(*options) : runSweep(*options);
  });
}

}  // namespace theseus::cli
