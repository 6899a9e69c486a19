// The control plane of one rank as a sans-IO state machine: log, attributes, rounds, epoch switch. No clock,
// thread, socket or randomness: messages come in by receive(), go out through Host::send. One thread.
// Protocol: docs/agreement.md.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "control/attribute.h"
#include "control/dispatch_table.h"
#include "control/entry.h"
#include "theseus/result.h"

namespace theseus::control {

using ReadyBits = std::bitset<kScheduleSlots>;

/// What a round agreed on: equal on every rank.
struct Context {
  Round round = 0;
  std::uint64_t logVersion = 0;  // entries [0, logVersion) may be read
  ReadyBits ready;               // slots that every rank has verified and materialized
  std::map<std::string, std::vector<double>> attributes;  // NaN = nobody knows
  SequenceNumber switchAt = 0;
};

/// A published decision: in force from sequence number switchAt on.
struct Epoch {
  Round round = 0;
  SequenceNumber switchAt = 0;
  std::shared_ptr<const DispatchTable> table;
};

/// (log prefix, context) -> table. Must be deterministic; may keep state that is itself a function of earlier
/// calls.
class TableFunction {
 public:
  virtual ~TableFunction() = default;
  /// `entries` are the agreed entries [0, context.logVersion).
  virtual std::shared_ptr<const DispatchTable> compute(const std::vector<Entry>& entries,
                                                       const Context& context) = 0;
};

/// The world as the state machine sees it. Called from within ControlPlane's own methods; must not call back
/// into it.
class Host {
 public:
  virtual ~Host() = default;
  virtual void send(Rank to, std::string bytes) = 0;
  /// This rank joins a round: returns L = (next sequence number) + slack; collective k >= L must not be
  /// issued until lift().
  virtual SequenceNumber promiseLimit() = 0;
  /// The round is complete and its epoch has been published.
  virtual void liftLimit() = 0;
  virtual void publish(const Epoch& epoch) = 0;
  /// Ranks diverged, or a peer breaks the protocol: the communicator must stop with this error.
  virtual void fail(Error error) = 0;
};

/// Bounds of memory and of message sizes; the same on every rank.
struct ControlLimits {
  std::size_t contentBytes = 16u << 20;      // of one entry
  std::size_t outstandingEntries = 256;      // of one rank: proposed, but not yet held by every rank
  std::size_t outstandingBytes = 64u << 20;  // their contents together
  std::size_t proposalsPerRound = 32;        // the K of the vector: new entries that one round can order
  std::size_t pieceBytes = 256u << 10;       // longer contents travel in pieces of this size
};

/// What the control plane has done so far; for metrics and tests.
struct ControlCounters {
  std::uint64_t roundsCompleted = 0;
  std::uint64_t roundMessagesSent = 0;
  std::uint64_t roundBytesSent = 0;
  std::uint64_t pieceMessagesSent = 0;
  std::uint64_t pieceBytesSent = 0;
};

struct ControlOptions {
  Rank rank = 0;
  int size = 1;
  std::uint32_t incarnation = 0;
  std::vector<AttributeDeclaration> attributes;  // built in, the same on every rank
  base::Hash128 initialTable{};  // hash of the table that the job starts with: ranks that start differently
                                 // find out in round 1
  ControlLimits limits{};
  bool skipLimitRule = false;  // plants the bug that the simulator must catch; tests only
};

class ControlPlane {
 public:
  ControlPlane(ControlOptions options, Host& host, TableFunction& tables);
  ~ControlPlane();

  /// Adds an entry for all ranks; it is ordered by a later round, which this starts. Errors: content too
  /// large, too many pending.
  Result<EntryId> propose(EntryKind kind, std::string content);
  /// Starts a round as soon as none is running.
  void requestRound();
  /// Takes part in the next round's vector; does not start a round by itself.
  void setReady(ScheduleSlot slot, bool ready);
  Status setAttribute(std::string_view name, std::uint32_t index, double value);

  /// A message from a peer. An error names the peer and leaves the state as it was, except that a message
  /// which contradicts the protocol (kMismatch) also stops this control plane through Host::fail: after that
  /// every call is refused with kAborted.
  Status receive(Rank from, std::string_view bytes);

  Round completedRound() const;
  bool inRound() const;
  /// Agreed entries in order, and the context of the last completed round.
  const std::vector<Entry>& log() const;
  const Context& context() const;
  /// Entries of this rank that no round has ordered yet.
  std::size_t pendingProposals() const;
  /// Entries that completed rounds have ordered, and the prefix of them whose contents this rank holds: both
  /// at least log().size().
  std::uint64_t orderedEntries() const;
  std::uint64_t heldEntries() const;
  /// Endo attributes in force: those that setAttribute knows and the next vector carries.
  const std::vector<AttributeDeclaration>& attributes() const;
  const ControlCounters& counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace theseus::control
