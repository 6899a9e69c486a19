// Pass 3: freedom from deadlock, by abstract execution with counters.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "schedule/verify/shapes.h"
#include "schedule/verify/trace.h"

namespace theseus::schedule::verifying {
namespace {

/// What a blocked thread waits for.
struct Obstacle {
  enum class Kind : std::uint8_t { kNone, kCounter, kBarrier, kPacket };
  Kind kind = Kind::kNone;
  std::uint32_t counter = 0;  // kCounter
  std::uint32_t barrier = 0;  // kBarrier: position in Program::barriers
  std::uint32_t space = 0;    // kPacket
  std::uint32_t cell = 0;     // kPacket
};

class Execution {
 public:
  Execution(const Program& program, Report& report) : program_(program), report_(report) {
    position_.resize(program.threads.size());
    obstacle_.resize(program.threads.size());
    for (const Counter& counter : program.counters) value_.push_back(counter.initial);
    counterWaiters_.resize(program.counters.size());
    arrived_.resize(program.barriers.size());
    for (const Space& space : program.spaces) packets_.emplace_back(space.cells, false);
    for (std::uint32_t thread = 0; thread < program.threads.size(); ++thread) {
      if (!program.threads[thread].steps.empty()) ready_.push_back(thread);
    }
  }

  std::vector<TraceEvent> run() {
    while (!ready_.empty()) {
      const std::uint32_t thread = ready_.front();
      ready_.pop_front();
      advance(thread);
    }
    reportBlocked();
    return std::move(trace_);
  }

 private:
  const std::vector<Step>& stepsOf(std::uint32_t thread) const { return program_.threads[thread].steps; }
  bool ended(std::uint32_t thread) const { return position_[thread] == stepsOf(thread).size(); }
  const Step& stepOf(std::uint32_t thread) const { return stepsOf(thread)[position_[thread]]; }

  void advance(std::uint32_t thread) {
    obstacle_[thread] = {};
    while (!ended(thread)) {
      const Step& step = stepOf(thread);
      if (step.code == OpCode::kBarrier) {
        arrive(thread, step);
        return;
      }
      if (auto obstacle = obstacleOf(step)) {
        park(thread, *obstacle);
        return;
      }
      execute(thread, step);
    }
  }

  std::optional<Obstacle> obstacleOf(const Step& step) const {
    for (const std::uint32_t counter : step.acquires) {
      const auto needed = std::count(step.acquires.begin(), step.acquires.end(), counter);
      if (value_[counter] < needed) return Obstacle{Obstacle::Kind::kCounter, counter};
    }
    if (!step.waitsForPackets) return std::nullopt;
    for (const Move& move : step.moves) {
      for (const CellRange& range : move.sources) {
        if (!range.packet) continue;
        const auto& cells = packets_[range.space];
        for (std::uint32_t cell = range.first; cell < range.first + move.cells; ++cell) {
          if (!cells[cell]) return Obstacle{Obstacle::Kind::kPacket, 0, 0, range.space, cell};
        }
      }
    }
    return std::nullopt;
  }

  void park(std::uint32_t thread, const Obstacle& obstacle) {
    obstacle_[thread] = obstacle;
    if (obstacle.kind == Obstacle::Kind::kCounter) counterWaiters_[obstacle.counter].push_back(thread);
    if (obstacle.kind == Obstacle::Kind::kPacket)
      packetWaiters_[{obstacle.space, obstacle.cell}].push_back(thread);
  }

  void arrive(std::uint32_t thread, const Step& step) {
    std::uint32_t barrier = 0;
    while (program_.barriers[barrier].rank != step.place.rank ||
           program_.barriers[barrier].id != step.barrierId) {
      ++barrier;
    }
    obstacle_[thread] = {Obstacle::Kind::kBarrier, 0, barrier};
    auto& arrived = arrived_[barrier];
    arrived.push_back(thread);
    if (arrived.size() < program_.barriers[barrier].threadBlocks) return;
    for (std::size_t i = 0; i < arrived.size(); ++i) {
      const auto group = static_cast<std::uint32_t>(i == 0 ? arrived.size() : 1);
      trace_.push_back({arrived[i], position_[arrived[i]]++, group});
      ready_.push_back(arrived[i]);
    }
    arrived.clear();
  }

  void execute(std::uint32_t thread, const Step& step) {
    trace_.push_back({thread, position_[thread]++});
    for (const std::uint32_t counter : step.acquires) --value_[counter];
    for (const Move& move : step.moves) {
      for (const CellRange& range : move.destinations) {
        if (range.packet) deliver(range, move.cells);
      }
    }
    for (const std::uint32_t counter : step.releases) {
      ++value_[counter];
      wake(counterWaiters_[counter]);
    }
  }

  void deliver(const CellRange& range, std::uint32_t cells) {
    for (std::uint32_t cell = range.first; cell < range.first + cells; ++cell) {
      packets_[range.space][cell] = true;
      if (packetWaiters_.empty()) continue;
      const auto waiters = packetWaiters_.find({range.space, cell});
      if (waiters == packetWaiters_.end()) continue;
      wake(waiters->second);
      packetWaiters_.erase(waiters);
    }
  }

  void wake(std::vector<std::uint32_t>& waiters) {
    ready_.insert(ready_.end(), waiters.begin(), waiters.end());
    waiters.clear();
  }

  // What remains is blocked for ever: find for each blocked block one block that it waits for, and follow
  // these.

