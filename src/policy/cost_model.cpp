#include "policy/cost_model.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <queue>
#include <utility>

#include "base/check.h"
#include "policy/cost_program.h"

namespace theseus::policy {
namespace {

/// Share of a message's latency that keeps both ports busy (posting and completing it); the rest is flight
/// time.
constexpr double kOverheadShare = 0.1;
constexpr double kNever = -1;

/// One run of a program: a discrete-event simulation in which threads advance in the order of their clocks.
class Play {
 public:
  Play(const CostProgram& program, double bytes, const CostConditions& conditions,
       double overheadShare = kOverheadShare)
      : program_(program),
        bytes_(bytes),
        conditions_(conditions),
        overhead_(conditions.latencySeconds * overheadShare) {
    const auto ranks = static_cast<std::size_t>(program.ranks);
    egressFree_.assign(ranks, 0);
    ingressFree_.assign(ranks, 0);
    counters_.resize(program.counters.size());
    for (std::size_t counter = 0; counter < counters_.size(); ++counter) {
      const auto initial = std::max<std::int64_t>(0, program.counters[counter]);
      counters_[counter].units.assign(static_cast<std::size_t>(initial), 0.0);
    }
    barriers_.resize(program.barrierThreads.size());
    packets_.assign(program.cells, kNever);
    threads_.resize(program.threads.size());
    for (std::uint32_t thread = 0; thread < threads_.size(); ++thread) {
      threads_[thread].lastArrival.assign(ranks, kNever);
      ready_.emplace(0.0, thread);
    }
  }

  /// The time at which everything has ended; infinite if something waits for ever.
  double run() {
    while (!ready_.empty()) {
      const auto [time, thread] = ready_.top();
      ready_.pop();
      threads_[thread].time = std::max(threads_[thread].time, time);
      advance(thread);
    }
    for (std::uint32_t thread = 0; thread < threads_.size(); ++thread) {
      if (threads_[thread].step < program_.threads[thread].steps.size())
        return std::numeric_limits<double>::infinity();
    }
    return end_;
  }

 private:
  struct ThreadState {
    double time = 0;
    std::size_t step = 0;
    std::size_t acquired = 0;         // units of the current step that are taken
    std::size_t sent = 0;             // messages of the current step that are posted
    bool arrived = false;             // at the current step's barrier
    std::vector<double> lastArrival;  // by peer: of data that no signal has covered yet
  };
  struct CounterState {
    std::deque<double> units;  // when each became available
    std::deque<std::uint32_t> waiters;
  };
  struct BarrierState {
    double latest = 0;
    std::vector<std::uint32_t> waiting;
  };

  /// Runs a thread until it blocks, ends, or its clock moves on: then others may be due first.
  void advance(std::uint32_t thread) {
    ThreadState& state = threads_[thread];
    const CostThread& code = program_.threads[thread];
    while (state.step < code.steps.size()) {
      const CostStep& step = code.steps[state.step];
      const double before = state.time;
      if (!acquire(thread, step) || !packetsThere(thread, step) || !passBarrier(thread, step)) return;
      if (state.time > before) return requeue(thread);
      if (!sendAll(thread, step)) return requeue(thread);
      for (const CostPacketWait& filled : step.localPackets)
        fillPackets(filled.first, filled.cells, state.time);
      for (const CostRelease& release : step.releases) releaseUnit(thread, release);
      end_ = std::max(end_, state.time);
      ++state.step;
      state.acquired = state.sent = 0;
      state.arrived = false;
    }
  }

  void requeue(std::uint32_t thread) { ready_.emplace(threads_[thread].time, thread); }

  bool acquire(std::uint32_t thread, const CostStep& step) {
    ThreadState& state = threads_[thread];
    for (; state.acquired < step.acquires.size(); ++state.acquired) {
      CounterState& counter = counters_[step.acquires[state.acquired]];
      if (counter.units.empty()) {
        counter.waiters.push_back(thread);
        return false;
      }
      state.time = std::max(state.time, counter.units.front());
      counter.units.pop_front();
    }
    return true;
  }

  bool packetsThere(std::uint32_t thread, const CostStep& step) {
    for (const CostPacketWait& wait : step.packetWaits) {
      for (std::uint32_t cell = wait.first; cell < wait.first + wait.cells; ++cell) {
        if (packets_[cell] == kNever) {
          packetWaiters_.push_back({cell, thread});
          return false;
        }
        threads_[thread].time = std::max(threads_[thread].time, packets_[cell]);
      }
    }
    return true;
  }

  bool passBarrier(std::uint32_t thread, const CostStep& step) {
    ThreadState& state = threads_[thread];
    if (step.barrier < 0 || state.arrived) return true;
    BarrierState& barrier = barriers_[static_cast<std::size_t>(step.barrier)];
    barrier.latest = std::max(barrier.latest, state.time);
    barrier.waiting.push_back(thread);
    state.arrived = true;
    if (barrier.waiting.size() < program_.barrierThreads[static_cast<std::size_t>(step.barrier)])
      return false;
    for (const std::uint32_t waiter : std::exchange(barrier.waiting, {})) {
      threads_[waiter].time = barrier.latest;
      requeue(waiter);
    }
    barrier.latest = 0;
    return false;
  }

