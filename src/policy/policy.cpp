#include "policy/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "policy/candidate_list.h"
#include "policy/fleet_view.h"
#include "policy/force.h"
#include "policy/selection.h"
#include "policy/units.h"

namespace theseus::policy {
namespace {

/// The size for which a straggler-aware schedule is cut into segments, and for which swaps tell their
/// predictions.
constexpr std::uint64_t kReferenceBytes = 64ull << 20;
constexpr double kSegmentsMin = 8;
constexpr double kSegmentsMax = 64;
constexpr double kSegmentsStep = 4;
/// Sections (segments times healthy ranks) beyond this take too long to expand and verify while a round
/// waits.
constexpr double kSectionsMax = 256;
/// Remarks beyond this are dropped, oldest first: a flood of bad entries must not fill the memory.
constexpr std::size_t kRemarksMax = 200;

/// k* = sqrt(l n / (B h alpha)): more segments shorten the filling of the pipeline, each costs every healthy
/// rank a message.
int segmentsFor(const PolicyOptions& options, double ratio) {
  const double healthy = std::max(1, options.ranks - 1);
  const double perSegment =
      options.link.bytesPerSecond * healthy * std::max(options.link.latencySeconds, 1e-9);
  const double best = std::sqrt(ratio * static_cast<double>(kReferenceBytes) / perSegment);
  const double limit = std::clamp(kSectionsMax / healthy, kSegmentsMin, kSegmentsMax);
  return static_cast<int>(std::floor(std::clamp(best, kSegmentsMin, limit) / kSegmentsStep) * kSegmentsStep);
}

bool hasParameter(const synth::GeneratorInfo& info, std::string_view parameter) {
  return std::any_of(info.parameters.begin(), info.parameters.end(),
                     [parameter](const synth::ParameterInfo& row) { return row.name == parameter; });
}

std::optional<double> positiveNumber(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || stopped != end || !std::isfinite(value) || value <= 0) return std::nullopt;
  return value;
}

struct PendingSwap {
  Collective collective = Collective::kAllReduce;
  int firstBucket = 0;
  int lastBucket = 0;
  control::ScheduleSlot from = -1;
  control::ScheduleSlot to = -1;
  std::string cause;
};

/// Neighbouring buckets that change alike are one swap to people.
void addSwap(std::vector<PendingSwap>& pending, PendingSwap swap) {
  if (!pending.empty()) {
    PendingSwap& last = pending.back();
    const bool continues = last.collective == swap.collective && last.lastBucket + 1 == swap.firstBucket &&
                           last.from == swap.from && last.to == swap.to && last.cause == swap.cause;
    if (continues) {
      last.lastBucket = swap.lastBucket;
      return;
    }
  }
  pending.push_back(std::move(swap));
}

}  // namespace

struct PolicyEngine::State {
  explicit State(PolicyOptions given)
      : options(given), candidates(given.ranks), fleet(given.ranks), selection(options, candidates, fleet) {}

  void apply(const control::Entry& entry);
  void setExo(std::string_view content);
  void remark(std::string text);
  void deriveStragglerCandidates();
  void addDerived(const synth::GeneratorCall& call);
  void chooseAll(const control::Context& context, bool recordSwaps);
  std::string reasonFor(const PendingSwap& swap) const;
  std::string whyNot(control::ScheduleSlot slot, Collective collective, int bucket,
                     std::uint64_t bytes) const;
  std::shared_ptr<const control::DispatchTable> table() const;
  std::string nameOf(control::ScheduleSlot slot) const {
    return slot < 0 ? "none" : candidates.at(slot).name;
  }

  PolicyOptions options;
  CandidateList candidates;
  FleetView fleet;
  Selection selection;
  std::map<std::string, std::string> exo;
  std::optional<double> nominalRate;
  std::vector<Force> forces;
  std::set<synth::GeneratorCall> failedCalls;
  std::size_t applied = 0;
  std::array<std::array<Choice, control::kSizeBuckets>, control::kCollectives> choices{};
  std::vector<SwapRecord> swaps;
  std::vector<std::string> remarks;
};

void PolicyEngine::State::remark(std::string text) {
  if (remarks.size() == kRemarksMax) remarks.erase(remarks.begin());
  remarks.push_back(std::move(text));
}

void PolicyEngine::State::setExo(std::string_view content) {
  const std::size_t equals = content.find('=');
  if (equals == 0 || equals == std::string_view::npos) {
    remark(fmt::format("attribute '{}' is not name=value", content));
    return;
  }
  const std::string key(content.substr(0, equals));
  exo[key] = std::string(content.substr(equals + 1));
  if (key != kNominalRateAttribute) return;
  nominalRate = positiveNumber(exo[key]);
  if (!nominalRate)
    remark(fmt::format("{}={} is not a positive number of bytes per second: ignored", key, exo[key]));
}

