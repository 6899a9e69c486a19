// Execution-plan JSON in and out. Pure functions, any thread. nlohmann-json stays inside json.cpp.
#pragma once

#include <string>
#include <string_view>

#include "schedule/schedule.h"
#include "theseus/result.h"

namespace theseus::schedule {

/// Reads an MSCCL++ execution plan. Strict: every key's type, unknown op names, nesting depth and negative
/// numbers are checked, and an error names the place ("gpus[3].threadblocks[0].ops[7].src_buff[0].index").
/// What the plan means is the verifier's business. Accepts old files without buffer_alignment and message
/// sizes.
Result<Schedule> readJson(std::string_view text);

/// The canonical form: fixed key order, sets sorted, two-space indentation when `pretty`.
/// readJson(writeJson(s)) == s for every schedule.
std::string writeJson(const Schedule& schedule, bool pretty = false);

}  // namespace theseus::schedule
