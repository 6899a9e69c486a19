// Inputs and expected results of a benchmarked collective: small whole numbers, so that every order of
// reduction gives the same bits. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "theseus/types.h"

namespace theseus::cli {

struct BenchCall {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::uint64_t count = 0;  // as the Communicator counts
  int ranks = 1;
  int root = 0;
  std::uint64_t seed = 0;  // another input for another call
};

/// Elements of one rank's source and destination.
std::uint64_t sourceElements(const BenchCall& call);
std::uint64_t destinationElements(const BenchCall& call);

/// Fills `bytes` with rank `rank`'s source.
void fillSource(const BenchCall& call, int rank, std::vector<std::byte>& bytes);
/// Elements of rank `rank`'s destination that are not what the collective means.
std::uint64_t countWrong(const BenchCall& call, int rank, const std::byte* destination);

/// nccl-tests' factor between algorithm bandwidth and bus bandwidth.
double busFactor(Collective collective, int ranks);

}  // namespace theseus::cli