void PolicyEngine::State::apply(const control::Entry& entry) {
  const auto refused = [&](const Error& error) {
    remark(fmt::format("entry {} of rank {}: {}", entry.id.number, entry.id.origin, error.message));
  };
  switch (entry.kind) {
    case control::EntryKind::kNewSchedule: {
      const auto slot = candidates.add(entry.content);
      if (!slot) refused(slot.error());
      break;
    }
    case control::EntryKind::kDropSchedule: {
      const auto dropped = candidates.drop(entry.content);
      if (!dropped) refused(dropped.error());
      break;
    }
    case control::EntryKind::kForce: {
      const auto force = parseForce(entry.content);
      if (!force) return refused(force.error());
      // A newer word on exactly the same calls replaces the older: the list stays short.
      std::erase_if(forces, [&force](const Force& known) {
        return known.collective == force->collective && known.minBytes >= force->minBytes &&
               known.maxBytes <= force->maxBytes;
      });
      forces.push_back(*force);
      break;
    }
    case control::EntryKind::kSetExo:
      setExo(entry.content);
      break;
    case control::EntryKind::kNewAttribute:
      break;  // the control plane's own
  }
}

void PolicyEngine::State::addDerived(const synth::GeneratorCall& call) {
  if (failedCalls.contains(call)) return;
  const auto slot = candidates.add(call);
  if (slot) return;
  failedCalls.insert(call);
  remark(fmt::format("cannot make {}: {}", synth::shortName(call), slot.error().message));
}

// Every rank sees the same straggler, so every rank appends the same candidate: no log entry is needed. It
// can be chosen by the next round, when its ready bits are set.
void PolicyEngine::State::deriveStragglerCandidates() {
  const auto straggler = fleet.worst();
  if (!straggler) return;
  for (const synth::GeneratorInfo& info : synth::generators()) {
    if (info.name != kStragglerGenerator || options.ranks < info.minRanks) continue;
    synth::GeneratorCall call{info.name, Collective::kAllReduce, options.ranks, {}};
    if (hasParameter(info, kStragglerRank)) call.parameters[kStragglerRank] = straggler->rank;
    // Rounded so that the short name stays short.
    if (hasParameter(info, kStragglerRatio))
      call.parameters[kStragglerRatio] = std::round(straggler->ratio * 1000) / 1000;
    if (hasParameter(info, kStragglerSegments)) {
      call.parameters[kStragglerSegments] = segmentsFor(options, straggler->ratio);
    }
    for (const Collective collective : info.collectives) {
      call.collective = collective;
      addDerived(call);
    }
  }
}

std::string PolicyEngine::State::reasonFor(const PendingSwap& swap) const {
  const int bucket = std::clamp(control::sizeBucket(kReferenceBytes), swap.firstBucket, swap.lastBucket);
  const std::uint64_t bytes = bucketBytes(bucket);
  if (swap.to < 0) return swap.cause + ": nothing else can serve";
  const std::string after = durationText(selection.predict(swap.to, bytes));
  const std::string size = sizeText(bytes);
  if (swap.from < 0) return fmt::format("{}: predicted {} for {}", swap.cause, after, size);
  const std::string before = durationText(selection.predict(swap.from, bytes));
  return fmt::format("{}: predicted {} instead of {} for {}", swap.cause, after, before, size);
}

void PolicyEngine::State::chooseAll(const control::Context& context, bool recordSwaps) {
  std::vector<PendingSwap> pending;
  for (int collective = 0; collective < control::kCollectives; ++collective) {
    const auto kind = static_cast<Collective>(collective);
    for (int bucket = 0; bucket < control::kSizeBuckets; ++bucket) {
      Choice& choice = choices[static_cast<std::size_t>(collective)][static_cast<std::size_t>(bucket)];
      const Decision decision = selection.decide(kind, bucket, choice, forces);
      if (decision.slot == choice.slot) continue;
      addSwap(pending, {kind, bucket, bucket, choice.slot, decision.slot, decision.cause});
      choice = {decision.slot, context.round};
    }
  }
  if (!recordSwaps) return;
  for (const PendingSwap& swap : pending) {
    swaps.push_back({context.round, context.switchAt, swap.collective, swap.firstBucket, swap.lastBucket,
                     nameOf(swap.from), nameOf(swap.to), reasonFor(swap)});
  }
}

std::shared_ptr<const control::DispatchTable> PolicyEngine::State::table() const {
  auto table = std::make_shared<control::DispatchTable>();
  std::set<control::ScheduleSlot> used;
  for (std::size_t collective = 0; collective < choices.size(); ++collective) {
    for (std::size_t bucket = 0; bucket < choices[collective].size(); ++bucket) {
      const control::ScheduleSlot slot = choices[collective][bucket].slot;
      table->slots[collective][bucket] = slot;
      if (slot >= 0) used.insert(slot);
    }
  }
  for (const control::ScheduleSlot slot : used) table->schedules.push_back(candidates.at(slot).hash);
  return table;
}

