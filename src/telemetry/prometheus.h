// Figures in Prometheus' text exposition format 0.0.4. Pure function, any thread.
#pragma once

#include <span>
#include <string>

#include "telemetry/counters.h"

namespace theseus::telemetry {

/// `figures` must be sorted by name, as CounterRegistry::figures gives them: a name's lines stand together
/// under one HELP and TYPE. Letters that a name may not have become '_'; label values and help are escaped.
std::string prometheusText(std::span<const Figure> figures);

}  // namespace theseus::telemetry
