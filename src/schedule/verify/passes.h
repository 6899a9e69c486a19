// The verifier's passes, called in order by verify(). Internal to verify/; pure functions on their arguments.
#pragma once

#include <functional>

#include "schedule/verify/report.h"
#include "schedule/verify/verify.h"

namespace theseus::schedule::verifying {

/// Counts, operand lists, numbers that an op needs: all that one op or one rank shows by itself.
void checkStructure(const Schedule& schedule, const VerifyOptions& options, Report& report);

/// Ids and chunk ranges, channels paired on both sides, balance of signals, semaphores and barriers.
void checkResources(const Schedule& schedule, Report& report);

/// Calls `visit(place, op)` for every op and every op within a pipeline, in order.
void forEachOp(const Schedule& schedule, const std::function<void(const OpPlace&, const Op&)>& visit);

}  // namespace theseus::schedule::verifying
