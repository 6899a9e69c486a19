// The answers of a rank as tables for people. Pure functions; what an answer lacks is left out, since ranks may be of another release.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace theseus::cli {

std::string statusView(const nlohmann::json& status);
std::string attributesView(const nlohmann::json& status);
std::string explainView(const nlohmann::json& explanation);

/// Columns as wide as their widest cell, two spaces apart, numbers to the right.
std::string table(const std::vector<std::string>& heads, const std::vector<std::vector<std::string>>& rows);

}  // namespace theseus::cli
