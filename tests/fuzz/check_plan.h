// What must hold of any plan that a reader has taken, valid or not. Used by the fuzzers of both readers; one
// thread.
#pragma once

#include "base/check.h"
#include "schedule/json.h"
#include "schedule/resolve.h"
#include "schedule/verify/verify.h"

namespace theseus::schedule::fuzzing {

inline void checkPlan(const Schedule& plan) {
  const auto text = writeJson(plan);
  const auto again = readJson(text);
  THESEUS_CHECK(again.has_value(), "a written plan must be readable");
  THESEUS_CHECK(writeJson(*again) == text, "the canonical form must be a fixed point");
  const auto verdict = verify(plan);
  // Resolution must not rely on the verifier's word: it answers or refuses, whatever the plan.
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{4096}}) {
    const auto size = messageSize(plan.collective(), plan.rankCount(), count, 4);
    for (Rank rank = 0; rank < std::min(plan.rankCount(), 4); ++rank) {
      const auto resolved = resolve(plan, rank, size);
      if (resolved)
        THESEUS_CHECK(
            resolved->threadBlocks.size() == plan.ranks[static_cast<std::size_t>(rank)].threadBlocks.size(),
            "one list a block");
      (void)upstreamScratch(plan, rank, size);
    }
  }
  (void)verdict;
}

}  // namespace theseus::schedule::fuzzing
