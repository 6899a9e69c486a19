// The meaning of the IR: runs all ranks of a schedule in one process, one op at a time, on plain memory. Slow
// and obvious; the oracle of every other executor's tests. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/schedule.h"
#include "theseus/result.h"
#include "theseus/types.h"

namespace theseus::exec {

struct ReferenceRun {
  DataType dataType = DataType::kFloat32;
  ReduceOp reduceOp = ReduceOp::kSum;
  std::uint64_t count = 0;  // as users count: see schedule::messageSize
  bool inPlace = false;
  std::uint64_t seed = 0;  // order in which runnable thread blocks step; any order must give the same result
};

/// Runs `schedule`. inputs[r] are rank r's bytes; returns every rank's output bytes. The plan need not be
/// verified: a deadlock is an error that names the waiting ops, an access out of bounds an error that names
/// the op.
Result<std::vector<std::vector<std::byte>>> runReference(const schedule::Schedule& schedule,
                                                         const ReferenceRun& run,
                                                         const std::vector<std::vector<std::byte>>& inputs);

/// What the collective means, with no schedule at all: every rank's output from every rank's input, folded in
/// rank order. Ranges that the collective leaves undefined keep `undefined` bytes (0xA5).
std::vector<std::vector<std::byte>> expectedResult(Collective collective, Rank root, const ReferenceRun& run,
                                                   const std::vector<std::vector<std::byte>>& inputs);

}  // namespace theseus::exec
