#include "telemetry/prometheus.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace theseus::telemetry {
namespace {

bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool isDigit(char c) { return c >= '0' && c <= '9'; }

/// Metric names may have colons, label names may not.
std::string legalName(std::string_view name, bool colons) {
  std::string legal;
  if (name.empty() || isDigit(name.front())) legal += '_';
  for (const char c : name) legal += isLetter(c) || isDigit(c) || (colons && c == ':') ? c : '_';
  return legal;
}

std::string escaped(std::string_view text, bool quotes) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
    } else {
      if (c == '\\' || (quotes && c == '"')) result += '\\';
      result += c;
    }
  }
  return result;
}

std::string valueText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

std::string labelsText(const Labels& labels) {
  std::string text;
  for (const auto& [key, value] : labels) {
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "{" : ",", legalName(key, false), escaped(value, true));
  }
  return text.empty() ? text : text + "}";
}

}  // namespace

std::string prometheusText(std::span<const Figure> figures) {
  std::string text;
  std::string_view previous;
  for (const Figure& figure : figures) {
    const std::string name = legalName(figure.name, true);
    if (figure.name != previous) {
      text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(figure.help, false), name,
                          figure.counter ? "counter" : "gauge");
    }
    previous = figure.name;
    text += fmt::format("{}{} {}\n", name, labelsText(figure.labels), valueText(figure.value));
  }
  return text;
}

}  // namespace theseus::telemetry
