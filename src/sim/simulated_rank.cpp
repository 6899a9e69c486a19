#include "sim/simulated_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace theseus::sim {

SimulatedRank::SimulatedRank(RankOptions options, Surroundings& surroundings)
    : rank_(options.control.rank),
      ranks_(static_cast<std::uint32_t>(options.control.size)),
      largestSlack_(options.largestSlack),
      surroundings_(surroundings) {
  control::Epoch first{0, 0, emptyTable()};
  const base::Hash128 hash = first.table->hash();
  options.control.initialTable = hash;
  epochs_.push_back({std::move(first), hash});
  plane_ = std::make_unique<control::ControlPlane>(std::move(options.control), *this, *this);
}

void SimulatedRank::startWaiting(Microseconds now) {
  ++stalls_;
  waitingSince_ = now;
}

const SimulatedRank::InForce& SimulatedRank::inForce(SequenceNumber number) {
  const auto latest = std::find_if(epochs_.rbegin(), epochs_.rend(), [&](const InForce& candidate) {
    return candidate.epoch.switchAt <= number;
  });
  return *latest;  // epoch 0 is in force from 0 on
}

void SimulatedRank::issue() {
  const InForce& current = inForce(next_);
  surroundings_.checker().issued(rank_, next_, current.epoch, current.hash);
  if (surroundings_.tracing()) {
    surroundings_.note(rank_,
                       fmt::format("collective {} by the table of round {}", next_, current.epoch.round));
  }
  ++next_;
  // Collectives only move on, so an epoch older than the one in force is never looked up again.
  const Round round = current.epoch.round;
  epochs_.erase(epochs_.begin(), std::find_if(epochs_.begin(), epochs_.end(), [&](const InForce& candidate) {
                  return candidate.epoch.round == round;
                }));
}

void SimulatedRank::propose(control::EntryKind kind, std::string content) {
  // The checker learns of it first: in a communicator of one rank the round completes within propose().
  const control::EntryId expected{rank_, 0, proposed_, control::entryHash(kind, content)};
  Checker& checker = surroundings_.checker();
  checker.proposed(expected, content);
  const auto id = plane_->propose(kind, std::move(content));
  if (id) {
    ++proposed_;
    if (*id != expected)
      checker.violate(fmt::format("rank {}: its entry {} has another id", rank_, expected.number));
    return;
  }
  ++refused_;
  checker.withdrawn(expected);
  if (id.error().code != ErrorCode::kOutOfMemory) {
    checker.violate(fmt::format("rank {}: proposal refused: {}", rank_, id.error().message));
  }
}

void SimulatedRank::setReady(control::ScheduleSlot slot, bool ready) {
  ready_[static_cast<std::size_t>(slot)] = ready;
  plane_->setReady(slot, ready);
}

void SimulatedRank::setAttribute(const std::string& name, std::uint32_t index, double value) {
  const auto& inPlane = plane_->attributes();
  const auto declaration = std::find_if(inPlane.begin(), inPlane.end(),
                                        [&](const auto& candidate) { return candidate.name == name; });
  const bool possible = declaration != inPlane.end() && index < declaration->width;
  const Status status = plane_->setAttribute(name, index, value);
  if (status.has_value() != possible) {
    surroundings_.checker().violate(
        fmt::format("rank {}: setting attribute {}[{}] went otherwise than declared", rank_, name, index));
  }
  if (!status) return;
  std::vector<double>& values = attributes_[name];
  values.resize(declaration->width, std::numeric_limits<double>::quiet_NaN());
  values[index] = value;
}

AttributeValues SimulatedRank::attributesInForce() const {
  AttributeValues values;
  for (const control::AttributeDeclaration& declaration : plane_->attributes()) {
    const auto own = attributes_.find(declaration.name);
    values[declaration.name] =
        own != attributes_.end()
            ? own->second
            : std::vector<double>(declaration.width, std::numeric_limits<double>::quiet_NaN());
  }
  return values;
}

void SimulatedRank::send(Rank to, std::string bytes) {
  if (to < 0 || to >= static_cast<Rank>(ranks_) || to == rank_) {
    return surroundings_.checker().violate(fmt::format("rank {} sends to rank {}", rank_, to));
  }
  surroundings_.transmit(rank_, to, std::move(bytes));
}

SequenceNumber SimulatedRank::promiseLimit() {
  if (limit_) surroundings_.checker().violate(fmt::format("rank {} is asked for a second limit", rank_));
  limit_ = next_ + surroundings_.random().below(largestSlack_ + 1);
  surroundings_.checker().joined(rank_, {published_ + 1, *limit_, ready_, attributesInForce()},
                                 surroundings_.now());
  if (surroundings_.tracing())
    surroundings_.note(rank_, fmt::format("joins round {}, limit {}", published_ + 1, *limit_));
  return *limit_;
}

void SimulatedRank::liftLimit() {
  if (!limit_)
    surroundings_.checker().violate(fmt::format("rank {}: a limit is lifted that was not promised", rank_));
  limit_.reset();
  if (!waitingSince_) return;
  longestStall_ = std::max(longestStall_, surroundings_.now() - *waitingSince_);
  waitingSince_.reset();
  surroundings_.limitLifted(rank_);
}

std::shared_ptr<const control::DispatchTable> SimulatedRank::compute(
    const std::vector<control::Entry>& entries, const control::Context& context) {
  if (surroundings_.checker().completed(rank_, entries, context))
    surroundings_.firstCompletion(rank_, context);
  return tables_.draw(entries, context);
}

void SimulatedRank::publish(const control::Epoch& epoch) {
  if (epoch.round != published_ + 1)
    surroundings_.checker().violate(fmt::format("rank {} skips an epoch", rank_));
  published_ = epoch.round;
  const base::Hash128 hash = epoch.table->hash();
  surroundings_.checker().published(rank_, epoch, surroundings_.now());
  if (surroundings_.tracing()) {
    surroundings_.note(rank_,
                       fmt::format("completes round {}: log version {}, switch at {}, {} ready, table {}",
                                   epoch.round, plane_->context().logVersion, epoch.switchAt,
                                   plane_->context().ready.count(), base::toHex(hash).substr(0, 8)));
  }
  epochs_.push_back({epoch, hash});
}

void SimulatedRank::fail(Error error) {
  surroundings_.checker().violate(fmt::format("rank {} stops: {}", rank_, error.message));
}

}  // namespace theseus::sim
