#include "runtime/materialize.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "schedule/verify/verify.h"
#include "schedule/xml.h"
#include "synth/generators.h"

namespace theseus::runtime {
namespace {

Result<policy::Candidate> fromCall(const synth::GeneratorCall& call) {
  policy::Candidate candidate;
  candidate.name = synth::shortName(call);
  candidate.hash = base::hash128(synth::toText(call));
  candidate.collective = call.collective;
  candidate.call = call;
  auto preparation = policy::prepare(candidate);
  if (!preparation) return fail(preparation.error());
  candidate.schedule = preparation->schedule;
  return candidate;
}

bool isGeneratorCall(const std::string& text) {
  return !text.empty() && text[0] == '{' && text.find("\"generator\"") != std::string::npos &&
         text.find("\"gpus\"") == std::string::npos;
}

/// "name(key=value,key=value)" into a call without collective.
Result<synth::GeneratorCall> parseShortName(const std::string& text, int ranks) {
  synth::GeneratorCall call;
  call.ranks = ranks;
  const std::size_t open = text.find('(');
  call.generator = text.substr(0, open);
  if (open == std::string::npos) return call;
  if (text.back() != ')')
    return fail(ErrorCode::kInvalidArgument, fmt::format("schedule '{}': no closing parenthesis", text));
  std::string rest = text.substr(open + 1, text.size() - open - 2);
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string part = rest.substr(0, comma);
    rest.erase(0, comma + 1);
    const std::size_t equals = part.find('=');
    double value = 0;
    const char* end = part.data() + part.size();
    const bool number = equals != std::string::npos &&
                        std::from_chars(part.data() + equals + 1, end, value).ptr == end &&
                        equals + 1 < part.size();
    if (!number) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("schedule '{}': '{}' is not name=number", text, part));
    }
    call.parameters[part.substr(0, equals)] = value;
  }
  return call;
}

}  // namespace

Result<std::unique_ptr<resource::ScheduleNode>> materialize(const std::string& name,
                                                            const policy::Preparation& preparation,
                                                            Rank rank) {
  if (preparation.schedule->usesSwitch()) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("schedule {} needs switch channels (in-network reduction), which host memory lacks",
                    name));
  }
  return std::make_unique<resource::ScheduleNode>(name, preparation.schedule, rank,
                                                  preparation.tailSynchronized);
}

Result<policy::Candidate> readCandidate(const std::string& text, int ranks) {
  if (isGeneratorCall(text)) {
    auto call = synth::parseGeneratorCall(text);
    if (!call) return fail(call.error());
    if (call->ranks != ranks) {
      return fail(ErrorCode::kInvalidSchedule,
                  fmt::format("the generator call is for {} ranks, the job has {}", call->ranks, ranks));
    }
    return fromCall(*call);
  }
  auto schedule = schedule::readAny(text);
  if (!schedule) return fail(schedule.error());
  schedule::VerifyOptions options;
  options.jobRanks = ranks;
  const schedule::Verdict verdict = schedule::verify(*schedule, options);
  if (!verdict.valid()) {
    return fail(ErrorCode::kInvalidSchedule, fmt::format("schedule '{}': {}", schedule->name,
                                                         schedule::toString(verdict.findings.front())));
  }
  if (schedule->collective() == Collective::kCustom) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("schedule '{}': collective '{}' has no call that it could serve", schedule->name,
                            schedule->collectiveName));
  }
  policy::Candidate candidate;
  candidate.name = schedule->name;
  candidate.hash = schedule::contentHash(*schedule);
  candidate.collective = schedule->collective();
  candidate.schedule = std::make_shared<const schedule::Schedule>(std::move(*schedule));
  return candidate;
}

Result<std::vector<policy::Candidate>> fixedSchedules(const std::string& text, int ranks) {
  std::vector<policy::Candidate> candidates;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (text[first] == '{' || text[first] == '<')) {
    auto candidate = readCandidate(text.substr(first), ranks);
    if (!candidate) return fail(candidate.error());
    candidates.push_back(std::move(*candidate));
    return candidates;
  }
  auto call = parseShortName(text, ranks);
  if (!call) return fail(call.error());
  const auto& known = synth::generators();
  const auto info =
      std::find_if(known.begin(), known.end(), [&](const auto& row) { return row.name == call->generator; });
  if (info == known.end()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("schedule '{}': no generator has that name, and it is no plan text", text));
  }
  for (Collective collective : info->collectives) {
    call->collective = collective;
    auto candidate = fromCall(*call);
    if (!candidate) return fail(candidate.error());
    candidates.push_back(std::move(*candidate));
  }
  return candidates;
}

}  // namespace theseus::runtime
