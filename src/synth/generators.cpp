#include "synth/generators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "schedule/verify/verify.h"
#include "synth/generator.h"

namespace theseus::synth {
namespace {

/// Beyond this an expansion costs gigabytes; nobody means it.
constexpr double kMaxOps = 4e6;
constexpr int kMaxRanks = 4096;

const std::vector<Generator>& registry() {
  static const std::vector<Generator> all = {
      ringGenerator(),       halvingDoublingGenerator(), allPairsGenerator(),      stagedAllPairsGenerator(),
      binaryTreeGenerator(), chainGenerator(),           disseminationGenerator(), stragglerAwareGenerator(),
  };
  return all;
}

const Generator* find(std::string_view name) {
  for (const Generator& generator : registry()) {
    if (generator.info.name == name) return &generator;
  }
  return nullptr;
}

Status checkParameters(const GeneratorCall& call, const GeneratorInfo& info) {
  for (const auto& [name, value] : call.parameters) {
    const auto known =
        std::find_if(info.parameters.begin(), info.parameters.end(),
                     [&parameter = name](const ParameterInfo& row) { return row.name == parameter; });
    if (known == info.parameters.end()) {
      std::string names;
      for (const ParameterInfo& row : info.parameters) names += (names.empty() ? "" : ", ") + row.name;
      return fail(ErrorCode::kInvalidArgument, fmt::format("generator {} has no parameter \"{}\"; it has: {}",
                                                           info.name, name, names.empty() ? "none" : names));
    }
    const bool inRange = value >= known->minimum && value <= known->maximum;  // false for NaN
    if (!inRange || (known->whole && value != std::floor(value))) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("generator {}: {} = {} must be a {}number from {} to {}", info.name, name,
                              value, known->whole ? "whole " : "", known->minimum, known->maximum));
    }
  }
  return {};
}

Status checkCall(const GeneratorCall& call, const Generator& generator) {
  const GeneratorInfo& info = generator.info;
  if (std::find(info.collectives.begin(), info.collectives.end(), call.collective) ==
      info.collectives.end()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("generator {} makes no {}", info.name, name(call.collective)));
  }
  if (call.ranks < info.minRanks || call.ranks > kMaxRanks) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("generator {} is for {} to {} ranks, not {}",
                                                         info.name, info.minRanks, kMaxRanks, call.ranks));
  }
  THESEUS_TRY(checkParameters(call, info));
  const double ops = generator.opCount(Arguments(call, info));
  if (ops > kMaxOps) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "{} over {} ranks would have about {:.0f} ops, more than {:.0f}: use fewer segments or channels",
            shortName(call), call.ranks, ops, kMaxOps));
  }
  return {};
}

/// A refusal here is a bug of a generator; it is reported like any other error and never runs.
Status checkResult(const GeneratorCall& call, const schedule::Schedule& schedule) {
  const schedule::Verdict verdict = schedule::verify(schedule);
  if (verdict.valid()) return {};
  return fail(ErrorCode::kInvalidSchedule,
              fmt::format("{} over {} ranks makes an invalid schedule: {}", shortName(call), call.ranks,
                          toString(verdict.findings.front())));
}

}  // namespace

double Arguments::number(std::string_view parameter) const {
  const auto given = call_->parameters.find(std::string(parameter));
  if (given != call_->parameters.end()) return given->second;
  for (const ParameterInfo& row : info_->parameters) {
    if (row.name == parameter) return row.defaultValue;
  }
  THESEUS_CHECK(false, "a generator asked for a parameter that it does not declare");
}

schedule::Builder Arguments::builder() const {
  return schedule::Builder(shortName(*call_), call_->collective, call_->ranks);
}

std::vector<schedule::BlockBuilder> blockOnEveryRank(schedule::Builder& builder, int ranks) {
  std::vector<schedule::BlockBuilder> blocks;
  blocks.reserve(static_cast<std::size_t>(ranks));
  for (Rank rank = 0; rank < ranks; ++rank) blocks.push_back(builder.block(rank));
  return blocks;
}

const std::vector<GeneratorInfo>& generators() {
  static const std::vector<GeneratorInfo> infos = [] {
    std::vector<GeneratorInfo> list;
    for (const Generator& generator : registry()) list.push_back(generator.info);
    return list;
  }();
  return infos;
}

Result<schedule::Schedule> generate(const GeneratorCall& call) {
  const Generator* generator = find(call.generator);
  if (generator == nullptr) {
    std::string names;
    for (const Generator& known : registry()) names += (names.empty() ? "" : ", ") + known.info.name;
    return fail(ErrorCode::kNotFound,
                fmt::format("no generator \"{}\"; there are: {}", call.generator, names));
  }
  THESEUS_TRY(checkCall(call, *generator));
  auto schedule = generator->expand(Arguments(call, generator->info));
  if (!schedule) return fail(schedule.error());
  schedule->provenance["generator"] = toText(call);
  THESEUS_TRY(checkResult(call, *schedule));
  return schedule;
}

}  // namespace theseus::synth
