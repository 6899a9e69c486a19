// `theseus ctl`: looks into a running job and steers it, through any of its ranks.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>

#include <fmt/format.h>

#include "ctl_client.h"
#include "ctl_view.h"
#include "theseus/types.h"
#include "verbs.h"

namespace theseus::cli {
namespace {

constexpr std::size_t kScheduleBytesMax = 32u << 20;

struct CtlOptions {
  std::string job;
  int rank = -1;
  std::string address;  // HOST:PORT
  std::string token;
  std::string jsonFile;
  std::string first;  // operands of the verb
  std::string second;
};

Result<std::vector<ControlTarget>> targetsOf(const CtlOptions& options) {
  if (options.address.empty()) {
    ControlSelection selection;
    if (!options.job.empty()) selection.job = options.job;
    if (options.rank >= 0) selection.rank = options.rank;
    return findControlTargets(selection);
  }
  const std::size_t colon = options.address.rfind(':');
  const int port = colon == std::string::npos ? 0 : std::atoi(options.address.c_str() + colon + 1);
  if (port < 1 || port > 65535)
    return fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is not HOST:PORT", options.address));
  std::string token = options.token;
  if (const char* given = std::getenv("THESEUS_CTL_TOKEN"); token.empty() && given != nullptr) token = given;
  if (token.empty())
    return fail(ErrorCode::kInvalidArgument,
                "a rank is asked over TCP only with a token: set THESEUS_CTL_TOKEN");
  return std::vector<ControlTarget>{ControlTarget{"", options.address.substr(0, colon), port, token, "", -1}};
}

/// Any rank will do; one that is stopped or ending is passed over, but not for ever. Something that was
/// perhaps done is not asked for twice.
Result<std::string> ask(const CtlOptions& options, const ControlRequest& request) {
  constexpr std::size_t kRanksTried = 3;
  auto targets = targetsOf(options);
  if (!targets) return fail(targets.error());
  Result<std::string> answer = fail(ErrorCode::kNotFound, "no rank");
  for (std::size_t i = 0; i < std::min(targets->size(), kRanksTried); ++i) {
    answer = askControl((*targets)[i], request);
    if (answer) break;
    const bool again = answer.error().code == ErrorCode::kTransport ||
                       (answer.error().code == ErrorCode::kTimeout && !request.write);
    if (!again) break;
  }
  if (!answer) return fail(answer.error());
  if (const auto problem = errorIn(*answer)) return fail(ErrorCode::kTransport, *problem);
  return answer;
}

Result<std::string> readSchedule(const std::string& fileOrCall) {
  std::ifstream file(fileOrCall, std::ios::binary);
  if (!file) {
    // Not a file: a generator call, which begins with a brace or is a bare name such as "ring". A path that
    // is mistyped is neither.
    if (fileOrCall.find('/') == std::string::npos || fileOrCall.front() == '{') return fileOrCall;
    return fail(ErrorCode::kNotFound, fmt::format("cannot open {}", fileOrCall));
  }
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad() || text.empty())
    return fail(ErrorCode::kIo, fmt::format("cannot read a schedule from {}", fileOrCall));
  if (text.size() > kScheduleBytesMax)
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} is larger than 32 MiB", fileOrCall));
  return text;
}

/// "64K" and its kind as well as plain numbers.
Result<std::string> plainBytes(const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (digits == 0 || text.empty() || shift < 0 || text.size() - unit.size() > 15) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("\"{}\" is not a size: write a number, with K, M or G if you like", text));
  }
  return std::to_string(std::stoull(text) << shift);
}

Status checkCollective(const std::string& text) {
  if (parseCollective(text)) return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is not a collective", text));
}

Status writeJson(const std::string& file, const std::string& answer) {
  const std::string text = prettyJson(answer);
  if (file == "-") {
    std::cout << text << std::flush;
    return {};
  }
  std::ofstream out(file, std::ios::binary);
  out << text << std::flush;
  if (out) return {};
  return fail(ErrorCode::kIo, fmt::format("cannot write {}", file));
}

using View = std::function<std::string(const std::string&)>;
using Prepare = std::function<Result<ControlRequest>(const CtlOptions&)>;

int perform(const CtlOptions& options, const Prepare& prepare, const View& view) {
  Status written;
  auto request = prepare(options);
  auto answer = request ? ask(options, *request) : Result<std::string>(fail(request.error()));
  if (answer && !options.jsonFile.empty()) written = writeJson(options.jsonFile, *answer);
  if (!answer || !written) {
    std::fprintf(stderr, "theseus ctl: %s\n", (!answer ? answer.error() : written.error()).message.c_str());
    return 1;
  }
  if (options.jsonFile != "-") std::cout << view(*answer) << std::flush;
  return 0;
}

