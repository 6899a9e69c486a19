// From texts and candidates to schedules that this rank can run. Pure, any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "policy/policy.h"
#include "resource/schedule_node.h"
#include "theseus/result.h"

namespace theseus::runtime {

/// The verifier's word, then level L1 of the resource tree. Errors: the schedule is not valid (first finding), or needs what host memory
/// does not have.
Result<std::unique_ptr<resource::ScheduleNode>> materialize(const policy::Candidate& candidate, Rank rank);

/// Reads a schedule for `ranks` ranks from text: plan JSON, MSCCL XML or a generator call, verified. Errors say what is wrong and where.
Result<policy::Candidate> readCandidate(const std::string& text, int ranks);

/// What CommunicatorOptions::schedule means: a text as above, or a generator's name with parameters, "ring" or "ring(channels=2)", which then
/// stands for every collective that the generator knows.
Result<std::vector<policy::Candidate>> fixedSchedules(const std::string& text, int ranks);

}  // namespace theseus::runtime
