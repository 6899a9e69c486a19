// Rounds by dissemination: in step k of a round rank i sends what it has joined so far to rank i + 2^k mod n
// and waits for rank i − 2^k. After ceil(log2 n) steps everyone has joined everyone's vector, for every n.
// Owned by the control plane; one thread; no IO.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "control/round_vector.h"
#include "theseus/result.h"

namespace theseus::control {

class Agreement {
 public:
  Agreement(Rank rank, int size);

  Round completed() const { return completed_; }
  bool inRound() const { return joined_; }
  /// A peer has begun the round after the last completed one, which this rank has not joined yet.
  bool begunElsewhere() const;

  /// Joins the next round with this rank's own vector. `layout`: of the attributes in it.
  void begin(RoundVector own, std::uint64_t layout);

  /// Keeps a message of the current or the next round; an old one and a repeated one do nothing. Errors
  /// (kMismatch: no rank that follows the protocol can have sent this) leave the state as it was. `digest`:
  /// hash of the message's bytes.
  Status accept(Rank from, RoundMessage message, const base::Hash128& digest);

  using SendStep = std::function<void(Rank to, const RoundStep& step, const RoundVector& vector)>;
  /// Takes every step whose message is there and sends what is due. The vector of a completed round, or
  /// nothing yet.
  Result<std::optional<RoundVector>> advance(const VectorShape& shape, const SendStep& send);

 private:
  struct Slot {
    bool arrived = false;
    base::Hash128 digest;  // kept after use, so that a repeated message with other content is noticed
    std::uint64_t layout = 0;
    RoundVector vector;
  };
  Rank senderOf(std::uint32_t step) const;
  std::vector<Slot>& inboxOf(Round round) { return inbox_[round % 2]; }
  const std::vector<Slot>& inboxOf(Round round) const { return inbox_[round % 2]; }
  Status checkPossible(Rank from, const RoundMessage& message) const;

  Rank rank_;
  int size_;
  std::uint32_t steps_;
  Round completed_ = 0;
  bool joined_ = false;
  std::uint32_t step_ = 0;  // the step whose message is awaited
  std::uint32_t sent_ = 0;  // steps whose message has been sent
  std::uint64_t layout_ = 0;
  RoundVector accumulator_;
  std::array<std::vector<Slot>, 2>
      inbox_;  // of rounds completed + 1 and completed + 2, by parity; one slot a step: that is its bound
};

}  // namespace theseus::control
