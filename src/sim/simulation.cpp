#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "sim/event_queue.h"
#include "sim/simulated_rank.h"

namespace theseus::sim {
namespace {

/// A run that takes more events than this never comes to rest: the largest scenarios need about a tenth.
constexpr std::uint64_t kMaxEvents = 20'000'000;
constexpr int kDeclarableAttributes = 6;

class Simulation final : public Surroundings {
 public:
  explicit Simulation(const SimulationOptions& options);
  SimulationResult run();

  void transmit(Rank from, Rank to, std::string bytes) override;
  Microseconds now() const override { return queue_.now(); }
  void note(Rank rank, const std::string& what) override;
  bool tracing() const override { return options_.trace != nullptr; }
  void limitLifted(Rank rank) override { scheduleIssue(rank, 0); }
  void firstCompletion(Rank rank, const control::Context& context) override;
  base::Random& random() override { return random_; }
  Checker& checker() override { return checker_; }

 private:
  SimulatedRank& rank(Rank number) { return *ranks_[static_cast<std::size_t>(number)]; }
  Microseconds drawDelay(Rank from, Rank to);
  void scheduleIssue(Rank rank, Microseconds delay);
  bool deferredByPause(Event& event);
  void handle(const Event& event);
  void handleIssue(Rank number);
  SequenceNumber slowest() const;
  void wakeWindowWaiters();
  void handleDelivery(const Event& event);
  void handleAction(const Action& action);
  void setRandomAttribute(SimulatedRank& target);
  std::string drawContent();
  void fold(const Event& event);
  SimulationResult summary();

