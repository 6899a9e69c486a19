#include "ctl_view.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

namespace theseus::cli {
namespace {

using nlohmann::json;

/// Discarded where the text is not JSON.
json parse(const std::string& text) { return json::parse(text, nullptr, false); }

/// A cell's text; an absent or null value is a dash.
std::string cell(const json& row, const char* key) {
  if (!row.is_object() || !row.contains(key) || row[key].is_null()) return "-";
  const json& value = row[key];
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.dump();
}

std::string bytesText(const json& row, const char* key) {
  if (!row.is_object() || !row.contains(key) || !row[key].is_number_unsigned()) return "-";
  const auto bytes = row[key].get<std::uint64_t>();
  constexpr std::uint64_t kStep = 1024;
  for (const auto& [size, unit] :
       {std::pair<std::uint64_t, char>{kStep * kStep * kStep, 'G'}, {kStep * kStep, 'M'}, {kStep, 'K'}}) {
    if (bytes >= size && bytes % size == 0) return fmt::format("{}{}", bytes / size, unit);
  }
  return std::to_string(bytes);
}

/// The upper end of a range is its last byte: shown as the first one after it, which is a round number.
std::string upperText(const json& row) {
  if (!row.is_object() || !row.contains("to_bytes") || !row["to_bytes"].is_number_unsigned()) return "-";
  const auto last = row["to_bytes"].get<std::uint64_t>();
  if (last >= (std::uint64_t{1} << 60)) return "any";
  return "<" + bytesText(json{{"end", last + 1}}, "end");
}

std::vector<std::vector<std::string>> rowsOf(const json& list, const std::vector<const char*>& keys) {
  std::vector<std::vector<std::string>> rows;
  if (!list.is_array()) return rows;
  for (const json& entry : list) {
    std::vector<std::string> row;
    for (const char* key : keys) {
      const std::string_view name = key;
      row.push_back(name == "from_bytes" ? bytesText(entry, key)
                    : name == "to_bytes" ? upperText(entry)
                                         : cell(entry, key));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

struct Section {
  const char* key;
  const char* title;
  std::vector<const char*> columns;
};

bool isNumber(const std::string& text) {
  return !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '<');
}

std::string attributeTable(const json& status) {
  std::vector<std::vector<std::string>> rows;
  if (!status.contains("attributes") || !status["attributes"].is_object()) return "";
  for (const auto& [name, values] : status["attributes"].items()) {
    if (!values.is_array()) {
      rows.push_back({name, "-", cell(status["attributes"], name.c_str())});
      continue;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const json holder{{"value", values[i]}};
      rows.push_back({name, values.size() == 1 ? "-" : std::to_string(i), cell(holder, "value")});
    }
  }
  return rows.empty() ? "" : table({"attribute", "rank", "value"}, rows);
}

}  // namespace

std::string table(const std::vector<std::string>& heads, const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::string& head : heads) widths.push_back(head.size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  const auto addLine = [&](const std::vector<std::string>& cells) {
    std::string line = "  ";
    for (std::size_t i = 0; i < cells.size() && i < widths.size(); ++i) {
      line += isNumber(cells[i]) ? fmt::format("{:>{}}", cells[i], widths[i])
                                 : fmt::format("{:<{}}", cells[i], widths[i]);
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  addLine(heads);
  for (const auto& row : rows) addLine(row);
  return text;
}

std::string statusView(const std::string& answer) {
  const json status = parse(answer);
  if (!status.is_object()) return "no status\n";
  std::string text =
      fmt::format("rank {} of {}, transport {}\nround {}, in force from collective {}, next collective {}\n",
                  cell(status, "rank"), cell(status, "size"), cell(status, "transport"),
                  cell(status, "round"), cell(status, "switch_at"), cell(status, "sequence"));
  text += fmt::format("log: {} entries agreed, {} pending; waited at limits: {} s; memory: {} bytes\n",
                      cell(status, "log_entries"), cell(status, "pending_entries"),
                      cell(status, "limit_wait_seconds"), cell(status, "memory_bytes"));
  const std::vector<Section> sections{
      {"dispatch", "Schedules in force", {"collective", "from_bytes", "to_bytes", "schedule"}},
      {"candidates", "Candidates", {"slot", "name", "collective", "ready_everywhere", "dropped", "hash"}},
      {"links", "Links", {"peer", "bytes_per_second", "health"}},
      {"swaps",
       "Swaps",
       {"round", "switch_at", "collective", "from_bytes", "to_bytes", "from", "to", "reason"}},
  };
  for (const Section& section : sections) {
    if (!status.contains(section.key)) continue;
    const auto rows = rowsOf(status[section.key], section.columns);
    if (rows.empty()) continue;
    std::vector<std::string> heads;
    for (std::string head : section.columns) {
      std::replace(head.begin(), head.end(), '_', ' ');
      heads.push_back(head == "from bytes" ? "bytes" : head == "to bytes" ? "" : head);
    }
    text += fmt::format("\n{}\n{}", section.title, table(heads, rows));
  }
  const std::string attributes = attributeTable(status);
  if (!attributes.empty()) text += "\nAttributes\n" + attributes;
  return text;
}

std::string attributesView(const std::string& answer) {
  const json status = parse(answer);
  const std::string text = status.is_object() ? attributeTable(status) : "";
  return text.empty() ? "no attributes: no round has been completed yet\n" : text;
}

std::string explainView(const std::string& answer) {
  const json explanation = parse(answer);
  if (!explanation.is_object() || !explanation.contains("schedules")) return "nothing to explain\n";
  const std::vector<std::vector<std::string>> rows =
      rowsOf(explanation["schedules"], {"in_force", "schedule", "ready", "usable", "predicted_us", "why"});
  return fmt::format("{} of {} bytes\n{}", cell(explanation, "collective"), cell(explanation, "bytes"),
                     table({"in force", "schedule", "ready", "usable", "predicted us", "why"}, rows));
}

std::string addedView(const std::string& answer) {
  return fmt::format("added {}\n", cell(parse(answer), "hash"));
}

std::optional<std::string> errorIn(const std::string& answer) {
  const json parsed = parse(answer);
  if (parsed.is_discarded()) return "the answer is not JSON; is it a Theseus rank?";
  if (!parsed.is_object() || !parsed.contains("error")) return std::nullopt;
  const json& error = parsed["error"];
  return error.is_object() ? cell(error, "message") : cell(parsed, "error");
}

std::string prettyJson(const std::string& answer) {
  return parse(answer).dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace theseus::cli
