// (collective, ranks, parameters) -> schedule. Pure and deterministic: the same call gives the same bytes on
// every rank, so a schedule can travel as its call. Every result passes the verifier before it is returned.
// Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/schedule.h"
#include "theseus/result.h"

namespace theseus::synth {

/// A schedule written as a call; its text form is what the log carries:
/// {"generator":"ring","collective":"allreduce","ranks":8,"channels":2}
struct GeneratorCall {
  std::string generator;
  Collective collective = Collective::kAllReduce;
  int ranks = 0;
  std::map<std::string, double> parameters;  // numbers only; unknown names are refused
  friend auto operator<=>(const GeneratorCall&, const GeneratorCall&) = default;
};

/// Canonical JSON: generator, collective, ranks, then the parameters sorted by name.
std::string toText(const GeneratorCall& call);
/// Strict: duplicate keys, missing keys, and values that are no numbers are errors. What they mean is
/// generate's business.
Result<GeneratorCall> parseGeneratorCall(std::string_view text);
/// Short name for tables: "ring", "straggler_aware(rank=3,ratio=2)".
std::string shortName(const GeneratorCall& call);

struct ParameterInfo {
  std::string name;
  double defaultValue;
  double minimum;
  double maximum;
  std::string doc;
  bool whole = true;  // whole numbers only
};

struct GeneratorInfo {
  std::string name;
  std::vector<Collective> collectives;
  int minRanks;
  std::vector<ParameterInfo> parameters;
  std::string doc;  // with the source (paper)
  bool automatic;   // belongs to the candidates that every job starts with
};

/// All generators, in a fixed order.
const std::vector<GeneratorInfo>& generators();

/// Expands a call. Errors: unknown generator or parameter, value out of range, too few ranks, and (our own
/// bug, but never silent) a result that the verifier refuses.
Result<schedule::Schedule> generate(const GeneratorCall& call);

}  // namespace theseus::synth
