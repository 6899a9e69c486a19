// Pass 2, second part: what shows only once pipelines are unrolled and ranges are bytes.
#include <fmt/format.h>

#include "schedule/verify/shapes.h"
#include "schedule/verify/trace.h"

namespace theseus::schedule::verifying {
namespace {

struct Tally {
  std::int64_t released = 0;
  std::int64_t acquired = 0;
  const Step* lastRelease = nullptr;
  const Step* lastAcquire = nullptr;
};

void checkCounters(const Program& program, Report& report) {
  std::vector<Tally> tallies(program.counters.size());
  for (const Thread& thread : program.threads) {
    for (const Step& step : thread.steps) {
      for (const std::uint32_t counter : step.releases) {
        ++tallies[counter].released;
        tallies[counter].lastRelease = &step;
      }
      for (const std::uint32_t counter : step.acquires) {
        ++tallies[counter].acquired;
        tallies[counter].lastAcquire = &step;
      }
    }
  }
  for (std::size_t i = 0; i < tallies.size(); ++i) {
    const Tally& tally = tallies[i];
    if (tally.released == tally.acquired) continue;
    const Counter& counter = program.counters[i];
    const Step* culprit = tally.released > tally.acquired ? tally.lastRelease : tally.lastAcquire;
    const Step* other = tally.released > tally.acquired ? tally.lastAcquire : tally.lastRelease;
    const bool semaphore = counter.name.starts_with("semaphore");
    report.add(
        {VerifyPass::kResources, semaphore ? "semaphore-imbalance" : "signal-imbalance", culprit->place,
         other == nullptr ? std::nullopt : std::optional<OpPlace>(other->place),
         fmt::format(
             "rank {} {}: {} given and {} taken in one collective; the next one would begin wrong ({})",
             counter.rank, counter.name, tally.released, tally.acquired, program.describe())});
  }
}

bool overlap(const CellRange& left, std::uint32_t leftCells, const CellRange& right,
             std::uint32_t rightCells) {
  return left.space == right.space && left.first < right.first + rightCells &&
         right.first < left.first + leftCells;
}

/// Within one op every destination must be apart from every other operand, except that it may be a source of
/// the very same piece, cell for cell.
bool hasOverlap(const Step& step) {
  const auto meets = [](const Move& writing, const CellRange& destination, const Move& other) {
    for (const CellRange& source : other.sources) {
      const bool same =
          &writing == &other && source.space == destination.space && source.first == destination.first;
      if (!same && overlap(destination, writing.cells, source, other.cells)) return true;
    }
    for (const CellRange& written : other.destinations) {
      if (&written != &destination && overlap(destination, writing.cells, written, other.cells)) return true;
    }
    return false;
  };
  for (const Move& writing : step.moves) {
    for (const CellRange& destination : writing.destinations) {
      for (const Move& other : step.moves) {
        if (meets(writing, destination, other)) return true;
      }
    }
  }
  return false;
}

}  // namespace

void checkBalance(const Program& program, Report& report) {
  checkCounters(program, report);
  for (const Thread& thread : program.threads) {
    for (const Step& step : thread.steps) {
      if (!hasOverlap(step)) continue;
      report.add({VerifyPass::kResources, "overlapping-operands", step.place, std::nullopt,
                  fmt::format("{}: a destination overlaps another operand of the same op ({})",
                              traits(step.code).name, program.describe())});
    }
  }
}

}  // namespace theseus::schedule::verifying