  /// False when a fetched message has moved the clock on.
  bool sendAll(std::uint32_t thread, const CostStep& step) {
    ThreadState& state = threads_[thread];
    while (state.sent < step.messages.size()) {
      const CostMessage& message = step.messages[state.sent++];
      const double request = message.fetched ? conditions_.latencySeconds : 0;
      const double arrival = transfer(message, state.time + request);
      end_ = std::max(end_, arrival);
      if (message.fetched) {
        state.time = arrival;
        return false;
      }
      double& last = state.lastArrival[static_cast<std::size_t>(message.to)];
      last = std::max(last, arrival);
      fillPackets(message.packetFirst, message.packetCells, arrival);
    }
    return true;
  }

  /// Takes both ports in the order of posting; a port that waits for the slower side is free for others
  /// meanwhile.
  double transfer(const CostMessage& message, double earliest) {
    const auto from = static_cast<std::size_t>(message.from);
    const auto to = static_cast<std::size_t>(message.to);
    const double bytes = message.fraction * bytes_;
    const double start = std::max(earliest, egressFree_[from]);
    egressFree_[from] = start + overhead_ + bytes / conditions_.bytesPerSecond[from];
    const double ingressStart = std::max(start, ingressFree_[to]);
    ingressFree_[to] = ingressStart + overhead_ + bytes / conditions_.bytesPerSecond[to];
    const double handling = bytes / conditions_.handlingBytesPerSecond;
    return std::max(egressFree_[from], ingressFree_[to]) + conditions_.latencySeconds - overhead_ + handling;
  }

  /// A signal after data arrives with the data; one without is a message of its own.
  void releaseUnit(std::uint32_t thread, const CostRelease& release) {
    ThreadState& state = threads_[thread];
    double when = state.time;
    if (release.to != program_.threads[thread].rank) {
      double& last = state.lastArrival[static_cast<std::size_t>(release.to)];
      when = last == kNever ? state.time + conditions_.latencySeconds : std::max(last, state.time);
      last = kNever;
    }
    CounterState& counter = counters_[release.counter];
    counter.units.push_back(when);
    end_ = std::max(end_, when);
    if (counter.waiters.empty()) return;
    const std::uint32_t waiter = counter.waiters.front();
    counter.waiters.pop_front();
    ready_.emplace(std::max(threads_[waiter].time, when), waiter);
  }

  void fillPackets(std::uint32_t first, std::uint32_t cells, double when) {
    if (cells == 0) return;
    for (std::uint32_t cell = first; cell < first + cells; ++cell)
      packets_[cell] = std::max(packets_[cell], when);
    std::erase_if(packetWaiters_, [&](const auto& waiter) {
      const bool woken = waiter.first >= first && waiter.first < first + cells;
      if (woken) ready_.emplace(std::max(threads_[waiter.second].time, when), waiter.second);
      return woken;
    });
  }

  using Due = std::pair<double, std::uint32_t>;

  const CostProgram& program_;
  double bytes_;
  const CostConditions& conditions_;
  double overhead_;
  double end_ = 0;
  std::vector<double> egressFree_;
  std::vector<double> ingressFree_;
  std::vector<CounterState> counters_;
  std::vector<BarrierState> barriers_;
  std::vector<double> packets_;                                         // arrival by cell
  std::vector<std::pair<std::uint32_t, std::uint32_t>> packetWaiters_;  // cell, thread
  std::vector<ThreadState> threads_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> ready_;
};

CostSummary summarize(const CostProgram& program) {
  CostSummary summary;
  const auto ranks = static_cast<std::size_t>(program.ranks);
  summary.egress.assign(ranks, 0);
  summary.ingress.assign(ranks, 0);
  summary.messagesOut.assign(ranks, 0);
  for (const CostThread& thread : program.threads) {
    for (const CostStep& step : thread.steps) {
      for (const CostMessage& message : step.messages) {
        summary.egress[static_cast<std::size_t>(message.from)] += message.fraction;
        summary.ingress[static_cast<std::size_t>(message.to)] += message.fraction;
        ++summary.messagesOut[static_cast<std::size_t>(message.from)];
      }
    }
  }
  // With messages that take one second of flight and no time at the ports, the end is the length of the
  // longest chain.
  const CostConditions conditions{1.0, 1.0, std::vector<double>(ranks, 1.0)};
  const double chain = Play(program, 0, conditions, 0).run();
  summary.depth = std::isfinite(chain) ? static_cast<int>(chain) : 0;
  return summary;
}

}  // namespace

struct CostModel::Program {
  CostProgram code;
  CostSummary summary;
};

CostModel::CostModel(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

Result<CostModel> CostModel::make(const schedule::Schedule& schedule) {
  auto code = buildCostProgram(schedule);
  if (!code) return fail(code.error());
  auto program = std::make_shared<Program>();
  program->code = std::move(*code);
  program->summary = summarize(program->code);
  return CostModel(std::move(program));
}

const CostSummary& CostModel::summary() const& { return program_->summary; }

double CostModel::predict(std::uint64_t bytes, const CostConditions& conditions) const {
  THESEUS_CHECK(conditions.bytesPerSecond.size() == static_cast<std::size_t>(program_->code.ranks),
                "a prediction needs one rate for each rank");
  return Play(program_->code, static_cast<double>(bytes), conditions).run();
}

}  // namespace theseus::policy
