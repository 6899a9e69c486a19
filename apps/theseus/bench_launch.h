// Ranks of a benchmark as forked processes of this program, or this process as one rank of a job that was
// started elsewhere.
#pragma once

#include <functional>

#include "theseus/options.h"
#include "theseus/result.h"

namespace theseus::cli {

/// Runs `body` once for each rank, in `ranks` children (rank, size, address, port and secret are filled in
/// `options`), and waits. If RANK is set in the environment, runs it here with that environment's options
/// instead. Returns the first failing exit code; the other ranks are ended then. No thread may run in this
/// process yet.
Result<int> runRanks(int ranks, CommunicatorOptions options,
                     const std::function<int(const CommunicatorOptions&)>& body);

}  // namespace theseus::cli
