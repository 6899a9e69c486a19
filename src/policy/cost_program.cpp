#include "policy/cost_program.h"

#include <algorithm>

#include "schedule/verify/program.h"

namespace theseus::policy {
namespace {

namespace verifying = schedule::verifying;

class Reduction {
 public:
  explicit Reduction(const verifying::Program& program) : program_(program) {
    for (const verifying::Space& space : program.spaces) {
      spaceStart_.push_back(result_.cells);
      result_.cells += space.cells;
    }
    // A barrier moves signals alone: its message is empty.
    messageBytes_ =
        std::max(1.0, static_cast<double>(std::max(program.size.inputBytes, program.size.outputBytes)));
  }

  CostProgram run() && {
    result_.ranks = program_.schedule->rankCount();
    for (const verifying::Counter& counter : program_.counters) result_.counters.push_back(counter.initial);
    for (const verifying::Barrier& barrier : program_.barriers)
      result_.barrierThreads.push_back(barrier.threadBlocks);
    for (const verifying::Thread& thread : program_.threads) {
      if (thread.steps.empty()) continue;
      CostThread& reduced = result_.threads.emplace_back();
      reduced.rank = thread.rank;
      for (const verifying::Step& step : thread.steps) addStep(reduced, step);
    }
    return std::move(result_);
  }

 private:
  Rank ownerOf(const verifying::CellRange& range) const { return program_.spaces[range.space].rank; }
  std::uint32_t cellOf(const verifying::CellRange& range) const {
    return spaceStart_[range.space] + range.first;
  }
  double fraction(std::uint32_t cells) const {
    return static_cast<double>(cells) * static_cast<double>(program_.cellBytes) / messageBytes_;
  }

  /// Steps that cost nothing and order nothing vanish.
  void addStep(CostThread& thread, const verifying::Step& step) {
    CostStep reduced;
    reduced.acquires = step.acquires;
    for (const verifying::Move& move : step.moves) addMove(reduced, thread.rank, step, move);
    for (const std::uint32_t counter : step.releases) {
      reduced.releases.push_back({counter, program_.counters[counter].rank});
    }
    if (step.code == schedule::OpCode::kBarrier) reduced.barrier = barrierOf(thread.rank, step.barrierId);
    const bool matters = !reduced.acquires.empty() || !reduced.packetWaits.empty() ||
                         !reduced.messages.empty() || !reduced.localPackets.empty() ||
                         !reduced.releases.empty() || reduced.barrier >= 0;
    if (matters) thread.steps.push_back(std::move(reduced));
  }

  void addMove(CostStep& reduced, Rank rank, const verifying::Step& step, const verifying::Move& move) {
    for (const verifying::CellRange& source : move.sources) {
      if (source.packet && step.waitsForPackets) reduced.packetWaits.push_back({cellOf(source), move.cells});
      if (ownerOf(source) == rank) continue;
      reduced.messages.push_back({ownerOf(source), rank, fraction(move.cells), true, 0, 0});
    }
    for (const verifying::CellRange& destination : move.destinations) {
      const std::uint32_t packets = destination.packet ? move.cells : 0;
      if (ownerOf(destination) == rank) {
        if (packets > 0) reduced.localPackets.push_back({cellOf(destination), packets});
        continue;
      }
      reduced.messages.push_back(
          {rank, ownerOf(destination), fraction(move.cells), false, cellOf(destination), packets});
    }
  }

  std::int32_t barrierOf(Rank rank, std::uint32_t id) const {
    for (std::size_t position = 0; position < program_.barriers.size(); ++position) {
      const verifying::Barrier& barrier = program_.barriers[position];
      if (barrier.rank == rank && barrier.id == id) return static_cast<std::int32_t>(position);
    }
    return -1;
  }

  const verifying::Program& program_;
  CostProgram result_;
  std::vector<std::uint32_t> spaceStart_;
  double messageBytes_ = 1;
};

}  // namespace

Result<CostProgram> buildCostProgram(const schedule::Schedule& schedule) {
  const verifying::ExaminedSize examined = verifying::examinedSizes(schedule).front();
  auto program = verifying::buildProgram(schedule, examined.size, examined.inPlace);
  if (!program) return fail(program.error());
  return Reduction(*program).run();
}

}  // namespace theseus::policy
