// A flight record as Chrome trace JSON, which Perfetto and chrome://tracing open. Pure function, any thread.
#pragma once

#include <span>
#include <string>

#include "telemetry/flight_recorder.h"

namespace theseus::telemetry {

/// One process a rank, one track a thread. A Begin and the next End of the same track name and value a on one
/// thread become a slice; an End whose Begin the ring has lost is left out, a Begin without End becomes a
/// slice that is still open.
std::string traceJson(std::span<const ThreadEvents> threads, int rank);

}  // namespace theseus::telemetry
