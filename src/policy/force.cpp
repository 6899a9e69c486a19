#include "policy/force.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/check.h"

namespace theseus::policy {
namespace {

Status parseBytes(std::string_view key, std::string_view text, std::uint64_t& bytes) {
  const char* end = text.data() + text.size();
  const auto [stopped, code] = std::from_chars(text.data(), end, bytes);
  if (code == std::errc() && stopped == end && !text.empty()) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("forced schedule: {}={} is not a number of bytes", key, text));
}

Status assign(Force& force, std::string_view key, std::string_view value) {
  if (key == "min_bytes") return parseBytes(key, value, force.minBytes);
  if (key == "max_bytes") return parseBytes(key, value, force.maxBytes);
  if (key == "schedule") {
    force.schedule = std::string(value);
    return {};
  }
  const auto collective = parseCollective(value);
  if (!collective) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("forced schedule: no collective is called '{}'", value));
  }
  force.collective = *collective;
  return {};
}

bool isKey(std::string_view text) {
  return text == "collective" || text == "schedule" || text == "min_bytes" || text == "max_bytes";
}

/// The next word of `text`, which is removed from it; empty at the end.
std::string_view takeWord(std::string_view& text) {
  const std::size_t start = std::min(text.find_first_not_of(' '), text.size());
  const std::size_t end = std::min(text.find(' ', start), text.size());
  const std::string_view word = text.substr(start, end - start);
  text.remove_prefix(end);
  return word;
}

Status check(const Force& force, const std::set<std::string_view>& seen) {
  for (const char* key : {"collective", "schedule"}) {
    if (!seen.contains(key)) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("forced schedule: {}= is missing", key));
    }
  }
  if (force.schedule.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "forced schedule: schedule= is empty; \"auto\" hands the choice back");
  }
  if (force.minBytes > force.maxBytes) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("forced schedule: min_bytes={} is above max_bytes={}", force.minBytes, force.maxBytes));
  }
  return {};
}

}  // namespace

std::string encodeForce(const Force& force) {
  const Force open;
  std::string text = fmt::format("collective={}", name(force.collective));
  if (force.minBytes != open.minBytes) text += fmt::format(" min_bytes={}", force.minBytes);
  if (force.maxBytes != open.maxBytes) text += fmt::format(" max_bytes={}", force.maxBytes);
  return text + fmt::format(" schedule={}", force.schedule);
}

Result<Force> parseForce(std::string_view content) {
  Force force;
  std::set<std::string_view> seen;
  std::string_view previous;
  for (std::string_view word = takeWord(content); !word.empty(); word = takeWord(content)) {
    const std::size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    if (equals != std::string_view::npos && isKey(key)) {
      if (!seen.insert(key).second) {
        return fail(ErrorCode::kInvalidArgument, fmt::format("forced schedule: {}= appears twice", key));
      }
      THESEUS_TRY(assign(force, key, word.substr(equals + 1)));
      previous = key;
    } else if (previous == "schedule") {
      force.schedule += ' ';  // names of plans may hold spaces
      force.schedule += word;
    } else {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("forced schedule: '{}' is none of collective=, schedule=, min_bytes=, max_bytes=",
                      word));
    }
  }
  THESEUS_TRY(check(force, seen));
  return force;
}

}  // namespace theseus::policy
