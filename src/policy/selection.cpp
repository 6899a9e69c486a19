#include "policy/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/check.h"
#include "policy/units.h"

namespace theseus::policy {
namespace {

/// Buckets that are simulated. Between two of them time is nearly linear in the size and is interpolated;
/// below the first it is all latency, above the last proportional to the size. Ranks wait for a round, so it
/// must not simulate what it can do without.
constexpr int kScoredBuckets[] = {10, 14, 17, 20, 23, 27, 32};
constexpr int kFirstScoredBucket = kScoredBuckets[0];
constexpr int kLastScoredBucket = kScoredBuckets[std::size(kScoredBuckets) - 1];
/// A schedule for a straggler serves while its ratio is right within this factor.
constexpr double kRatioTolerance = 2.001;

std::uint64_t lastBytes(int bucket) {
  if (bucket >= control::kSizeBuckets - 1) return std::numeric_limits<std::uint64_t>::max();
  return (std::uint64_t{1} << bucket) - 1;
}

}  // namespace

std::uint64_t bucketBytes(int bucket) { return bucket <= 0 ? 0 : std::uint64_t{1} << (bucket - 1); }

std::string describeStragglers(const FleetView& fleet) {
  const auto worst = fleet.worst();
  if (!worst) return "";
  std::string text = fmt::format("link of rank {} at {:.2f} of its peers' ({} of {})", worst->rank,
                                 worst->bytesPerSecond / worst->peerBytesPerSecond,
                                 megabytes(worst->bytesPerSecond), rateText(worst->peerBytesPerSecond));
  std::string others;
  for (const Straggler& other : fleet.stragglers()) {
    if (other.rank == worst->rank) continue;
    others += fmt::format("{}rank {} at {:.2f}", others.empty() ? "" : ", ", other.rank,
                          other.bytesPerSecond / other.peerBytesPerSecond);
  }
  return others.empty() ? text : fmt::format("{}; also slow: {}", text, others);
}

void Selection::refresh(const RoundFacts& facts, std::optional<double> nominalBytesPerSecond) {
  facts_ = facts;
  const double prior = nominalBytesPerSecond.value_or(options_.link.bytesPerSecond);
  const double healthy = fleet_.healthyBytesPerSecond().value_or(prior);
  CostConditions conditions{options_.link.latencySeconds, options_.link.handlingBytesPerSecond, {}};
  for (Rank rank = 0; rank < options_.ranks; ++rank)
    conditions.bytesPerSecond.push_back(healthy / fleet_.ratio(rank));
  if (conditions != conditions_) scores_.clear();
  conditions_ = std::move(conditions);
}

bool Selection::ready(control::ScheduleSlot slot) const {
  if (facts_.round == 0) return candidates_.facts(slot).automatic;
  return facts_.ready[static_cast<std::size_t>(slot)];
}

double Selection::predict(control::ScheduleSlot slot, std::uint64_t bytes) const {
  const auto& cost = candidates_.facts(slot).cost;
  return cost ? cost->predict(bytes, conditions_) : std::numeric_limits<double>::infinity();
}

double Selection::simulated(control::ScheduleSlot slot, int bucket) {
  while (scores_.size() < static_cast<std::size_t>(candidates_.size())) {
    scores_.emplace_back().fill(std::numeric_limits<double>::quiet_NaN());
  }
  double& seconds = scores_[static_cast<std::size_t>(slot)][static_cast<std::size_t>(bucket)];
  if (std::isnan(seconds)) seconds = predict(slot, bucketBytes(bucket));
  return seconds;
}

double Selection::score(control::ScheduleSlot slot, int bucket) {
  if (bucket <= kFirstScoredBucket) return simulated(slot, kFirstScoredBucket);
  if (bucket >= kLastScoredBucket)
    return std::ldexp(simulated(slot, kLastScoredBucket), bucket - kLastScoredBucket);
  const int* upper = std::lower_bound(std::begin(kScoredBuckets), std::end(kScoredBuckets), bucket);
  if (*upper == bucket) return simulated(slot, bucket);
  const auto low = static_cast<double>(bucketBytes(*(upper - 1)));
  const auto high = static_cast<double>(bucketBytes(*upper));
  const double share = (static_cast<double>(bucketBytes(bucket)) - low) / (high - low);
  const double below = simulated(slot, *(upper - 1));
  return below + share * (simulated(slot, *upper) - below);
}

std::optional<std::string> Selection::stragglerObstacle(control::ScheduleSlot slot) const {
  const CandidateFacts& facts = candidates_.facts(slot);
  if (!facts.straggler) return std::nullopt;
  if (*facts.straggler >= options_.ranks)
    return fmt::format("made for rank {}, which the job lacks", *facts.straggler);
  const double present = fleet_.ratio(*facts.straggler);
  if (present <= 1)
    return fmt::format("made for a slow link of rank {}, which is as fast as its peers'", *facts.straggler);
  const double mismatch = std::max(present, facts.stragglerRatio) / std::min(present, facts.stragglerRatio);
  if (mismatch <= kRatioTolerance) return std::nullopt;
  return fmt::format("made for rank {} being {:.3g} times slower; it is {:.3g} times slower",
                     *facts.straggler, facts.stragglerRatio, present);
}

std::optional<std::string> Selection::obstacle(control::ScheduleSlot slot, int bucket, bool forced) const {
  const Candidate& candidate = candidates_.at(slot);
  const CandidateFacts& facts = candidates_.facts(slot);
  if (candidate.dropped) return "dropped";
  if (!facts.unusable.empty()) return facts.unusable;
  // Before its ready bit is agreed, a rank may or may not have prepared it; afterwards every rank has.
  if (!candidate.schedule) return "not ready on every rank";
  const schedule::Schedule& schedule = *candidate.schedule;
  if (!schedule.usable.empty() || !schedule.score.empty()) return "expressions are not supported yet";
  if (facts.usesSwitch) return "needs switch channels (in-network reduction)";
  const std::uint64_t first = std::max<std::uint64_t>(1, bucketBytes(bucket));
  if (schedule.minMessageBytes > first || schedule.maxMessageBytes < lastBytes(bucket)) {
    return fmt::format("serves {} to {} bytes, the bucket holds {} to {}", schedule.minMessageBytes,
                       schedule.maxMessageBytes, bucketBytes(bucket), lastBytes(bucket));
  }
  if (!ready(slot)) return "not ready on every rank";
  if (forced) return std::nullopt;
  THESEUS_CHECK(facts.cost.has_value(), "what is ready on every rank was prepared on this one");
  return stragglerObstacle(slot);
}

const Force* Selection::forceFor(const std::vector<Force>& forces, Collective collective, int bucket) {
  const std::uint64_t bytes = std::max<std::uint64_t>(1, bucketBytes(bucket));
  for (auto force = forces.rbegin(); force != forces.rend(); ++force) {
    if (force->collective != collective || bytes < force->minBytes || bytes > force->maxBytes) continue;
    return force->schedule == "auto" ? nullptr : &*force;
  }
  return nullptr;
}

double Selection::neededGain(control::ScheduleSlot current, control::ScheduleSlot challenger) const {
  const bool leaving = candidates_.facts(current).straggler && !candidates_.facts(challenger).straggler;
  return leaving ? options_.leaveGain : options_.enterGain;
}

std::optional<control::ScheduleSlot> Selection::best(Collective collective, int bucket) {
  std::optional<control::ScheduleSlot> found;
  for (const control::ScheduleSlot slot : candidates_.slotsOf(collective)) {
    if (obstacle(slot, bucket)) continue;
    if (!found || score(slot, bucket) < score(*found, bucket)) found = slot;
  }
  return found;
}

std::string Selection::causeOf(control::ScheduleSlot from, control::ScheduleSlot to) const {
  const auto straggler = candidates_.facts(to).straggler;
  if (straggler) return describeStragglers(fleet_);
  if (from >= 0 && candidates_.facts(from).straggler) return "it gains nothing any more";
  const std::string slow = describeStragglers(fleet_);
  return slow.empty() ? fmt::format("links at {}", rateText(conditions_.bytesPerSecond.front())) : slow;
}

std::string Selection::whyGone(control::ScheduleSlot slot, int bucket) const {
  const CandidateFacts& facts = candidates_.facts(slot);
  const bool healed =
      facts.straggler && *facts.straggler < options_.ranks && fleet_.ratio(*facts.straggler) <= 1;
  if (healed && !candidates_.at(slot).dropped) {
    return fmt::format("link of rank {} is as fast as its peers' again", *facts.straggler);
  }
  return fmt::format("{} cannot serve any more ({})", candidates_.at(slot).name,
                     obstacle(slot, bucket).value_or("no longer forced"));
}

Decision Selection::freeChoice(Collective collective, int bucket, const Choice& current) {
  const auto challenger = best(collective, bucket);
  const bool inForce = current.slot >= 0;
  if (inForce && obstacle(current.slot, bucket)) {
    if (!challenger) return {-1, whyGone(current.slot, bucket)};
    return {*challenger, whyGone(current.slot, bucket)};
  }
  if (!challenger || *challenger == current.slot) return {current.slot, ""};
  if (!inForce) return {*challenger, "nothing served before"};
  const bool dwelt = facts_.round >= current.since + static_cast<Round>(std::max(0, options_.dwellRounds));
  const double now = score(current.slot, bucket);
  const bool gains = score(*challenger, bucket) < now * (1 - neededGain(current.slot, *challenger));
  if (!dwelt || !gains) return {current.slot, ""};
  return {*challenger, causeOf(current.slot, *challenger)};
}

Decision Selection::decide(Collective collective, int bucket, const Choice& current,
                           const std::vector<Force>& forces) {
  if (const Force* force = forceFor(forces, collective, bucket)) {
    const auto slot = candidates_.find(force->schedule, collective);
    if (slot && !obstacle(*slot, bucket, true)) {
      return {*slot, *slot == current.slot ? "" : "forced by an operator"};
    }
  }
  return freeChoice(collective, bucket, current);
}

}  // namespace theseus::policy
