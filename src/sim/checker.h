// The invariants of the protocol, checked against what the simulated ranks really did: it sees every promise,
// completion, proposal and collective, and computes by itself what each round should have agreed on. Owned by
// one simulation; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/control_plane.h"
#include "sim/scenario.h"

namespace theseus::sim {

using AttributeValues = std::map<std::string, std::vector<double>>;

/// What one rank put into a round, by the simulator's own account.
struct Contribution {
  Round round = 0;
  SequenceNumber limit = 0;
  control::ReadyBits ready;
  AttributeValues attributes;
};

class Checker {
 public:
  explicit Checker(int ranks);

  /// Before the proposal; withdrawn when the plane refuses it.
  void proposed(const control::EntryId& id, const std::string& content);
  void withdrawn(const control::EntryId& id) { proposals_.erase(id); }
  void joined(Rank rank, const Contribution& contribution, Microseconds now);
  /// True when `rank` is the first to complete this round.
  bool completed(Rank rank, const std::vector<control::Entry>& entries, const control::Context& context);
  void published(Rank rank, const control::Epoch& epoch, Microseconds now);
  void issued(Rank rank, SequenceNumber number, const control::Epoch& epoch, const base::Hash128& table);
  /// The run has come to rest.
  void atRest(Rank rank, const control::ControlPlane& plane);

  void violate(std::string what);
  const std::optional<std::string>& violation() const { return violation_; }
  Round rounds() const { return records_.size() - 1; }
  std::uint64_t entries() const { return reference_.size(); }
  Microseconds longestRound() const { return longestRound_; }

 private:
  struct RoundRecord {
    int joined = 0;
    int completed = 0;
    Contribution joinedValues;               // by this checker's own joins
    std::optional<control::Context> agreed;  // as the first rank that completed had it
    std::optional<base::Hash128> table;
    Microseconds firstJoin = 0;
  };
  RoundRecord& record(Round round);
  void joinAttributes(AttributeValues& into, const AttributeValues& from);
  void checkContext(Rank rank, const RoundRecord& round, const control::Context& context);
  void checkEntries(Rank rank, const std::vector<control::Entry>& entries);
  void appendReference(const control::Entry& entry);

  int ranks_;
  std::vector<RoundRecord> records_;       // by round; 0 is unused
  std::vector<Round> completedBy_;         // by rank
  std::vector<std::uint64_t> checkedBy_;   // by rank: entries compared with the reference
  std::vector<control::Entry> reference_;  // the one log, as first seen
  std::map<Rank, std::uint64_t> nextOf_;   // by origin
  std::map<control::EntryId, std::string> proposals_;
  std::map<SequenceNumber, std::pair<Round, base::Hash128>> used_;
  Microseconds longestRound_ = 0;
  std::optional<std::string> violation_;
};

/// How the simulator names an attribute's operator: those that start with "lo" are minima, all others maxima.
control::AttributeOperator operatorOfName(const std::string& name);

}  // namespace theseus::sim
