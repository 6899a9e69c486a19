// Shared by the files of `theseus plan`. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "schedule/schedule.h"
#include "theseus/result.h"

namespace theseus::cli {

struct PlanShowOptions {
  std::optional<std::uint64_t> bytes;  // of the message, as min_message_size counts them
  std::uint32_t elementBytes = 4;
  std::optional<int> rank;  // only this one
};

/// The four layers of a plan for people: global, rank, thread block, op. With bytes, ops show their ranges.
/// Errors: a size that the plan cannot have.
Result<std::string> showPlan(const schedule::Schedule& schedule, const PlanShowOptions& options);

/// Figures of a plan as JSON text: hash, ranks, ops by class, channels, scratch and wire bytes for a size.
Result<std::string> planFiguresJson(const schedule::Schedule& schedule, const PlanShowOptions& options);

std::string_view bufferModeText(schedule::BufferMode mode);

}  // namespace theseus::cli