std::string PolicyEngine::State::whyNot(control::ScheduleSlot slot, Collective collective, int bucket,
                                        std::uint64_t bytes) const {
  const Choice& choice = choices[static_cast<std::size_t>(collective)][static_cast<std::size_t>(bucket)];
  const Force* force = Selection::forceFor(forces, collective, bucket);
  const auto forced = force != nullptr ? candidates.find(force->schedule, collective) : std::nullopt;
  if (forced && *forced == slot) {
    const auto obstacle = selection.obstacle(slot, bucket, true);
    return obstacle ? fmt::format("forced by an operator, but {}", *obstacle) : "forced by an operator";
  }
  if (const auto obstacle = selection.obstacle(slot, bucket)) return *obstacle;
  if (forced && *forced == choice.slot) return fmt::format("an operator forces {}", nameOf(*forced));
  if (slot == choice.slot) {
    const std::string slow = describeStragglers(fleet);
    return slow.empty() ? "in force" : "in force; " + slow;
  }
  if (choice.slot < 0) return "chosen by the next round";
  const double mine = selection.predict(slot, bytes);
  const double current = selection.predict(choice.slot, bytes);
  const double gain = 100 * (1 - mine / current);
  if (gain < 0) return fmt::format("predicted {:.1f} % slower than {}", -gain, nameOf(choice.slot));
  const double needed = 100 * selection.neededGain(choice.slot, slot);
  if (gain <= needed) {
    return fmt::format("predicted {:.1f} % faster than {}: a swap asks for more than {:.0f} %", gain,
                       nameOf(choice.slot), needed);
  }
  return fmt::format("predicted {:.1f} % faster than {}: a later round may choose it", gain,
                     nameOf(choice.slot));
}

PolicyEngine::PolicyEngine(PolicyOptions options) : state_(std::make_unique<State>(options)) {
  state_->candidates.addAutomatic();
  state_->selection.refresh({}, std::nullopt);
}

PolicyEngine::~PolicyEngine() = default;

std::shared_ptr<const control::DispatchTable> PolicyEngine::initialTable() {
  state_->chooseAll(control::Context{}, false);
  return state_->table();
}

std::shared_ptr<const control::DispatchTable> PolicyEngine::compute(
    const std::vector<control::Entry>& entries, const control::Context& context) {
  const std::size_t end = std::min<std::size_t>(context.logVersion, entries.size());
  for (; state_->applied < end; ++state_->applied) state_->apply(entries[state_->applied]);
  const auto rates = context.attributes.find(kLinkRateAttribute);
  if (rates != context.attributes.end()) state_->fleet.update(rates->second);
  state_->deriveStragglerCandidates();
  state_->selection.refresh({context.round, context.ready}, state_->nominalRate);
  state_->chooseAll(context, true);
  return state_->table();
}

void PolicyEngine::provide(control::ScheduleSlot slot, Result<Preparation> preparation) {
  if (!preparation) {
    state_->remark(fmt::format("{} cannot be used: {}", state_->nameOf(slot), preparation.error().message));
  }
  state_->candidates.provide(slot, std::move(preparation));
}

const std::vector<Candidate>& PolicyEngine::candidates() const { return state_->candidates.all(); }
const std::vector<SwapRecord>& PolicyEngine::swaps() const { return state_->swaps; }
const std::map<std::string, std::string>& PolicyEngine::exoAttributes() const { return state_->exo; }
const std::vector<std::string>& PolicyEngine::remarks() const { return state_->remarks; }

std::vector<Explanation> PolicyEngine::explain(Collective collective, std::uint64_t bytes) const {
  const int bucket = control::sizeBucket(bytes);
  const Choice& choice =
      state_->choices[static_cast<std::size_t>(collective)][static_cast<std::size_t>(bucket)];
  std::vector<Explanation> lines;
  for (const control::ScheduleSlot slot : state_->candidates.slotsOf(collective)) {
    const Candidate& candidate = state_->candidates.at(slot);
    Explanation& line = lines.emplace_back();
    line.schedule = candidate.name;
    line.slot = slot;
    line.ready = state_->selection.ready(slot);
    line.usable = !state_->selection.obstacle(slot, bucket);
    line.why = state_->whyNot(slot, collective, bucket, bytes);
    const bool predictable = state_->candidates.facts(slot).cost.has_value();
    line.predictedSeconds = predictable ? state_->selection.predict(slot, bytes) : 0;
    line.inForce = slot == choice.slot;
  }
  return lines;
}

}  // namespace theseus::policy
