#include "sim/simulation.h"

#include <gtest/gtest.h>

namespace theseus::sim {
namespace {

TEST(Simulation, HundredsOfSeedsKeepEveryInvariant) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    const SimulationResult result = simulate(options);
    ASSERT_FALSE(result.violation) << "seed " << seed << ": " << *result.violation;
  }
}

}  // namespace
}  // namespace theseus::sim
