// CommunicatorOptions from the variables that launchers set: torchrun and `theseus run` (RANK, WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT), Open MPI (OMPI_*), Slurm (SLURM_*), and our own THESEUS_*. Parsed strictly: an
// error names the variable. Pure functions of the environment, any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "theseus/options.h"
#include "theseus/result.h"

namespace theseus::runtime {

/// nullopt: the variable is not set. Tests pass a map.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;

Result<CommunicatorOptions> optionsFromEnvironment();
Result<CommunicatorOptions> optionsFrom(const EnvironmentLookup& lookup);

/// "node7" of "node[7-9,12],other3": the first host of a Slurm node list.
std::string firstSlurmHost(std::string_view list);

}  // namespace theseus::runtime
