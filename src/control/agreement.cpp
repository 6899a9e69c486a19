#include "control/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace theseus::control {

Agreement::Agreement(Rank rank, int size)
    : rank_(rank),
      size_(size),
      steps_(static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(size - 1)))) {
  THESEUS_CHECK(size >= 1 && rank >= 0 && rank < size, "a rank is within its communicator");
  inbox_.fill(std::vector<Slot>(steps_));
}

Rank Agreement::senderOf(std::uint32_t step) const {
  const std::int64_t distance = std::int64_t{1} << step;  // below size, since step < ceil(log2 size)
  return static_cast<Rank>((rank_ - distance + size_) % size_);
}

bool Agreement::begunElsewhere() const {
  if (joined_) return false;
  const std::vector<Slot>& inbox = inboxOf(completed_ + 1);
  return std::any_of(inbox.begin(), inbox.end(), [](const Slot& slot) { return slot.arrived; });
}

void Agreement::begin(RoundVector own, std::uint64_t layout) {
  THESEUS_CHECK(!joined_, "a rank joins a round once");
  joined_ = true;
  step_ = 0;
  sent_ = 0;
  layout_ = layout;
  accumulator_ = std::move(own);
}

Status Agreement::checkPossible(Rank from, const RoundMessage& message) const {
  if (message.step >= steps_ || senderOf(message.step) != from) {
    return fail(ErrorCode::kMismatch,
                fmt::format("message of step {} of round {}, which rank {} does not send to rank {} in a "
                            "communicator of {}",
                            message.step, message.round, from, rank_, size_));
  }
  // Nobody completes a round without this rank's vector, so nobody is further than one round ahead of what
  // this rank has joined.
  const Round newest = completed_ + (joined_ ? 2 : 1);
  if (message.round > newest) {
    return fail(
        ErrorCode::kMismatch,
        fmt::format("message of round {}, but this rank has completed round {} and {} joined the next",
                    message.round, completed_, joined_ ? "has" : "has not"));
  }
  return {};
}

Status Agreement::accept(Rank from, RoundMessage message, const base::Hash128& digest) {
  THESEUS_TRY(checkPossible(from, message));
  if (message.round <= completed_) return {};
  Slot& slot = inboxOf(message.round)[message.step];
  if (slot.arrived) {
    if (slot.digest == digest) return {};
    return fail(ErrorCode::kMismatch,
                fmt::format("two different messages of step {} of round {}", message.step, message.round));
  }
  slot = Slot{true, digest, message.layout, std::move(message.vector)};
  return {};
}

Result<std::optional<RoundVector>> Agreement::advance(const VectorShape& shape, const SendStep& send) {
  if (!joined_) return std::optional<RoundVector>{};
  const Round round = completed_ + 1;
  for (;; ++step_) {
    if (step_ == steps_) break;
    if (sent_ == step_) {
      const std::int64_t to = (rank_ + (std::int64_t{1} << step_)) % size_;
      send(static_cast<Rank>(to), {round, step_, layout_}, accumulator_);
      ++sent_;
    }
    Slot& slot = inboxOf(round)[step_];
    if (!slot.arrived) return std::optional<RoundVector>{};
    if (slot.layout != layout_ || slot.vector.attributes.size() != shape.operators.size()) {
      return fail(
          ErrorCode::kMismatch,
          fmt::format("rank {} and rank {} have different endo attributes in round {}; declare the same "
                      "ones, in the same order, on all ranks",
                      senderOf(step_), rank_, round));
    }
    joinInto(accumulator_, slot.vector, shape);
    slot.vector = RoundVector{};
  }
  joined_ = false;
  completed_ = round;
  std::vector<Slot>& used = inboxOf(round);
  std::fill(used.begin(), used.end(), Slot{});
  return std::optional<RoundVector>{std::move(accumulator_)};
}

}  // namespace theseus::control
