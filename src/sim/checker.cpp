#include "sim/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace theseus::sim {
namespace {

bool sameValues(const AttributeValues& left, const AttributeValues& right) {
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [&](const auto& a, const auto& b) {
    return a.first == b.first &&
           std::equal(a.second.begin(), a.second.end(), b.second.begin(), b.second.end(), same);
  });
}

}  // namespace

control::AttributeOperator operatorOfName(const std::string& name) {
  return name.rfind("lo", 0) == 0 ? control::AttributeOperator::kMin : control::AttributeOperator::kMax;
}

Checker::Checker(int ranks)
    : ranks_(ranks),
      records_(1),
      completedBy_(static_cast<std::size_t>(ranks)),
      checkedBy_(static_cast<std::size_t>(ranks)) {}

void Checker::violate(std::string what) {
  if (!violation_) violation_ = std::move(what);
}

Checker::RoundRecord& Checker::record(Round round) {
  if (round >= records_.size()) records_.resize(round + 1);
  return records_[round];
}

void Checker::proposed(const control::EntryId& id, const std::string& content) {
  proposals_.emplace(id, content);
}

void Checker::joinAttributes(AttributeValues& into, const AttributeValues& from) {
  for (const auto& [name, values] : from) {
    std::vector<double>& joined = into.try_emplace(name, values).first->second;
    const bool smallest = operatorOfName(name) == control::AttributeOperator::kMin;
    for (std::size_t i = 0; i < values.size(); ++i) {
      joined[i] = smallest ? std::fmin(joined[i], values[i]) : std::fmax(joined[i], values[i]);
    }
  }
}

void Checker::joined(Rank rank, const Contribution& contribution, Microseconds now) {
  if (contribution.round != completedBy_[static_cast<std::size_t>(rank)] + 1) {
    violate(fmt::format("rank {} joins round {} after completing round {}", rank, contribution.round,
                        completedBy_[static_cast<std::size_t>(rank)]));
  }
  RoundRecord& round = record(contribution.round);
  if (round.joined == 0) {
    round.joinedValues = contribution;
    round.firstJoin = now;
  } else {
    if (round.joinedValues.attributes.size() != contribution.attributes.size()) {
      violate(fmt::format("rank {} joins round {} with {} attributes, another rank had {}", rank,
                          contribution.round, contribution.attributes.size(),
                          round.joinedValues.attributes.size()));
    }
    round.joinedValues.limit = std::max(round.joinedValues.limit, contribution.limit);
    round.joinedValues.ready &= contribution.ready;
    joinAttributes(round.joinedValues.attributes, contribution.attributes);
  }
  ++round.joined;
}

void Checker::checkContext(Rank rank, const RoundRecord& round, const control::Context& context) {
  const auto wrong = [&](const char* what) {
    violate(fmt::format("rank {}, round {}: {} is not what the ranks put in", rank, context.round, what));
  };
  if (context.switchAt != round.joinedValues.limit) wrong("the switch point");
  if (context.ready != round.joinedValues.ready) wrong("the set of ready bits");
  if (!sameValues(context.attributes, round.joinedValues.attributes)) wrong("an attribute");
  if (round.agreed && round.agreed->logVersion != context.logVersion) {
    violate(fmt::format("rank {}, round {}: log version {}, another rank has {}", rank, context.round,
                        context.logVersion, round.agreed->logVersion));
  }
}

void Checker::appendReference(const control::Entry& entry) {
  const auto proposal = proposals_.find(entry.id);
  if (proposal == proposals_.end()) {
    return violate(fmt::format("entry {} of rank {} was never proposed", entry.id.number, entry.id.origin));
  }
  std::uint64_t& next = nextOf_[entry.id.origin];
  if (entry.id.number != next) {
    violate(fmt::format("entry {} of rank {} comes where its entry {} should", entry.id.number,
                        entry.id.origin, next));
  }
  ++next;
  reference_.push_back(entry);
}

void Checker::checkEntries(Rank rank, const std::vector<control::Entry>& entries) {
  std::uint64_t& checked = checkedBy_[static_cast<std::size_t>(rank)];
  if (entries.size() < checked)
    return violate(fmt::format("rank {}: its agreed log shrank to {}", rank, entries.size()));
  for (; checked < entries.size(); ++checked) {
    const control::Entry& entry = entries[checked];
    if (checked == reference_.size()) appendReference(entry);
    if (violation_) return;
    if (reference_[checked].id != entry.id || proposals_.at(entry.id) != entry.content) {
      return violate(
          fmt::format("rank {}: entry {} of its log differs from another rank's or from what was proposed",
                      rank, checked));
    }
  }
}

bool Checker::completed(Rank rank, const std::vector<control::Entry>& entries,
                        const control::Context& context) {
  Round& last = completedBy_[static_cast<std::size_t>(rank)];
  if (context.round != last + 1)
    violate(fmt::format("rank {} completes round {} after round {}", rank, context.round, last));
  last = context.round;
  RoundRecord& round = record(context.round);
  if (round.joined != ranks_) {
    violate(fmt::format("rank {} completes round {}, which only {} of {} ranks have joined", rank,
                        context.round, round.joined, ranks_));
  }
  if (entries.size() != context.logVersion) {
    violate(fmt::format("rank {}, round {}: given {} entries at version {}", rank, context.round,
                        entries.size(), context.logVersion));
  }
  checkContext(rank, round, context);
  checkEntries(rank, entries);
  const bool first = !round.agreed;
  if (first) round.agreed = context;
  return first;
}

void Checker::published(Rank rank, const control::Epoch& epoch, Microseconds now) {
  RoundRecord& round = record(epoch.round);
  const base::Hash128 table = epoch.table->hash();
  if (!round.table) round.table = table;
  if (*round.table != table || !round.agreed || epoch.switchAt != round.agreed->switchAt) {
    violate(fmt::format("rank {} publishes another epoch for round {} than other ranks", rank, epoch.round));
  }
  if (++round.completed == ranks_) longestRound_ = std::max(longestRound_, now - round.firstJoin);
}

void Checker::issued(Rank rank, SequenceNumber number, const control::Epoch& epoch,
                     const base::Hash128& table) {
  const std::pair use{epoch.round, table};
  const auto [first, isNew] = used_.try_emplace(number, use);
  if (first->second != use) {
    violate(fmt::format(
        "(a) rank {} runs collective {} by the table of round {}, another rank by that of round {}", rank,
        number, epoch.round, first->second.first));
  }
  const std::size_t collective = number % control::kCollectives;
  const control::ScheduleSlot slot = epoch.table->slots[collective][(number * 7) % control::kSizeBuckets];
  if (slot >= 0 && !record(epoch.round).joinedValues.ready[static_cast<std::size_t>(slot)]) {
    violate(fmt::format("(b) rank {} runs collective {} by slot {}, which is not ready on every rank", rank,
                        number, slot));
  }
}

void Checker::atRest(Rank rank, const control::ControlPlane& plane) {
  if (plane.inRound())
    violate(fmt::format("(d) rank {} hangs in round {}", rank, plane.completedRound() + 1));
  if (plane.completedRound() != rounds()) {
    violate(fmt::format("(d) rank {} has completed {} rounds of {}", rank, plane.completedRound(), rounds()));
  }
  if (plane.pendingProposals() != 0)
    violate(fmt::format("(d) rank {} has {} entries not ordered", rank, plane.pendingProposals()));
  if (plane.log().size() != proposals_.size()) {
    violate(fmt::format("(d) rank {} has {} of {} entries in its agreed log", rank, plane.log().size(),
                        proposals_.size()));
  }
}

}  // namespace theseus::sim
