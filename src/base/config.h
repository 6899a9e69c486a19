// Configuration variables THESEUS_*: one typed table (config.def), a strict parser and the printed form. Pure
// functions of what they are given, any thread; only configurationFromEnvironment looks at the process's
// environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "theseus/result.h"

namespace theseus::base {

enum class VariableType : std::uint8_t { kText, kSecret, kChoice, kWhole, kReal, kFlag };

/// One row of the table.
struct Variable {
  std::string_view name;
  VariableType type = VariableType::kText;
  std::string defaultText;
  double minimum = 0;  // kWhole, kReal
  double maximum = 0;
  std::string_view choices;  // kChoice: "a|b|c"
  std::string_view doc;
};

/// The table, in the order of config.def.
std::span<const Variable> variables();

struct Configuration {
#define THESEUS_TEXT(member, name, initial, doc) std::string member = initial;
#define THESEUS_SECRET_TEXT(member, name, initial, doc) std::string member = initial;
#define THESEUS_CHOICE(member, name, initial, choices, doc) std::string member = initial;
#define THESEUS_WHOLE(member, name, initial, minimum, maximum, doc) std::int64_t member = initial;
#define THESEUS_REAL(member, name, initial, minimum, maximum, doc) double member = initial;
#define THESEUS_FLAG(member, name, initial, doc) bool member = initial;
#include "base/config.def"
#undef THESEUS_TEXT
#undef THESEUS_SECRET_TEXT
#undef THESEUS_CHOICE
#undef THESEUS_WHOLE
#undef THESEUS_REAL
#undef THESEUS_FLAG
  friend bool operator==(const Configuration&, const Configuration&) = default;
};

/// nullopt: the variable is not set.
using VariableLookup = std::function<std::optional<std::string>(std::string_view name)>;

/// Values from `lookup`, defaults for the rest. Errors name the variable, its value and what it may be.
Result<Configuration> configurationFrom(const VariableLookup& lookup);
Result<Configuration> configurationFromEnvironment();

/// Every variable with its value, "NAME=value", secrets as "(set)" or "(empty)"; the default is marked.
std::string describe(const Configuration& configuration);

/// Those of `names` that begin with THESEUS_ and are no variable, each with the most similar one: a misspelt
/// variable has no effect.
std::vector<std::string> misspelt(std::span<const std::string> names);

/// The table as docs/configuration.md shows it.
std::string variablesAsMarkdown();

}  // namespace theseus::base
