// One rank of `theseus bench swap`: a stream of allReduces of random sizes while the schedule is forced to
// change again and again; every result is checked, and so is that all ranks ran each collective by the same
// schedule.
#pragma once

#include <string>

#include "theseus/options.h"
#include "theseus/result.h"

namespace theseus::cli {

struct BenchSwapOptions {
  int collectives = 2000;
  int every = 20;
  std::string jsonFile;
};

/// Exit code: 0 if nothing was wrong and swaps took place.
Result<int> benchSwapRank(const BenchSwapOptions& options, const CommunicatorOptions& communicatorOptions);

}  // namespace theseus::cli