  struct Cause {
    std::optional<std::uint32_t> thread;  // who would have to go on
    std::uint32_t step = 0;               // the op that would help
    std::string text;
  };

  template <class Helps>
  Cause findHelper(const Helps& helps, std::string text) const {
    for (std::uint32_t thread = 0; thread < program_.threads.size(); ++thread) {
      for (std::uint32_t i = position_[thread]; i < stepsOf(thread).size(); ++i) {
        if (helps(stepsOf(thread)[i])) return {thread, i, std::move(text)};
      }
    }
    return {std::nullopt, 0, std::move(text)};
  }

  Cause causeOf(std::uint32_t blocked) const {
    const Obstacle& obstacle = obstacle_[blocked];
    if (obstacle.kind == Obstacle::Kind::kCounter) {
      return findHelper(
          [&](const Step& step) {
            return std::find(step.releases.begin(), step.releases.end(), obstacle.counter) !=
                   step.releases.end();
          },
          program_.counters[obstacle.counter].name);
    }
    if (obstacle.kind == Obstacle::Kind::kBarrier) return barrierCause(obstacle.barrier);
    const Space& space = program_.spaces[obstacle.space];
    return findHelper(
        [&](const Step& step) {
          for (const Move& move : step.moves) {
            for (const CellRange& range : move.destinations) {
              if (range.packet && range.space == obstacle.space && obstacle.cell >= range.first &&
                  obstacle.cell < range.first + move.cells) {
                return true;
              }
            }
          }
          return false;
        },
        fmt::format("packets at byte {} of its '{}'", obstacle.cell * program_.cellBytes, name(space.kind)));
  }

  Cause barrierCause(std::uint32_t number) const {
    const Barrier& barrier = program_.barriers[number];
    Cause cause{std::nullopt, 0, fmt::format("barrier {} of {} blocks", barrier.id, barrier.threadBlocks)};
    for (std::uint32_t thread = 0; thread < program_.threads.size(); ++thread) {
      const auto& here = arrived_[number];
      if (program_.threads[thread].rank != barrier.rank || std::count(here.begin(), here.end(), thread) != 0)
        continue;
      for (std::uint32_t i = position_[thread]; i < stepsOf(thread).size(); ++i) {
        const Step& step = stepsOf(thread)[i];
        if (step.code == OpCode::kBarrier && step.barrierId == barrier.id) return {thread, i, cause.text};
      }
    }
    return cause;
  }

  void reportBlocked() {
    std::vector<int> seen(program_.threads.size(), -1);
    for (std::uint32_t start = 0; start < program_.threads.size(); ++start) {
      if (ended(start) || seen[start] >= 0) continue;
      follow(start, seen);
    }
  }

  /// Follows causes from `start` to a block that waits for nothing that can come, or round a circle.
  void follow(std::uint32_t start, std::vector<int>& seen) {
    std::vector<std::uint32_t> path;
    std::uint32_t thread = start;
    while (seen[thread] < 0) {
      seen[thread] = static_cast<int>(start);
      path.push_back(thread);
      const Cause cause = causeOf(thread);
      if (!cause.thread) {
        add("never-signaled", thread, std::nullopt,
            fmt::format("waits for {}, which nothing is left to give", cause.text));
        return;
      }
      thread = *cause.thread;
    }
    if (seen[thread] != static_cast<int>(start)) return;  // leads to what is reported already
    const auto first = std::find(path.begin(), path.end(), thread);
    addCycle({first, path.end()});
  }

  void addCycle(const std::vector<std::uint32_t>& cycle) {
    constexpr std::size_t kMaxLinks = 8;
    std::string message;
    for (std::size_t i = 0; i < cycle.size() && i < kMaxLinks; ++i) {
      const Cause cause = causeOf(cycle[i]);
      if (i != 0) message += "; ";
      message += fmt::format("{} ({}) waits for {}, which {} would give", toString(stepOf(cycle[i]).place),
                             traits(stepOf(cycle[i]).code).name, cause.text,
                             toString(stepsOf(*cause.thread)[cause.step].place));
    }
    if (cycle.size() > kMaxLinks) message += fmt::format("; and {} more", cycle.size() - kMaxLinks);
    const Cause own = causeOf(cycle.front());
    const OpPlace second = cycle.size() > 1 ? stepOf(cycle[1]).place : stepsOf(*own.thread)[own.step].place;
    add("deadlock", cycle.front(), second, std::move(message));
  }

  void add(std::string kind, std::uint32_t thread, std::optional<OpPlace> second, std::string message) {
    report_.add({VerifyPass::kDeadlock, std::move(kind), stepOf(thread).place, second,
                 std::move(message) + " (" + program_.describe() + ")"});
  }

  const Program& program_;
  Report& report_;
  std::vector<std::uint32_t> position_;
  std::vector<Obstacle> obstacle_;
  std::vector<std::int64_t> value_;
  std::vector<std::vector<std::uint32_t>> counterWaiters_;
  std::vector<std::vector<std::uint32_t>> arrived_;
  std::vector<std::vector<bool>> packets_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>> packetWaiters_;
  std::deque<std::uint32_t> ready_;
  std::vector<TraceEvent> trace_;
};

}  // namespace

std::vector<TraceEvent> runToEnd(const Program& program, Report& report) {
  return Execution(program, report).run();
}

}  // namespace theseus::schedule::verifying
