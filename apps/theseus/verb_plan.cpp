// `theseus plan verify|show|convert|make`: schedules as files.
#include "verb_plan.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "schedule/json.h"
#include "schedule/verify/verify.h"
#include "schedule/xml.h"
#include "synth/generators.h"
#include "verbs.h"

namespace theseus::cli {
namespace {

constexpr int kDone = 0;
constexpr int kInvalid = 1;
constexpr int kUsage = 2;

struct PlanOptions {
  std::vector<std::string> files;
  std::string output;
  std::string jsonFile;
  bool pretty = false;
  std::optional<int> ranks;
  PlanShowOptions show;
  std::string generator;
  std::string collective = "allreduce";
  std::vector<std::string> parameters;
  bool list = false;
};

int report(const Error& error, const std::string& place) {
  fmt::print(stderr, "theseus plan: {}{}{}\n", place, place.empty() ? "" : ": ", error.message);
  const bool usage = error.code == ErrorCode::kIo || error.code == ErrorCode::kInvalidArgument ||
                     error.code == ErrorCode::kNotFound || error.code == ErrorCode::kUnsupported;
  return usage ? kUsage : kInvalid;
}

/// "-" is standard input.
Result<std::string> readText(const std::string& file) {
  if (file == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::error_code problem;
  if (std::filesystem::is_directory(file, problem))
    return fail(ErrorCode::kIo, "is a folder; name the plan files in it");
  std::ifstream in(file, std::ios::binary);
  if (!in) return fail(ErrorCode::kIo, "cannot be opened for reading");
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) return fail(ErrorCode::kIo, "cannot be read");
  return text;
}

Status writeText(const std::string& file, const std::string& text) {
  if (file.empty() || file == "-") {
    std::cout << text << std::flush;
    if (!std::cout) return fail(ErrorCode::kIo, "standard output cannot be written");
    return {};
  }
  std::ofstream out(file, std::ios::binary);
  out << text << std::flush;
  if (!out) return fail(ErrorCode::kIo, fmt::format("{} cannot be written", file));
  return {};
}

/// A plan in JSON or XML, or a generator call, which is expanded.
Result<schedule::Schedule> readPlan(const std::string& file) {
  const auto text = readText(file);
  if (!text) return fail(text.error());
  if (const auto call = synth::parseGeneratorCall(*text)) {
    auto plan = synth::generate(*call);
    // The file is there and readable; what it asks for is what is wrong.
    if (!plan) return fail(ErrorCode::kInvalidSchedule, plan.error().message);
    return plan;
  }
  return schedule::readAny(*text);
}

// ---- verify
// ----------------------------------------------------------------------------------------------------

nlohmann::ordered_json findingJson(const schedule::Finding& finding) {
  nlohmann::ordered_json out{{"pass", schedule::name(finding.pass)},
                             {"kind", finding.kind},
                             {"place", schedule::toString(finding.place)},
                             {"message", finding.message}};
  if (finding.second) out["second"] = schedule::toString(*finding.second);
  return out;
}

std::string validLine(const schedule::Schedule& plan, const schedule::Verdict& verdict) {
  auto line = fmt::format("valid: {} on {} ranks, {}; checked structure, resources, deadlock, race{}",
                          plan.collectiveName, plan.rankCount(), bufferModeText(plan.bufferMode),
                          verdict.meaningChecked ? ", meaning" : "");
  if (!verdict.meaningChecked) line += " (no known collective, so no meaning to check)";
  if (verdict.unevenFinding) line += "; only for messages that its chunks divide";
  if (verdict.pairwiseFinding) line += "; only where writes are seen in causal order across ranks";
  if (verdict.usesSwitch) line += "; needs switch channels";
  return line;
}

int verifyFile(const std::string& file, const PlanOptions& options, nlohmann::ordered_json& row) {
  row["file"] = file;
  const auto plan = readPlan(file);
  if (!plan) {
    row["valid"] = false;
    row["error"] = plan.error().message;
    if (plan.error().code == ErrorCode::kIo) return report(plan.error(), file);
    fmt::print("{}: {}\n", file, plan.error().message);
    return kInvalid;
  }
  schedule::VerifyOptions how;
  how.jobRanks = options.ranks;
  const auto verdict = schedule::verify(*plan, how);
  row["name"] = plan->name;
  row["hash"] = base::toHex(schedule::contentHash(*plan));
  row["valid"] = verdict.valid();
  row["meaning_checked"] = verdict.meaningChecked;
  row["tail_synchronized"] = verdict.tailSynchronized;
  if (verdict.unevenFinding) row["even_only"] = findingJson(*verdict.unevenFinding);
  if (verdict.pairwiseFinding) row["causal_order_needed"] = findingJson(*verdict.pairwiseFinding);
  row["findings"] = nlohmann::ordered_json::array();
  for (const auto& finding : verdict.findings) {
    row["findings"].push_back(findingJson(finding));
    fmt::print("{}: {}\n", file, schedule::toString(finding));
  }
  if (verdict.valid()) fmt::print("{}: {}\n", file, validLine(*plan, verdict));
  return verdict.valid() ? kDone : kInvalid;
}

int runVerify(const PlanOptions& options) {
  int worst = kDone;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& file : options.files) {
    nlohmann::ordered_json row;
    worst = std::max(worst, verifyFile(file, options, row));
    rows.push_back(std::move(row));
  }
  if (options.jsonFile.empty()) return worst;
  const nlohmann::ordered_json all{{"plans", rows}};
  const auto written = writeText(
      options.jsonFile, all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  return written ? worst : std::max(worst, report(written.error(), ""));
}

// ---- show, convert, make
// ---------------------------------------------------------------------------------------

int runShow(const PlanOptions& options) {
  const auto& file = options.files.front();
  const auto plan = readPlan(file);
  if (!plan) return report(plan.error(), file);
  const auto text = showPlan(*plan, options.show);
  if (!text) return report(text.error(), file);
  if (const auto written = writeText("", *text); !written) return report(written.error(), "");
  if (options.jsonFile.empty()) return kDone;
  const auto figures = planFiguresJson(*plan, options.show);
  if (!figures) return report(figures.error(), file);
  const auto written = writeText(options.jsonFile, *figures);
  return written ? kDone : report(written.error(), "");
}

int writePlan(const schedule::Schedule& plan, const PlanOptions& options) {
  const auto written = writeText(options.output, schedule::writeJson(plan, options.pretty) + "\n");
  return written ? kDone : report(written.error(), "");
}

int runConvert(const PlanOptions& options) {
  const auto& file = options.files.front();
  const auto plan = readPlan(file);
  return plan ? writePlan(*plan, options) : report(plan.error(), file);
}

void printGenerators() {
  for (const auto& info : synth::generators()) {
    std::string collectives;
    for (const auto collective : info.collectives)
      collectives += (collectives.empty() ? "" : ", ") + std::string(name(collective));
    fmt::print("{}  ({}; at least {} ranks)\n  {}\n", info.name, collectives, info.minRanks, info.doc);
    for (const auto& parameter : info.parameters) {
      fmt::print("  --param {}={}  {} ({} to {})\n", parameter.name, parameter.defaultValue, parameter.doc,
                 parameter.minimum, parameter.maximum);
    }
  }
}

Status readParameter(const std::string& text, synth::GeneratorCall& call) {
  const auto equals = text.find('=');
  const auto value = equals == std::string::npos ? "" : text.substr(equals + 1);
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (equals == 0 || value.empty() || *end != '\0') {
    return fail(ErrorCode::kInvalidArgument, fmt::format("--param {}: write NAME=NUMBER", text));
  }
  call.parameters[text.substr(0, equals)] = number;
  return {};
}

int runMake(const PlanOptions& options) {
  if (options.list) {
    printGenerators();
    return kDone;
  }
  synth::GeneratorCall call;
  call.generator = options.generator;
  const auto collective = parseCollective(options.collective);
  if (options.generator.empty() || !options.ranks || !collective) {
    return report({ErrorCode::kInvalidArgument,
                   !collective ? fmt::format("--collective {} is not known", options.collective)
                               : "make needs a generator and --ranks N; --list shows the generators"},
                  "");
  }
  call.collective = *collective;
  call.ranks = *options.ranks;
  for (const auto& text : options.parameters) {
    if (const auto status = readParameter(text, call); !status) return report(status.error(), "");
  }
  const auto plan = synth::generate(call);
  return plan ? writePlan(*plan, options) : report(plan.error(), "");
}

}  // namespace

void addPlan(CLI::App& app, int& exitCode) {
  auto* const verb = app.add_subcommand("plan", "verify, show, convert and make schedules");
  verb->require_subcommand(1);
  const auto options = std::make_shared<PlanOptions>();

  auto* const check = verb->add_subcommand("verify", "check plans: exit 0 valid, 1 invalid, 2 wrong usage");
  check->add_option("FILE", options->files, "plan JSON, MSCCL XML or generator call; - is standard input")
      ->required();
  check->add_option("--ranks", options->ranks, "number of ranks of the job that would run it");
  check->add_option("--json", options->jsonFile, "write the verdicts to this file");
  check->callback([options, &exitCode] { exitCode = runVerify(*options); });

  auto* const show =
      verb->add_subcommand("show", "the four layers of a plan: global, rank, thread block, op");
  show->add_option("FILE", options->files, "the plan")->required()->expected(1);
  show->add_option("--bytes", options->show.bytes, "message size: show every op's ranges");
  show->add_option("--element", options->show.elementBytes, "bytes of an element")
      ->check(CLI::IsMember({1, 2, 4, 8}));
  show->add_option("--rank", options->show.rank, "only this rank");
  show->add_option("--json", options->jsonFile, "write the plan's figures to this file");
  show->callback([options, &exitCode] { exitCode = runShow(*options); });

  auto* const convert = verb->add_subcommand("convert", "to plan JSON in its canonical form");
  convert->add_option("FILE", options->files, "the plan")->required()->expected(1);
  auto* const make = verb->add_subcommand("make", "a plan from a generator");
  make->add_option("GENERATOR", options->generator, "its name; --list shows them");
  make->add_option("--ranks", options->ranks, "number of ranks");
  make->add_option("--collective", options->collective, "what it does")->capture_default_str();
  make->add_option("--param", options->parameters, "NAME=NUMBER, may be repeated");
  make->add_flag("--list", options->list, "show the generators and their parameters");
  for (auto* const each : {convert, make}) {
    each->add_option("-o,--output", options->output, "file to write; standard output without");
    each->add_flag("--pretty", options->pretty, "indent");
  }
  convert->callback([options, &exitCode] { exitCode = runConvert(*options); });
  make->callback([options, &exitCode] { exitCode = runMake(*options); });
}

}  // namespace theseus::cli
