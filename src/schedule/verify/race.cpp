// Pass 4: data races, by vector clocks. Every thread carries two: what has been executed before (execution),
// and what has been made visible (data). Relaxed signals carry the first only. docs/verifier.md argues the
// rules.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "schedule/verify/shapes.h"
#include "schedule/verify/trace.h"

namespace theseus::schedule::verifying {
namespace {

using Clock = std::vector<std::uint32_t>;

void join(Clock& into, const Clock& from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

/// What a thread knows: per thread, up to which of its steps.
struct Knowledge {
  Clock execution;
  Clock data;
};

struct Release {
  std::shared_ptr<const Knowledge> knowledge;
  bool relaxed = false;
};

/// Releases of one counter in the order of each releasing thread.
struct CounterHistory {
  std::map<std::uint32_t, std::vector<Release>> byThread;
  std::map<std::uint32_t, std::int64_t> totals;  // releases of each thread in the whole run
  std::int64_t total = 0;
  std::int64_t acquired = 0;
};

struct Access {
  std::uint32_t thread = 0;
  std::uint32_t clock = 0;  // 0 = none
  std::uint32_t step = 0;   // number in steps_
};

struct Cell {
  Access write;
  std::vector<Access> reads;                // since that write, the latest of each thread
  std::shared_ptr<const Knowledge> packet;  // of the first packet write
};

class RacePass {
 public:
  RacePass(const RaceInput& input, Report& report)
      : program_(input.program), trace_(input.trace), delivery_(input.delivery), report_(report) {
    const Program& program = program_;
    if (delivery_ == Delivery::kPairwise) numberLinks();
    const std::size_t threads = program.threads.size() + links_;
    known_.resize(threads);
    for (Knowledge& knowledge : known_) knowledge = {Clock(threads, 0), Clock(threads, 0)};
    histories_.resize(program.counters.size());
    for (const Space& space : program.spaces) cells_.emplace_back(space.cells);
    const std::size_t ranks = program.schedule->ranks.size();
    peerReads_.assign(ranks, Clock(threads, 0));
    peerWrites_.assign(ranks, Clock(threads, 0));
    countReleases();
  }

  bool run() {
    for (std::size_t i = 0; i < trace_.size() && !report_.full(); ++i) {
      const TraceEvent& event = trace_[i];
      if (event.group > 1) meet(i, event.group);
      execute(event.thread, program_.threads[event.thread].steps[event.step]);
    }
    if (program_.schedule->collective() == Collective::kBarrier) checkBarrierMeaning();
    return tailSynchronized();
  }

 private:
  /// Under pairwise delivery everything that one rank sends another goes through one link, in order; the
  /// links are threads behind those of the program.
  void numberLinks() {
    const auto ranks = static_cast<std::size_t>(program_.schedule->rankCount());
    linkOf_.assign(ranks * ranks, 0);
    const auto need = [&](Rank from, Rank to) {
      auto& link = linkOf_[static_cast<std::size_t>(from) * ranks + static_cast<std::size_t>(to)];
      if (from != to && link == 0) link = static_cast<std::uint32_t>(program_.threads.size() + links_++);
    };
    for (const Thread& thread : program_.threads) {
      for (const Step& step : thread.steps) {
        for (const std::uint32_t counter : step.releases) need(thread.rank, program_.counters[counter].rank);
        for (const Move& move : step.moves) {
          for (const CellRange& range : move.destinations)
            need(thread.rank, program_.spaces[range.space].rank);
        }
      }
    }
  }

  /// The thread through which `thread` reaches `rank`: a port channel's agent, a link, or itself.
  std::uint32_t carrier(std::uint32_t thread, std::int32_t agent, Rank rank) const {
    if (agent >= 0) return static_cast<std::uint32_t>(agent);
    const Rank own = program_.threads[thread].rank;
    if (delivery_ == Delivery::kShared || own == rank) return thread;
    return linkOf_[static_cast<std::size_t>(own) * static_cast<std::size_t>(program_.schedule->rankCount()) +
                   static_cast<std::size_t>(rank)];
  }

  std::uint32_t releaser(const Step& step, std::size_t i, std::uint32_t thread) const {
    return carrier(thread, step.releaseAgents[i], program_.counters[step.releases[i]].rank);
  }

  void countReleases() {
    for (const TraceEvent& event : trace_) {
      const Step& step = program_.threads[event.thread].steps[event.step];
      for (std::size_t i = 0; i < step.releases.size(); ++i) {
        CounterHistory& history = histories_[step.releases[i]];
        ++history.totals[releaser(step, i, event.thread)];
        ++history.total;
      }
    }
  }

  void tick(std::uint32_t thread) {
    Knowledge& own = known_[thread];
    own.data[thread] = ++own.execution[thread];
  }

  void absorb(std::uint32_t thread, const Knowledge& other, bool dataToo) {
    join(known_[thread].execution, other.execution);
    if (dataToo) join(known_[thread].data, other.data);
  }

  std::shared_ptr<const Knowledge> snapshot(std::uint32_t thread) const {
    return std::make_shared<const Knowledge>(known_[thread]);
  }

  void meet(std::size_t first, std::uint32_t group) {
    Knowledge all = known_[trace_[first].thread];
    for (std::size_t i = first + 1; i < first + group; ++i) {
      join(all.execution, known_[trace_[i].thread].execution);
      join(all.data, known_[trace_[i].thread].data);
    }
    for (std::size_t i = first; i < first + group; ++i) absorb(trace_[i].thread, all, true);
  }

  void execute(std::uint32_t thread, const Step& step) {
    tick(thread);
    steps_.push_back(&step);
    for (const std::uint32_t counter : step.acquires) acquire(thread, step, histories_[counter]);
    if (step.waitsForPackets) receivePackets(thread, step);
    for (const Move& move : step.moves) {
      const bool posted =
          std::any_of(move.agents.begin(), move.agents.end(), [](std::int32_t agent) { return agent >= 0; });
      if (!posted || step.waitsForPackets) readAll(move, thread, step);
    }
    writeMoves(thread, step);
    for (std::size_t i = 0; i < step.releases.size(); ++i) release(thread, step, i);
    // A flush says that the sources have been read; it says nothing of the far side.
    for (const std::int32_t agent : step.flushes)
      absorb(thread, known_[static_cast<std::size_t>(agent)], false);
  }

  /// Hands work to an agent: it knows what the block knows, and does it some time later; the block goes on at
  /// once. So over port the source, too, is read by the agent.
  void post(std::uint32_t thread, std::uint32_t agent) {
    if (agent == thread) return;
    absorb(agent, known_[thread], true);
    tick(agent);
  }

  void writeMoves(std::uint32_t thread, const Step& step) {
    for (const Move& move : step.moves) {
      for (std::size_t i = 0; i < move.destinations.size(); ++i) {
        const Rank owner = program_.spaces[move.destinations[i].space].rank;
        const std::uint32_t writer = carrier(thread, move.agents[i], owner);
        post(thread, writer);
        if (move.agents[i] >= 0) readAll(move, writer, step);
        access(writer, step, {move.destinations[i], move.cells, true});
        if (move.destinations[i].packet) deliver(writer, move.destinations[i], move.cells);
      }
    }
  }

  void readAll(const Move& move, std::uint32_t reader, const Step& step) {
    for (const CellRange& range : move.sources) access(reader, step, {range, move.cells, false});
  }

  void deliver(std::uint32_t writer, const CellRange& range, std::uint32_t count) {
    std::shared_ptr<const Knowledge> knowledge;
    for (std::uint32_t i = range.first; i < range.first + count; ++i) {
      Cell& cell = cells_[range.space][i];
      if (cell.packet) continue;
      if (!knowledge) knowledge = snapshot(writer);
      cell.packet = knowledge;
    }
  }

  void receivePackets(std::uint32_t thread, const Step& step) {
    const Knowledge* last = nullptr;
    for (const Move& move : step.moves) {
      for (const CellRange& range : move.sources) {
        if (!range.packet) continue;
        for (std::uint32_t i = range.first; i < range.first + move.cells; ++i) {
          const Knowledge* knowledge = cells_[range.space][i].packet.get();
          if (knowledge == nullptr || knowledge == last) continue;
          absorb(thread, *knowledge, true);
          last = knowledge;
        }
      }
    }
  }

  void acquire(std::uint32_t thread, const Step& step, CounterHistory& history) {
    const std::int64_t initial =
        program_.counters[static_cast<std::size_t>(&history - histories_.data())].initial;
    const std::int64_t needed = ++history.acquired - initial;
    for (const auto& [releaserThread, releases] : history.byThread) {
      // Without this thread's last releases there would be too few: those before have surely happened.
      const std::int64_t others = history.total - history.totals[releaserThread];
      const std::int64_t forced = std::min(needed - others, static_cast<std::int64_t>(releases.size()));
      if (forced <= 0) continue;
      const Release& last = releases[static_cast<std::size_t>(forced - 1)];
      absorb(thread, *last.knowledge, !last.relaxed && !step.relaxed);
      if (last.relaxed && !step.relaxed) absorbEarlier(thread, releases, forced);
    }
  }

  /// A strong wait behind a relaxed signal still sees what the strong signals before it published.
  void absorbEarlier(std::uint32_t thread, const std::vector<Release>& releases, std::int64_t forced) {
    for (std::int64_t i = forced - 2; i >= 0; --i) {
      const Release& release = releases[static_cast<std::size_t>(i)];
      if (release.relaxed) continue;
      absorb(thread, *release.knowledge, true);
      return;
    }
  }

  void release(std::uint32_t thread, const Step& step, std::size_t i) {
    const std::uint32_t giver = releaser(step, i, thread);
    post(thread, giver);
    histories_[step.releases[i]].byThread[giver].push_back({snapshot(giver), step.relaxed});
  }

  struct Touch {
    const CellRange& range;
    std::uint32_t cells;
    bool write;
  };

  void access(std::uint32_t thread, const Step& step, const Touch& touch) {
    const Access now{thread, known_[thread].execution[thread], static_cast<std::uint32_t>(steps_.size() - 1)};
    const Rank owner = program_.spaces[touch.range.space].rank;
    if (owner != step.place.rank) {
      (touch.write ? peerWrites_ : peerReads_)[static_cast<std::size_t>(owner)][thread] = now.clock;
    }
    for (std::uint32_t i = touch.range.first; i < touch.range.first + touch.cells; ++i) {
      Cell& cell = cells_[touch.range.space][i];
      if (cell.write.clock > known_[thread].data[cell.write.thread]) conflict({step, touch, i}, cell.write);
      if (touch.write) {
        for (const Access& read : cell.reads) {
          if (read.clock > known_[thread].execution[read.thread]) conflict({step, touch, i}, read, true);
        }
        cell.write = now;
        cell.reads.clear();
      } else {
        noteRead(cell, now);
      }
    }
  }

  static void noteRead(Cell& cell, const Access& now) {
    for (Access& read : cell.reads) {
      if (read.thread != now.thread) continue;
      read = now;
      return;
    }
    cell.reads.push_back(now);
  }

  struct Here {
    const Step& step;
    const Touch& touch;
    std::uint32_t cell;
  };

  void conflict(const Here& here, const Access& earlier, bool earlierReads = false) {
    const auto& [step, touch, cell] = here;
    const char* kind = !touch.write   ? "read-write-race"
                       : earlierReads ? "read-write-race"
                                      : "write-write-race";
    const Step& other = *steps_[earlier.step];
    const Space& space = program_.spaces[touch.range.space];
    const bool relaxed = earlier.clock <= known_[programThread(step)].execution[earlier.thread];
    report_.add(
        {VerifyPass::kRace, kind, step.place, other.place,
         fmt::format(
             "{} here and {} there touch rank {} '{}' byte {} and nothing orders them{}: put a signal and "
             "a wait, a semaphore or a barrier between them ({})",
             traits(step.code).name, traits(other.code).name, space.rank, name(space.kind),
             cell * program_.cellBytes,
             relaxed ? " (a relaxed signal orders reads before writes, it publishes no data)"
                     : portHint(other),
             program_.describe())});
  }

  static const char* portHint(const Step& other) {
    for (const Move& move : other.moves) {
      for (const std::int32_t agent : move.agents) {
        if (agent >= 0) return " (a port transfer is over only after a flush or a signal on its channel)";
      }
    }
    return "";
  }

  std::size_t programThread(const Step& step) const {
    for (std::size_t i = 0; i < program_.threads.size(); ++i) {
      const Thread& thread = program_.threads[i];
      if (thread.rank == step.place.rank && thread.block == step.place.threadBlock) return i;
    }
    return 0;
  }

  /// What each rank knows when all its blocks have ended.
  std::vector<Knowledge> ends() const {
    const std::size_t threads = known_.size();
    std::vector<Knowledge> result(program_.schedule->ranks.size(), {Clock(threads, 0), Clock(threads, 0)});
    for (std::size_t i = 0; i < program_.threads.size(); ++i) {
      if (program_.threads[i].block < 0) continue;
      Knowledge& end = result[static_cast<std::size_t>(program_.threads[i].rank)];
      join(end.execution, known_[i].execution);
      join(end.data, known_[i].data);
    }
    return result;
  }

  bool tailSynchronized() const {
    const std::vector<Knowledge> finals = ends();
    for (std::size_t rank = 0; rank < finals.size(); ++rank) {
      for (std::size_t thread = 0; thread < known_.size(); ++thread) {
        if (peerReads_[rank][thread] > finals[rank].execution[thread]) return false;
        if (peerWrites_[rank][thread] > finals[rank].data[thread]) return false;
      }
    }
    return true;
  }

  /// A barrier's postcondition: no rank ends before every rank has begun.
  void checkBarrierMeaning() {
    const std::vector<Knowledge> finals = ends();
    for (std::size_t rank = 0; rank < finals.size(); ++rank) {
      for (std::size_t other = 0; other < finals.size(); ++other) {
        if (other == rank || knowsOf(finals[rank], static_cast<Rank>(other))) continue;
        report_.add(
            {VerifyPass::kMeaning,
             "barrier-incomplete",
             {static_cast<Rank>(rank)},
             OpPlace{static_cast<Rank>(other)},
             fmt::format("can end before rank {} has begun: no chain of signals leads from it", other)});
      }
    }
  }

  bool knowsOf(const Knowledge& end, Rank rank) const {
    for (std::size_t i = 0; i < program_.threads.size(); ++i) {
      if (program_.threads[i].rank == rank && end.execution[i] > 0) return true;
    }
    return false;
  }

  const Program& program_;
  const std::vector<TraceEvent>& trace_;
  Delivery delivery_;
  Report& report_;
  std::size_t links_ = 0;
  std::vector<std::uint32_t> linkOf_;  // by sender * ranks + receiver; 0 = unused
  std::vector<Knowledge> known_;
  std::vector<CounterHistory> histories_;
  std::vector<std::vector<Cell>> cells_;
  std::vector<const Step*> steps_;
  std::vector<Clock> peerReads_;  // by owner: the last read of each peer's thread
  std::vector<Clock> peerWrites_;
};

}  // namespace

bool checkRaces(const RaceInput& input, Report& report) { return RacePass(input, report).run(); }

}  // namespace theseus::schedule::verifying
