#include "base/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace theseus::base {
namespace {

constexpr std::string_view kPrefix = "THESEUS_";
/// More letters than this apart and a name is not taken for a misspelling.
constexpr std::size_t kSimilar = 3;

std::string textOf(const std::string& value) { return value; }
std::string textOf(std::int64_t value) { return fmt::format("{}", value); }
std::string textOf(double value) { return fmt::format("{}", value); }
std::string textOf(bool value) { return value ? "on" : "off"; }

std::vector<std::string_view> split(std::string_view choices) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t bar = choices.find('|');
    words.push_back(choices.substr(0, bar));
    if (bar == std::string_view::npos) return words;
    choices.remove_prefix(bar + 1);
  }
}

std::string allowed(const Variable& variable) {
  switch (variable.type) {
    case VariableType::kText:
    case VariableType::kSecret:
      return "text";
    case VariableType::kChoice:
      return fmt::format("{}", fmt::join(split(variable.choices), ", "));
    case VariableType::kWhole:
      return fmt::format("whole number from {} to {}", variable.minimum, variable.maximum);
    case VariableType::kReal:
      return fmt::format("number from {} to {}", variable.minimum, variable.maximum);
    case VariableType::kFlag:
      return "on or off";
  }
  THESEUS_CHECK(false, "a variable type without a description");
}

tl::unexpected<Error> refuse(const Variable& variable, std::string_view value) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}=\"{}\" must be: {}", variable.name, value, allowed(variable)));
}

template <class Number>
Status parse(const Variable& variable, const std::string& text, Number& into)
  requires(std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool>)
{
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stopped, code] = std::from_chars(text.data(), end, value);
  const auto real = static_cast<double>(value);
  // Written so that NaN is refused.
  const bool inRange = real >= variable.minimum && real <= variable.maximum;
  if (code != std::errc() || stopped != end || !inRange) return refuse(variable, text);
  into = value;
  return {};
}

Status parse(const Variable& variable, const std::string& text, std::string& into) {
  if (variable.type == VariableType::kChoice) {
    const auto choices = split(variable.choices);
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) return refuse(variable, text);
  }
  into = text;
  return {};
}

Status parse(const Variable& variable, const std::string& text, bool& into) {
  const auto isOneOf = [&text](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), text) != words.end();
  };
  const bool on = isOneOf({"1", "on", "true", "yes"});
  if (!on && !isOneOf({"0", "off", "false", "no"})) return refuse(variable, text);
  into = on;
  return {};
}

/// Calls visit(row, field) for every variable in order, until it returns false.
template <class Fields, class Visit>
void forEachField(Fields& fields, const Visit& visit) {
  std::size_t row = 0;
  bool goOn = true;
  const auto next = [&](auto& field) {
    if (goOn) goOn = visit(variables()[row++], field);
  };
#define THESEUS_TEXT(member, ...) next(fields.member);
#define THESEUS_SECRET_TEXT(member, ...) next(fields.member);
#define THESEUS_CHOICE(member, ...) next(fields.member);
#define THESEUS_WHOLE(member, ...) next(fields.member);
#define THESEUS_REAL(member, ...) next(fields.member);
#define THESEUS_FLAG(member, ...) next(fields.member);
#include "base/config.def"
#undef THESEUS_TEXT
#undef THESEUS_SECRET_TEXT
#undef THESEUS_CHOICE
#undef THESEUS_WHOLE
#undef THESEUS_REAL
#undef THESEUS_FLAG
}

/// Levenshtein's distance.
std::size_t distance(std::string_view left, std::string_view right) {
  std::vector<std::size_t> row(right.size() + 1);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = i;
  for (std::size_t i = 0; i < left.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < right.size(); ++j) {
      const std::size_t replaced = diagonal + (left[i] == right[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::span<const Variable> variables() {
  static const std::vector<Variable> table = {
#define THESEUS_TEXT(member, name, initial, doc) \
  {name, VariableType::kText, textOf(std::string(initial)), 0, 0, "", doc},
#define THESEUS_SECRET_TEXT(member, name, initial, doc) \
  {name, VariableType::kSecret, textOf(std::string(initial)), 0, 0, "", doc},
#define THESEUS_CHOICE(member, name, initial, choices, doc) \
  {name, VariableType::kChoice, textOf(std::string(initial)), 0, 0, choices, doc},
#define THESEUS_WHOLE(member, name, initial, minimum, maximum, doc) \
  {name, VariableType::kWhole, textOf(std::int64_t{initial}), minimum, maximum, "", doc},
#define THESEUS_REAL(member, name, initial, minimum, maximum, doc) \
  {name, VariableType::kReal, textOf(double{initial}), minimum, maximum, "", doc},
#define THESEUS_FLAG(member, name, initial, doc) \
  {name, VariableType::kFlag, textOf(bool{initial}), 0, 0, "", doc},
#include "base/config.def"
#undef THESEUS_TEXT
#undef THESEUS_SECRET_TEXT
#undef THESEUS_CHOICE
#undef THESEUS_WHOLE
#undef THESEUS_REAL
#undef THESEUS_FLAG
  };
  return table;
}

Result<Configuration> configurationFrom(const VariableLookup& lookup) {
  Configuration configuration;
  std::optional<Error> problem;
  forEachField(configuration, [&](const Variable& variable, auto& field) {
    const auto value = lookup(variable.name);
    if (!value) return true;
    auto parsed = parse(variable, *value, field);
    if (!parsed) problem = std::move(parsed.error());
    return !problem.has_value();
  });
  if (problem) return fail(std::move(*problem));
  return configuration;
}

Result<Configuration> configurationFromEnvironment() {
  return configurationFrom([](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  });
}

std::string describe(const Configuration& configuration) {
  std::string text;
  forEachField(configuration, [&](const Variable& variable, const auto& field) {
    const std::string value = textOf(field);
    if (variable.type == VariableType::kSecret) {
      text += fmt::format("{}={}\n", variable.name, value.empty() ? "(empty)" : "(set)");
    } else {
      text +=
          fmt::format("{}={}{}\n", variable.name, value, value == variable.defaultText ? "  (default)" : "");
    }
    return true;
  });
  return text;
}

std::vector<std::string> misspelt(std::span<const std::string> names) {
  std::vector<std::string> messages;
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix)) continue;
    const auto nearest = std::min_element(variables().begin(), variables().end(),
                                          [&name](const auto& left, const auto& right) {
                                            return distance(name, left.name) < distance(name, right.name);
                                          });
    const std::size_t apart = distance(name, nearest->name);
    if (apart == 0) continue;
    messages.push_back(
        apart <= kSimilar ? fmt::format("{} is no variable of Theseus; did you mean {}?", name, nearest->name)
                          : fmt::format("{} is no variable of Theseus", name));
  }
  return messages;
}

std::string variablesAsMarkdown() {
  std::string text = "| variable | values | default | what it does |\n|---|---|---|---|\n";
  for (const Variable& variable : variables()) {
    const std::string initial =
        variable.defaultText.empty() ? "empty" : fmt::format("`{}`", variable.defaultText);
    text += fmt::format("| `{}` | {} | {} | {} |\n", variable.name, allowed(variable), initial, variable.doc);
  }
  return text;
}

}  // namespace theseus::base
