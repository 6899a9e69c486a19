#include "policy/candidate_list.h"

#include <fmt/format.h>

#include "base/check.h"
#include "schedule/verify/verify.h"
#include "schedule/xml.h"

namespace theseus::policy {
namespace {

bool looksLikeCall(std::string_view content) {
  return content.find("\"generator\"") != std::string_view::npos && content.find("\"gpus\"") == std::string_view::npos;
}

CandidateFacts factsOf(const Candidate& candidate) {
  CandidateFacts facts;
  facts.collective = candidate.schedule->collective();
  facts.usesSwitch = candidate.schedule->usesSwitch();
  auto cost = CostModel::make(*candidate.schedule);
  if (cost) {
    facts.cost = std::move(*cost);
  } else {
    facts.noPrediction = cost.error().message;
  }
  if (!candidate.call || candidate.call->generator != kStragglerGenerator) return facts;
  const auto& parameters = candidate.call->parameters;
  const auto rank = parameters.find(kStragglerRank);
  const auto ratio = parameters.find(kStragglerRatio);
  facts.straggler = rank == parameters.end() ? 0 : static_cast<Rank>(rank->second);
  facts.stragglerRatio = ratio == parameters.end() ? 2 : ratio->second;
  return facts;
}

}  // namespace

void CandidateList::addAutomatic() {
  for (const synth::GeneratorInfo& info : synth::generators()) {
    if (!info.automatic || ranks_ < info.minRanks) continue;
    for (const Collective collective : info.collectives) {
      // A generator may refuse a rank count (only powers of two, too large an expansion); then there is no such candidate.
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
  schedule::VerifyOptions options;
  options.jobRanks = ranks_;
  const schedule::Verdict verdict = schedule::verify(*schedule, options);
  if (!verdict.valid()) {
    return fail(ErrorCode::kInvalidSchedule,
                fmt::format("schedule '{}': {}", schedule->name, schedule::toString(verdict.findings.front())));
  }
  Candidate candidate;
  candidate.name = schedule->name;
  candidate.hash = schedule::contentHash(*schedule);
  candidate.schedule = std::make_shared<const schedule::Schedule>(std::move(*schedule));
  CandidateFacts facts = factsOf(candidate);
  return insert(std::move(candidate), std::move(facts));
}

Result<control::ScheduleSlot> CandidateList::add(const synth::GeneratorCall& call, bool automatic) {
  if (call.ranks != ranks_) {
    return fail(ErrorCode::kInvalidSchedule, fmt::format("{} is for {} ranks, the job has {}", synth::shortName(call),
                                                         call.ranks, ranks_));
  }
  for (control::ScheduleSlot slot = 0; slot < size(); ++slot) {
    if (at(slot).call != call) continue;
    candidates_[static_cast<std::size_t>(slot)].dropped = false;
    return slot;
  }
  auto schedule = synth::generate(call);
  if (!schedule) return fail(schedule.error());
  Candidate candidate;
  candidate.name = synth::shortName(call);
  candidate.hash = schedule::contentHash(*schedule);
  candidate.schedule = std::make_shared<const schedule::Schedule>(std::move(*schedule));
  candidate.call = call;
  CandidateFacts facts = factsOf(candidate);
  facts.automatic = automatic;
  return insert(std::move(candidate), std::move(facts));
}

Result<control::ScheduleSlot> CandidateList::insert(Candidate candidate, CandidateFacts facts) {
  for (control::ScheduleSlot slot = 0; slot < size(); ++slot) {
    if (at(slot).hash != candidate.hash) continue;
    candidates_[static_cast<std::size_t>(slot)].dropped = false;
    return slot;
  }
  if (size() >= control::kScheduleSlots) {
    return fail(ErrorCode::kUnsupported, fmt::format("schedule '{}': all {} slots are taken", candidate.name,
                                                     control::kScheduleSlots));
  }
  byCollective_[static_cast<std::size_t>(facts.collective)].push_back(size());
  candidates_.push_back(std::move(candidate));
  facts_.push_back(std::move(facts));
  return static_cast<control::ScheduleSlot>(size() - 1);
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
  return fail(ErrorCode::kNotFound, fmt::format("cannot drop schedule '{}': no candidate has that hash or name", schedule));
}

std::optional<control::ScheduleSlot> CandidateList::find(std::string_view schedule, Collective collective) const {
  const auto hash = base::hashFromHex(schedule);
  for (const control::ScheduleSlot slot : slotsOf(collective)) {
    if (hash ? at(slot).hash == *hash : at(slot).name == schedule) return slot;
  }
  return std::nullopt;
}

}  // namespace theseus::policy
