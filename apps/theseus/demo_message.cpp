#include "demo_message.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace theseus::demo {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kAnyBytes = std::numeric_limits<std::uint64_t>::max();

Result<Json> parseObject(const std::string& text, const char* what) {
  Json value = Json::parse(text, nullptr, false);
  if (value.is_object()) return value;
  return fail(ErrorCode::kIo, fmt::format("{} is not a JSON object: {}", what, text.substr(0, 200)));
}

}  // namespace

Result<WorkerMessage> parseWorkerMessage(const std::string& line) {
  auto value = parseObject(line, "a worker's line");
  if (!value) return fail(value.error());
  try {
    WorkerMessage message;
    message.event = value->at("event").get<std::string>();
    message.rank = value->at("rank").get<int>();
    message.collective = value->value("collective", std::uint64_t{0});
    message.seconds = value->value("seconds", 0.0);
    message.schedule = value->value("schedule", std::string());
    message.sequence = value->value("sequence", std::uint64_t{0});
    message.round = value->value("round", std::uint64_t{0});
    message.limitWaitSeconds = value->value("limit_wait", 0.0);
    message.wrong = value->value("wrong", std::uint64_t{0});
    if (value->contains("status")) message.status = value->at("status").dump();
    if (value->contains("explain")) message.explain = value->at("explain").dump();
    return message;
  } catch (const Json::exception& error) {
    return fail(ErrorCode::kIo,
                fmt::format("a worker's line lacks something: {} in {}", error.what(), line.substr(0, 200)));
  }
}

Result<std::vector<RuntimeSwap>> parseSwaps(const std::string& statusJson, std::uint64_t bytes) {
  auto value = parseObject(statusJson, "the communicator's status");
  if (!value) return fail(value.error());
  std::vector<RuntimeSwap> swaps;
  try {
    for (const Json& item : value->value("swaps", Json::array())) {
      RuntimeSwap swap;
      swap.round = item.value("round", std::uint64_t{0});
      swap.switchAt = item.value("switch_at", std::uint64_t{0});
      swap.collective = item.value("collective", std::string());
      swap.from = item.value("from", std::string());
      swap.to = item.value("to", std::string());
      swap.reason = item.value("reason", std::string());
      const bool concerns =
          item.value("from_bytes", std::uint64_t{0}) <= bytes && bytes <= item.value("to_bytes", kAnyBytes);
      if (concerns && swap.collective == "allreduce") swaps.push_back(std::move(swap));
    }
  } catch (const Json::exception& error) {
    return fail(ErrorCode::kIo,
                fmt::format("the communicator's status has an odd list of swaps: {}", error.what()));
  }
  return swaps;
}

Result<std::vector<std::string>> explainLines(const std::string& explainJson) {
  auto value = parseObject(explainJson, "the communicator's explanation");
  if (!value) return fail(value.error());
  std::vector<std::string> lines;
  try {
    for (const Json& item : value->value("schedules", Json::array())) {
      const Json predicted = item.value("predicted_us", Json());
      lines.push_back(fmt::format("{} {}: {}{}", item.value("in_force", false) ? "*" : " ",
                                  item.value("schedule", std::string("?")), item.value("why", std::string()),
                                  predicted.is_number()
                                      ? fmt::format(" (predicted {:.1f} ms)", predicted.get<double>() / 1e3)
                                      : std::string()));
    }
  } catch (const Json::exception& error) {
    return fail(ErrorCode::kIo, fmt::format("the communicator's explanation is odd: {}", error.what()));
  }
  return lines;
}

std::string linkRatesText(const std::string& statusJson) {
  const Json value = Json::parse(statusJson, nullptr, false);
  const auto pointer = Json::json_pointer("/attributes/link_rate");
  if (!value.is_object() || !value.contains(pointer)) return "";
  std::string text;
  for (const Json& rate : value.at(pointer)) {
    text += rate.is_number() ? fmt::format(" {:.1f}", rate.get<double>() / 1e6) : " ?";
  }
  return text;
}

std::string quoteJson(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace theseus::demo
