// MSCCL XML in (msccl-tools and RCCL dialects). Pure function, any thread. pugixml stays inside xml.cpp.
#pragma once

#include <string_view>

#include "schedule/schedule.h"
#include "theseus/result.h"

namespace theseus::schedule {

/// Reads an <algo> and lowers it to the IR: each message becomes a put into scratch of the receiver and a
/// signal (a slot of scratch for each message, so no flow control is needed), each dependency a semaphore.
Result<Schedule> readXml(std::string_view text);

/// Reads JSON or XML by the first non-blank character.
Result<Schedule> readAny(std::string_view text);

}  // namespace theseus::schedule