Result<ControlRequest> prepareAdd(const CtlOptions& options) {
  auto text = readSchedule(options.first);
  if (!text) return fail(text.error());
  ControlRequest request{
      "/sched", true, {}, std::move(*text), std::chrono::minutes(1)};  // the rank verifies it first
  return request;
}

Result<ControlRequest> prepareSwap(const CtlOptions& options) {
  if (auto known = checkCollective(options.first); !known) return fail(known.error());
  return ControlRequest{"/swap", true, {{"collective", options.first}, {"schedule", options.second}}, {}};
}

Result<ControlRequest> prepareExplain(const CtlOptions& options) {
  if (auto known = checkCollective(options.first); !known) return fail(known.error());
  auto bytes = plainBytes(options.second);
  if (!bytes) return fail(bytes.error());
  return ControlRequest{"/explain", false, {{"collective", options.first}, {"bytes", *bytes}}, {}};
}

}  // namespace

void addCtl(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<CtlOptions>();
  CLI::App* verb =
      app.add_subcommand("ctl", "look into a running job and steer it, through any of its ranks");
  verb->require_subcommand(1);
  verb->fallthrough();  // --json and its kind may stand after the inner verb
  verb->add_option("--job", options->job, "job, when several run here (THESEUS_JOB of its ranks)");
  verb->add_option("--rank", options->rank, "rank to ask; default: the lowest on this host")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--address", options->address, "ask HOST:PORT over TCP in place of a socket of this host");
  verb->add_option("--token", options->token, "token for --address; default: THESEUS_CTL_TOKEN");
  verb->add_option("--json", options->jsonFile, "write the answer to this file as JSON; - = standard output");
  const auto add = [&exitCode, options](CLI::App* inner, Prepare prepare, View view) {
    inner->callback([&exitCode, options, prepare = std::move(prepare), view = std::move(view)] {
      exitCode = perform(*options, prepare, view);
    });
  };
  const auto done = [](const std::string& text) { return [text](const std::string&) { return text; }; };

  add(
      verb->add_subcommand("status", "epoch, schedules in force, links, swaps"),
      [](const CtlOptions&) -> Result<ControlRequest> { return ControlRequest{"/status", false, {}, {}}; },
      statusView);
  add(
      verb->add_subcommand("attr", "attributes that the last round agreed on"),
      [](const CtlOptions&) -> Result<ControlRequest> { return ControlRequest{"/status", false, {}, {}}; },
      attributesView);

  CLI::App* set = verb->add_subcommand("set", "set an exo attribute on all ranks");
  set->add_option("name", options->first)->required();
  set->add_option("value", options->second)->required();
  add(
      set,
      [](const CtlOptions& given) -> Result<ControlRequest> {
        return ControlRequest{"/exo", true, {{"name", given.first}, {"value", given.second}}, {}};
      },
      done("set; in force after the next round\n"));

  CLI::App* sched = verb->add_subcommand("sched", "add and drop schedules");
  sched->require_subcommand(1);
  sched->fallthrough();
  CLI::App* addSchedule = sched->add_subcommand("add", "add a schedule to all ranks");
  addSchedule
      ->add_option("schedule", options->first, "file with a plan (JSON, MSCCL XML), or a generator call")
      ->required();
  add(addSchedule, prepareAdd, addedView);
  CLI::App* drop = sched->add_subcommand("drop", "take a schedule out of use");
  drop->add_option("schedule", options->first, "short name or hash")->required();
  add(
      drop,
      [](const CtlOptions& given) -> Result<ControlRequest> {
        return ControlRequest{"/drop", true, {{"schedule", given.first}}, {}};
      },
      done("dropped; in force after the next round\n"));

  CLI::App* swap = verb->add_subcommand(
      "swap", "make a collective use a schedule from some call on; auto = the policy's choice");
  swap->add_option("collective", options->first)->required();
  swap->add_option("schedule", options->second, "short name, hash or auto")->required();
  add(swap, prepareSwap, done("asked for; in force from the collective that the next round agrees on\n"));

  CLI::App* explain = verb->add_subcommand("explain", "why a collective of a size runs as it does");
  explain->add_option("collective", options->first)->required();
  explain->add_option("bytes", options->second, "64K, 4M, ...")->required();
  add(explain, prepareExplain, explainView);
}

}  // namespace theseus::cli