  const SimulationOptions& options_;
  const Scenario scenario_;
  base::Random random_;
  EventQueue queue_;
  Checker checker_;
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;
  std::vector<Rank> windowWaiters_;
  SequenceNumber slowestSeen_ = 0;  // when the waiters were last woken
  SimulationResult result_;
};

Simulation::Simulation(const SimulationOptions& options)
    : options_(options),
      scenario_(makeScenario(options.seed, options.ranks)),
      random_(options.seed),
      checker_(scenario_.ranks) {
  for (Rank number = 0; number < scenario_.ranks; ++number) {
    RankOptions rankOptions;
    rankOptions.largestSlack = scenario_.largestSlack;
    rankOptions.control.rank = number;
    rankOptions.control.size = scenario_.ranks;
    rankOptions.control.limits = scenario_.limits;
    rankOptions.control.skipLimitRule = options.skipLimitRule;
    rankOptions.control.attributes = {
        {"hi_rate", control::AttributeOperator::kMax, static_cast<std::uint32_t>(scenario_.ranks)},
        {"lo_memory", control::AttributeOperator::kMin, 1}};
    ranks_.push_back(std::make_unique<SimulatedRank>(std::move(rankOptions), *this));
    scheduleIssue(number, random_.below(scenario_.pace[static_cast<std::size_t>(number)]));
  }
  for (std::size_t i = 0; i < scenario_.actions.size(); ++i) {
    Event event;
    event.kind = EventKind::kAction;
    event.rank = scenario_.actions[i].rank;
    event.action = i;
    queue_.push(scenario_.actions[i].at, std::move(event));
  }
}

void Simulation::note(Rank number, const std::string& what) {
  options_.trace(fmt::format("{:>9} us  rank {:<3} {}", now(), number, what));
}

Microseconds Simulation::drawDelay(Rank from, Rank to) {
  const NetworkModel& network = scenario_.network;
  Microseconds delay =
      network.shortestDelay + random_.below(network.longestDelay - network.shortestDelay + 1);
  if (random_.chance(network.tailProbability)) delay *= network.tailFactor;
  if (network.slowRank == from || network.slowRank == to) delay *= network.slowFactor;
  return delay;
}

void Simulation::transmit(Rank from, Rank to, std::string bytes) {
  ++result_.messages;
  const auto deliver = [&](std::string copy, bool truncated) {
    Event event;
    event.kind = EventKind::kDeliver;
    event.rank = to;
    event.from = from;
    event.truncated = truncated;
    event.bytes = std::move(copy);
    queue_.push(drawDelay(from, to), std::move(event));
  };
  if (random_.chance(scenario_.network.duplicateProbability)) deliver(bytes, false);
  if (random_.chance(scenario_.network.truncatedProbability))
    deliver(bytes.substr(0, random_.below(bytes.size())), true);
  deliver(std::move(bytes), false);
}

void Simulation::scheduleIssue(Rank number, Microseconds delay) {
  Event event;
  event.kind = EventKind::kIssue;
  event.rank = number;
  queue_.push(delay, std::move(event));
}

/// (c): entries [0, version) are about to be used for the first time.
void Simulation::firstCompletion(Rank first, const control::Context& context) {
  for (Rank number = 0; number < scenario_.ranks; ++number) {
    if (number == first || rank(number).plane().heldEntries() >= context.logVersion) continue;
    checker_.violate(fmt::format("(c) rank {} uses log version {} in round {}, rank {} holds only {} entries",
                                 first, context.logVersion, context.round, number,
                                 rank(number).plane().heldEntries()));
  }
}

bool Simulation::deferredByPause(Event& event) {
  const std::optional<Pause>& pause = scenario_.pause;
  if (!pause || pause->rank != event.rank || now() < pause->from || now() >= pause->until) return false;
  queue_.push(pause->until - now(), std::move(event));
  return true;
}

void Simulation::fold(const Event& event) {
  // One multiply and shift a field (the step of SplitMix64) is enough to tell runs apart.
  const auto mix = [&](std::uint64_t value) {
    result_.traceHash = base::Random(result_.traceHash ^ value).next();
  };
  mix(now());
  mix(static_cast<std::uint64_t>(event.kind) << 32 | static_cast<std::uint32_t>(event.rank));
  if (event.kind != EventKind::kDeliver) return mix(rank(event.rank).next());
  mix(static_cast<std::uint64_t>(event.from));
  mix(base::hash128(event.bytes).low);
}

void Simulation::handleIssue(Rank number) {
  SimulatedRank& own = rank(number);
  if (own.next() >= scenario_.goal || own.waiting()) return;
  if (own.mustWait()) return own.startWaiting(now());  // liftLimit schedules the next attempt
  const Microseconds pause = 1 + random_.below(scenario_.pace[static_cast<std::size_t>(number)]);
  if (scenario_.window && own.next() > slowest() + *scenario_.window) return windowWaiters_.push_back(number);
  own.issue();
  ++result_.collectives;
  scheduleIssue(number, pause);
  wakeWindowWaiters();
}

SequenceNumber Simulation::slowest() const {
  const auto behind = [](const auto& left, const auto& right) { return left->next() < right->next(); };
  return (*std::min_element(ranks_.begin(), ranks_.end(), behind))->next();
}

/// Ranks that had to let the slowest catch up try again once it has moved.
void Simulation::wakeWindowWaiters() {
  if (windowWaiters_.empty()) return;
  const SequenceNumber minimum = slowest();
  if (minimum == slowestSeen_) return;
  slowestSeen_ = minimum;
  for (const Rank waiter : std::exchange(windowWaiters_, {})) scheduleIssue(waiter, random_.below(4));
}

void Simulation::handleDelivery(const Event& event) {
  control::ControlPlane& plane = rank(event.rank).plane();
  if (tracing()) {
    note(event.rank,
         fmt::format("{} {} bytes from rank {} ({:08x})", event.truncated ? "cut message," : "message,",
                     event.bytes.size(), event.from, base::hash128(event.bytes).low & 0xffffffffu));
  }
  const auto visible = [&] {
    return std::tuple(plane.completedRound(), plane.inRound(), plane.orderedEntries(), plane.heldEntries(),
                      plane.log().size());
  };
  const auto before = visible();
  const Status status = plane.receive(event.from, event.bytes);
  if (!event.truncated) {
    if (!status)
      checker_.violate(fmt::format("rank {} refuses a message: {}", event.rank, status.error().message));
  } else if (status || status.error().code != ErrorCode::kInvalidArgument || before != visible()) {
    checker_.violate(fmt::format("rank {} takes a message that was cut", event.rank));
  }
}

std::string Simulation::drawContent() {
  std::string content(random_.below(scenario_.largestContent + 1), '\0');
  for (char& c : content) c = static_cast<char>(random_.below(256));
  return content;
}

void Simulation::setRandomAttribute(SimulatedRank& target) {
  const std::uint64_t choice = random_.below(4);
  std::string name = choice == 0 ? "hi_rate" : "lo_memory";
  if (choice > 1)
    name = fmt::format("{}_{}", choice == 2 ? "hi" : "lo", random_.below(kDeclarableAttributes));
  const auto index = static_cast<std::uint32_t>(
      name == "lo_memory" ? 0 : random_.below(static_cast<std::uint64_t>(scenario_.ranks)));
  target.setAttribute(name, index, static_cast<double>(random_.below(1000)) - 500);
}

void Simulation::handleAction(const Action& action) {
  SimulatedRank& target = rank(action.rank);
  const auto anySlot = [&] {
    return static_cast<control::ScheduleSlot>(random_.below(static_cast<std::uint64_t>(scenario_.slots)));
  };
  if (tracing())
    note(action.rank, fmt::format("action {} x {}", static_cast<int>(action.kind), action.count));
  switch (action.kind) {
    case ActionKind::kPropose:
      for (std::uint32_t i = 0; i < action.count; ++i)
        target.propose(control::EntryKind::kSetExo, drawContent());
      break;
    case ActionKind::kDeclareAttribute: {
      const std::string name =
          fmt::format("{}_{}", random_.chance(0.5) ? "hi" : "lo", random_.below(kDeclarableAttributes));
      const std::uint32_t width = random_.chance(0.5) ? 1u : static_cast<std::uint32_t>(scenario_.ranks);
      target.propose(control::EntryKind::kNewAttribute,
                     control::attributeContent({name, operatorOfName(name), width}));
      break;
    }
    case ActionKind::kRequestRound:
      target.plane().requestRound();
      break;
    case ActionKind::kSetReady:
      if (action.count == 1) return target.setReady(anySlot(), true);
      for (std::uint32_t slot = 0; slot < action.count; ++slot)
        target.setReady(static_cast<control::ScheduleSlot>(slot), true);
      break;
    case ActionKind::kClearReady:
      target.setReady(anySlot(), false);
      break;
    case ActionKind::kSetAttribute:
      setRandomAttribute(target);
      break;
  }
}

void Simulation::handle(const Event& event) {
  ++result_.events;
  fold(event);
  switch (event.kind) {
    case EventKind::kIssue:
      return handleIssue(event.rank);
    case EventKind::kDeliver:
      return handleDelivery(event);
    case EventKind::kAction:
      return handleAction(scenario_.actions[event.action]);
  }
}

SimulationResult Simulation::run() {
  while (!queue_.empty() && !checker_.violation()) {
    Event event = queue_.pop();
    if (deferredByPause(event)) continue;
    handle(event);
    if (result_.events > kMaxEvents) checker_.violate(fmt::format("(d) no rest after {} events", kMaxEvents));
  }
  for (Rank number = 0; number < scenario_.ranks && !checker_.violation(); ++number) {
    checker_.atRest(number, rank(number).plane());
    if (rank(number).next() != scenario_.goal) {
      checker_.violate(fmt::format("(d) rank {} is stuck at collective {} of {}", number, rank(number).next(),
                                   scenario_.goal));
    }
  }
  return summary();
}

SimulationResult Simulation::summary() {
  result_.seed = options_.seed;
  result_.ranks = scenario_.ranks;
  result_.rounds = checker_.rounds();
  result_.entries = checker_.entries();
  result_.longestRound = checker_.longestRound();
  for (const auto& own : ranks_) {
    result_.stalls += own->stalls();
    result_.longestStall = std::max(result_.longestStall, own->longestStall());
    result_.refusedProposals += own->refusedProposals();
  }
  result_.violation = checker_.violation();
  return result_;
}

}  // namespace

SimulationResult simulate(const SimulationOptions& options) { return Simulation(options).run(); }

}  // namespace theseus::sim
