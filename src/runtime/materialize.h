// From texts and candidates to schedules that this rank can run. Pure, any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "policy/policy.h"
#include "resource/schedule_node.h"
#include "theseus/result.h"

namespace theseus::runtime {

/// Level L1 of the resource tree for what was prepared (expanded and verified). Errors: it needs what host
/// memory does not have.
Result<std::unique_ptr<resource::ScheduleNode>> materialize(const std::string& name,
                                                            const policy::Preparation& preparation,
                                                            Rank rank);

/// Reads a schedule for `ranks` ranks from text: plan JSON, MSCCL XML or a generator call, verified. Errors
/// say what is wrong and where.
Result<policy::Candidate> readCandidate(const std::string& text, int ranks);

/// What CommunicatorOptions::schedule means: a text as above, or a generator's name with parameters, "ring"
/// or "ring(channels=2)", which then stands for every collective that the generator knows.
Result<std::vector<policy::Candidate>> fixedSchedules(const std::string& text, int ranks);

}  // namespace theseus::runtime
