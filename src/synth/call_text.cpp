// The text form of a generator call; the only file here that knows a JSON library.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "synth/generators.h"

namespace theseus::synth {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxTextBytes = 64 * 1024;
constexpr double kLargestExactWhole = 9007199254740992.0;  // 2^53

std::string numberText(double value) {
  if (value == std::floor(value) && std::abs(value) <= kLargestExactWhole) {
    return fmt::format("{}", static_cast<std::int64_t>(value));
  }
  return fmt::format("{}", value);  // the shortest text that reads back as the same number
}

/// Parses one flat object; a second use of a key is an error, which the library alone would let pass.
Result<json> parseFlatObject(std::string_view text) {
  std::set<std::string> keys;
  std::string problem;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth > 0) problem = "values must be text or numbers";
    if (event == json::parse_event_t::key && depth == 1 && !keys.insert(value.get<std::string>()).second) {
      problem = fmt::format("key \"{}\" appears twice", value.get<std::string>());
    }
    return true;
  };
  if (text.size() > kMaxTextBytes) problem = "text is too long";
  json document;
  if (problem.empty()) document = json::parse(text, watch, /*allow_exceptions=*/false);
  if (problem.empty() && !document.is_object()) problem = "not a JSON object";
  if (problem.empty()) return document;
  return fail(ErrorCode::kInvalidArgument, "generator call: " + problem);
}

tl::unexpected<Error> badKey(std::string_view key, std::string_view expected) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("generator call: \"{}\" must be {}", key, expected));
}

}  // namespace

std::string toText(const GeneratorCall& call) {
  std::string text = fmt::format("{{\"generator\":{},\"collective\":\"{}\",\"ranks\":{}",
                                 json(call.generator).dump(-1, ' ', true, json::error_handler_t::replace),
                                 name(call.collective), call.ranks);
  for (const auto& [key, value] : call.parameters) {
    text += fmt::format(",{}:{}", json(key).dump(-1, ' ', true, json::error_handler_t::replace),
                        numberText(value));
  }
  return text + "}";
}

Result<GeneratorCall> parseGeneratorCall(std::string_view text) {
  auto document = parseFlatObject(text);
  if (!document) return fail(document.error());
  GeneratorCall call;
  for (const char* key : {"generator", "collective", "ranks"}) {
    if (!document->contains(key)) return badKey(key, "present");
  }
  for (const auto& [key, value] : document->items()) {
    if (key == "generator") {
      if (!value.is_string()) return badKey(key, "the generator's name");
      call.generator = value.get<std::string>();
    } else if (key == "collective") {
      const auto collective = value.is_string() ? parseCollective(value.get<std::string>()) : std::nullopt;
      if (!collective) return badKey(key, "a collective's name, such as \"allreduce\"");
      call.collective = *collective;
    } else if (key == "ranks") {
      const bool small = value.is_number_unsigned() && value.get<std::uint64_t>() <= 1'000'000;
      if (!small) return badKey(key, "a whole number from 0 to 1000000");
      call.ranks = value.get<int>();
    } else {
      if (!value.is_number()) return badKey(key, "a number");
      call.parameters[key] = value.get<double>();
    }
  }
  return call;
}

std::string shortName(const GeneratorCall& call) {
  std::string parameters;
  for (const auto& [key, value] : call.parameters) {
    parameters += fmt::format("{}{}={}", parameters.empty() ? "" : ",", key, numberText(value));
  }
  return parameters.empty() ? call.generator : fmt::format("{}({})", call.generator, parameters);
}

}  // namespace theseus::synth
