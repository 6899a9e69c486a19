// The answers of a rank (JSON text) as tables for people. Pure functions; what an answer lacks is left out,
// since ranks may be of another release. Everything that ctl does with JSON is behind these.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace theseus::cli {

std::string statusView(const std::string& status);
std::string attributesView(const std::string& status);
std::string explainView(const std::string& explanation);
/// The hash that a rank gave to an added schedule.
std::string addedView(const std::string& answer);

/// What the rank says went wrong: {"error": TEXT} or {"error": {"message": TEXT}}; also for an answer that is
/// not JSON.
std::optional<std::string> errorIn(const std::string& answer);
/// Indented, with a line end.
std::string prettyJson(const std::string& answer);

/// Columns as wide as their widest cell, two spaces apart, numbers to the right.
std::string table(const std::vector<std::string>& heads, const std::vector<std::vector<std::string>>& rows);

}  // namespace theseus::cli
