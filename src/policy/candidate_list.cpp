#include "policy/candidate_list.h"

#include <fmt/format.h>

#include "base/check.h"
#include "schedule/verify/verify.h"
#include "schedule/xml.h"

namespace theseus::policy {
namespace {

bool looksLikeCall(std::string_view content) {
  return content.find("\"generator\"") != std::string_view::npos &&
         content.find("\"gpus\"") == std::string_view::npos;
}

CandidateFacts factsOf(const Candidate& candidate) {
  CandidateFacts facts;
  if (candidate.schedule) facts.usesSwitch = candidate.schedule->usesSwitch();
  if (!candidate.call || candidate.call->generator != kStragglerGenerator) return facts;
  const auto& parameters = candidate.call->parameters;
  const auto rank = parameters.find(kStragglerRank);
  const auto ratio = parameters.find(kStragglerRatio);
  facts.straggler = rank == parameters.end() ? 0 : static_cast<Rank>(rank->second);
  facts.stragglerRatio = ratio == parameters.end() ? 2 : ratio->second;
  return facts;
}

/// What can be known of a call without expanding it: its generator exists and makes this collective with
/// these parameters.
Status checkCall(const synth::GeneratorCall& call) {
  for (const synth::GeneratorInfo& info : synth::generators()) {
    if (info.name != call.generator) continue;
    for (const Collective collective : info.collectives) {
      if (collective == call.collective) return {};
    }
    return fail(ErrorCode::kInvalidSchedule,
                fmt::format("generator {} makes no {}", call.generator, name(call.collective)));
  }
  return fail(ErrorCode::kInvalidSchedule, fmt::format("no generator is called '{}'", call.generator));
}

}  // namespace

Result<Preparation> prepare(const Candidate& candidate) {
  auto schedule = candidate.schedule;
  bool tailSynchronized = true;  // generators hand out nothing else
  if (!schedule) {
    auto generated = synth::generate(*candidate.call);
    if (!generated) return fail(generated.error());
    schedule = std::make_shared<const schedule::Schedule>(std::move(*generated));
  } else if (!candidate.call) {
    const schedule::Verdict verdict = schedule::verify(*schedule);
    if (!verdict.valid())
      return fail(ErrorCode::kInvalidSchedule, schedule::toString(verdict.findings.front()));
    tailSynchronized = verdict.tailSynchronized;
  }
  auto cost = CostModel::make(*schedule);
  if (!cost) return fail(cost.error());
  return Preparation{std::move(schedule), std::move(*cost), tailSynchronized};
}

void CandidateList::addAutomatic() {
  for (const synth::GeneratorInfo& info : synth::generators()) {
    if (!info.automatic || ranks_ < info.minRanks) continue;
    for (const Collective collective : info.collectives) {
      // A generator may refuse a rank count (only powers of two, too large an expansion); then there is no
      // such candidate.
      [[maybe_unused]] auto added = add(synth::GeneratorCall{info.name, collective, ranks_, {}}, true);
    }
  }
}

Result<control::ScheduleSlot> CandidateList::add(std::string_view content) {
  if (looksLikeCall(content)) {
    auto call = synth::parseGeneratorCall(content);
    if (!call) return fail(call.error());
    return add(*call);
  }
  auto schedule = schedule::readAny(content);
  if (!schedule) return fail(schedule.error());
  if (schedule->rankCount() != ranks_) {
    return fail(ErrorCode::kInvalidSchedule, fmt::format("schedule '{}' is for {} ranks, the job has {}",
                                                         schedule->name, schedule->rankCount(), ranks_));
  }
  Candidate candidate;
  candidate.name = schedule->name;
  candidate.collective = schedule->collective();
  candidate.hash = schedule::contentHash(*schedule);
  candidate.schedule = std::make_shared<const schedule::Schedule>(std::move(*schedule));
  return insert(std::move(candidate), false);
}

Result<control::ScheduleSlot> CandidateList::add(const synth::GeneratorCall& call, bool automatic) {
  if (call.ranks != ranks_) {
    return fail(ErrorCode::kInvalidSchedule, fmt::format("{} is for {} ranks, the job has {}",
                                                         synth::shortName(call), call.ranks, ranks_));
  }
  THESEUS_TRY(checkCall(call));
  Candidate candidate;
  candidate.name = synth::shortName(call);
  candidate.collective = call.collective;
  candidate.hash = base::hash128(synth::toText(call));
  candidate.call = call;
  if (!automatic) return insert(std::move(candidate), false);
  auto preparation = prepare(candidate);
  if (!preparation) return fail(preparation.error());
  auto slot = insert(std::move(candidate), true);
  if (slot) provide(*slot, std::move(*preparation));
  return slot;
}

Result<control::ScheduleSlot> CandidateList::insert(Candidate candidate, bool automatic) {
  for (control::ScheduleSlot slot = 0; slot < size(); ++slot) {
    if (at(slot).hash != candidate.hash) continue;
    candidates_[static_cast<std::size_t>(slot)].dropped = false;
    return slot;
  }
  if (size() >= control::kScheduleSlots) {
    return fail(ErrorCode::kUnsupported, fmt::format("schedule '{}': all {} slots are taken", candidate.name,
                                                     control::kScheduleSlots));
  }
  byCollective_[static_cast<std::size_t>(candidate.collective)].push_back(size());
  facts_.push_back(factsOf(candidate));
  facts_.back().automatic = automatic;
  candidates_.push_back(std::move(candidate));
  return static_cast<control::ScheduleSlot>(size() - 1);
}

void CandidateList::provide(control::ScheduleSlot slot, Result<Preparation> preparation) {
  CandidateFacts& facts = facts_[static_cast<std::size_t>(slot)];
  if (!preparation) {
    facts.unusable = preparation.error().message;
    return;
  }
  Candidate& candidate = candidates_[static_cast<std::size_t>(slot)];
  candidate.schedule = std::move(preparation->schedule);
  facts.usesSwitch = candidate.schedule->usesSwitch();
  facts.cost = std::move(preparation->cost);
}

Status CandidateList::drop(std::string_view schedule) {
  const auto hash = base::hashFromHex(schedule);
  bool found = false;
  for (Candidate& candidate : candidates_) {
    if (hash ? candidate.hash != *hash : candidate.name != schedule) continue;
    candidate.dropped = true;
    found = true;
  }
  if (found) return {};
  return fail(ErrorCode::kNotFound,
              fmt::format("cannot drop schedule '{}': no candidate has that hash or name", schedule));
}

std::optional<control::ScheduleSlot> CandidateList::find(std::string_view schedule,
                                                         Collective collective) const {
  const auto hash = base::hashFromHex(schedule);
  for (const control::ScheduleSlot slot : slotsOf(collective)) {
    if (hash ? at(slot).hash == *hash : at(slot).name == schedule) return slot;
  }
  return std::nullopt;
}

}  // namespace theseus::policy
