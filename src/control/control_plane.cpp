#include "control/control_plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "base/check.h"
#include "control/agreement.h"
#include "control/attribute_table.h"
#include "control/log.h"
#include "control/message.h"
#include "control/replication.h"
#include "control/round_vector.h"

namespace theseus::control {

struct ControlPlane::State {
  State(ControlOptions given, Host& world, TableFunction& function)
      : options(std::move(given)),
        host(world),
        tables(function),
        attributes(options.size),
        agreement(options.rank, options.size),
        replication(options.rank, options.size, options.limits, log),
        lastTable(options.initialTable) {}

  VectorShape shape() const { return {attributes.operators(), options.limits.proposalsPerRound}; }
  RoundVector ownVector();
  void beginRound();
  void pump();
  Status checkAgreed(const RoundVector& agreed) const;
  void completeRound(const RoundVector& agreed);
  void agreeOnLog(const RoundVector& agreed);
  void applyNewAttributes(std::uint64_t firstEntry);
  Status receiveRound(Rank from, std::string_view bytes);
  Status receivePiece(Rank from, std::string_view bytes);
  Status checkProposal(EntryKind kind, const std::string& content) const;
  void stop(Error error);
  Status checkRunning() const;

  const ControlOptions options;
  Host& host;
  TableFunction& tables;
  Log log;
  AttributeTable attributes;
  Agreement agreement;
  Replication replication;
  ReadyBits ready;
  base::Hash128 lastTable;
  Context context;
  ControlCounters counters;
  std::deque<EntryId> pending;           // own entries that no round has ordered
  std::uint64_t nextNumber = 0;          // of this rank's next entry
  std::uint64_t outstandingBytes = 0;    // of own entries beyond the agreed prefix
  std::uint64_t contributedVersion = 0;  // what this rank's vector of the latest round said that it holds
  bool wanted = false;                   // another round must follow
  std::optional<Error> stopped;
};

RoundVector ControlPlane::State::ownVector() {
  RoundVector vector;
  vector.limit = host.promiseLimit();
  // The planted bug: the limit is promised to the others but this rank does not keep to it.
  if (options.skipLimitRule) host.liftLimit();
  contributedVersion = log.heldPrefix();
  vector.version = contributedVersion;
  vector.smallestTable = lastTable;
  vector.largestTable = lastTable;
  vector.ready = ready;
  const std::size_t proposals = std::min(pending.size(), options.limits.proposalsPerRound);
  vector.proposals.assign(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(proposals));
  vector.attributes = attributes.values();
  return vector;
}

void ControlPlane::State::beginRound() {
  wanted = false;
  RoundVector own = ownVector();
  agreement.begin(std::move(own), attributes.layoutHash());
}

/// Brings about everything that what has arrived allows: joins rounds, takes steps, completes rounds.
void ControlPlane::State::pump() {
  const auto send = [this](Rank to, const RoundStep& step, const RoundVector& vector) {
    std::string bytes = encodeRoundMessage(step, vector, options.size);
    ++counters.roundMessagesSent;
    counters.roundBytesSent += bytes.size();
    host.send(to, std::move(bytes));
  };
  while (!stopped) {
    if (!agreement.inRound()) {
      if (!wanted && !agreement.begunElsewhere()) return;
      beginRound();
    }
    auto agreed = agreement.advance(shape(), send);
    if (!agreed) return stop(std::move(agreed.error()));
    if (!agreed->has_value()) return;
    completeRound(**agreed);
  }
}

/// Every rank has the same vector, so every rank comes to the same verdict.
Status ControlPlane::State::checkAgreed(const RoundVector& agreed) const {
  if (agreed.smallestTable != agreed.largestTable) {
    return fail(
        ErrorCode::kMismatch,
        fmt::format("round {}: the ranks' dispatch tables of round {} differ (hashes {} to {}, this rank "
                    "{}): different builds or "
                    "options, or a table function that is not deterministic; no further collective is safe",
                    agreement.completed(), context.round, base::toHex(agreed.smallestTable),
                    base::toHex(agreed.largestTable), base::toHex(lastTable)));
  }
  if (agreed.version < log.agreed().size()) {
    return fail(ErrorCode::kMismatch,
                fmt::format("round {}: a rank holds only {} log entries, although all ranks had {} before",
                            agreement.completed(), agreed.version, log.agreed().size()));
  }
  return {};
}

void ControlPlane::State::completeRound(const RoundVector& agreed) {
  if (auto status = checkAgreed(agreed); !status) return stop(std::move(status.error()));
  for (const EntryId& id : agreed.proposals) {
    if (auto status = log.checkOrderable(id); !status) return stop(std::move(status.error()));
    log.order(id);
    if (!pending.empty() && pending.front() == id) pending.pop_front();
  }
  context.round = agreement.completed();
  context.ready = agreed.ready;
  context.switchAt = agreed.limit;
  context.attributes = attributes.byName(agreed.attributes);
  agreeOnLog(agreed);
  ++counters.roundsCompleted;

  Epoch epoch{context.round, context.switchAt, tables.compute(log.agreed(), context)};
  THESEUS_CHECK(epoch.table != nullptr, "a table function returns a table");
  lastTable = epoch.table->hash();
  host.publish(epoch);
  if (!options.skipLimitRule) host.liftLimit();
  // Reasons for another round: entries that this one had no room for, and contents that came after this rank
  // had joined it.
  if (!pending.empty() || log.heldPrefix() > contributedVersion) wanted = true;
}

void ControlPlane::State::agreeOnLog(const RoundVector& agreed) {
  const std::uint64_t before = log.agreed().size();
  log.agree(agreed.version);
  for (std::uint64_t i = before; i < agreed.version; ++i) {
    const Entry& entry = log.agreed()[i];
    const bool own = entry.id.origin == options.rank && entry.id.incarnation == options.incarnation;
    if (own) outstandingBytes -= entry.content.size();
  }
  context.logVersion = agreed.version;
  applyNewAttributes(before);
}

/// In force from the next round on. What cannot be declared is left out, on every rank alike.
void ControlPlane::State::applyNewAttributes(std::uint64_t firstEntry) {
  for (std::uint64_t i = firstEntry; i < log.agreed().size(); ++i) {
    const Entry& entry = log.agreed()[i];
    if (entry.kind != EntryKind::kNewAttribute) continue;
    auto declaration = parseAttributeContent(entry.content, options.size);
    if (declaration) static_cast<void>(attributes.declare(*declaration));
  }
}

Status ControlPlane::State::receiveRound(Rank from, std::string_view bytes) {
  auto message = decodeRoundMessage(bytes, options.size);
  if (!message) return fail(std::move(message.error()));
  return agreement.accept(from, std::move(*message), base::hash128(bytes));
}

Status ControlPlane::State::receivePiece(Rank from, std::string_view bytes) {
  auto piece = decodePiece(bytes, options.size);
  if (!piece) return fail(std::move(piece.error()));
  const auto send = [this](Rank to, std::string message) {
    ++counters.pieceMessagesSent;
    counters.pieceBytesSent += message.size();
    host.send(to, std::move(message));
  };
  THESEUS_TRY(replication.accept(from, *piece, bytes, send));
  // The round that this starts lets the agreed prefix advance. While a round runs, its end looks at the same
  // condition.
  if (!agreement.inRound() && log.heldPrefix() > contributedVersion) wanted = true;
  return {};
}

Status ControlPlane::State::checkProposal(EntryKind kind, const std::string& content) const {
  const ControlLimits& limits = options.limits;
  if (content.size() > limits.contentBytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a log entry of {} bytes is too large; the limit is {}", content.size(),
                            limits.contentBytes));
  }
  const std::uint64_t outstanding = nextNumber - log.agreedOf(options.rank, options.incarnation);
  if (outstanding >= limits.outstandingEntries ||
      outstandingBytes + content.size() > limits.outstandingBytes) {
    return fail(
        ErrorCode::kOutOfMemory,
        fmt::format("{} entries ({} bytes) of this rank are not on every rank yet; the limits are {} and "
                    "{}; try again after the next round",
                    outstanding, outstandingBytes, limits.outstandingEntries, limits.outstandingBytes));
  }
  if (kind == EntryKind::kNewAttribute) THESEUS_TRY(parseAttributeContent(content, options.size));
  return {};
}

void ControlPlane::State::stop(Error error) {
  if (stopped) return;
  stopped = error;
  host.fail(std::move(error));
}

Status ControlPlane::State::checkRunning() const {
  if (!stopped) return {};
  return fail(ErrorCode::kAborted,
              fmt::format("the control plane of rank {} has stopped: {}", options.rank, stopped->message));
}

ControlPlane::ControlPlane(ControlOptions options, Host& host, TableFunction& tables) {
  const ControlLimits& limits = options.limits;
  THESEUS_CHECK(limits.proposalsPerRound >= 1 && limits.proposalsPerRound <= kMaxProposalsPerRound,
                "K is within what a message can hold");
  THESEUS_CHECK(limits.pieceBytes >= 1 && limits.contentBytes / limits.pieceBytes < kMaxPieces,
                "a content has a bounded number of pieces");
  THESEUS_CHECK(limits.contentBytes <= limits.outstandingBytes && limits.contentBytes < (1ull << 31),
                "the largest content can be proposed");
  state_ = std::make_unique<State>(std::move(options), host, tables);
  for (const AttributeDeclaration& declaration : state_->options.attributes) {
    THESEUS_CHECK(state_->attributes.declare(declaration).has_value(), "a built-in attribute is well formed");
  }
}

ControlPlane::~ControlPlane() = default;

Result<EntryId> ControlPlane::propose(EntryKind kind, std::string content) {
  State& state = *state_;
  THESEUS_TRY(state.checkRunning());
  THESEUS_TRY(state.checkProposal(kind, content));
  const EntryId id{state.options.rank, state.options.incarnation, state.nextNumber++,
                   entryHash(kind, content)};
  state.outstandingBytes += content.size();
  Entry entry{id, kind, std::move(content)};
  state.replication.spread(entry, [&state](Rank to, std::string bytes) {
    ++state.counters.pieceMessagesSent;
    state.counters.pieceBytesSent += bytes.size();
    state.host.send(to, std::move(bytes));
  });
  state.log.hold(std::move(entry));
  state.pending.push_back(id);
  requestRound();
  return id;
}

void ControlPlane::requestRound() {
  state_->wanted = true;
  state_->pump();
}

void ControlPlane::setReady(ScheduleSlot slot, bool ready) {
  THESEUS_CHECK(slot >= 0 && slot < kScheduleSlots, "a ready bit belongs to a slot");
  state_->ready[static_cast<std::size_t>(slot)] = ready;
}

Status ControlPlane::setAttribute(std::string_view name, std::uint32_t index, double value) {
  return state_->attributes.set(name, index, value);
}

Status ControlPlane::receive(Rank from, std::string_view bytes) {
  State& state = *state_;
  THESEUS_TRY(state.checkRunning());
  if (from < 0 || from >= state.options.size || from == state.options.rank) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("rank {} got a control message said to be from rank {}", state.options.rank, from));
  }
  ByteReader reader(bytes);
  Status status;
  auto kind = readPrefix(reader, state.options.size);
  if (!kind) {
    status = fail(std::move(kind.error()));
  } else {
    status = *kind == MessageKind::kRound ? state.receiveRound(from, bytes) : state.receivePiece(from, bytes);
  }
  if (!status) {
    Error error{status.error().code, fmt::format("from rank {}: {}", from, status.error().message)};
    if (error.code == ErrorCode::kMismatch) state.stop(error);
    return fail(std::move(error));
  }
  state.pump();
  return {};
}

Round ControlPlane::completedRound() const { return state_->agreement.completed(); }
bool ControlPlane::inRound() const { return state_->agreement.inRound(); }
const std::vector<Entry>& ControlPlane::log() const { return state_->log.agreed(); }
const Context& ControlPlane::context() const { return state_->context; }
std::size_t ControlPlane::pendingProposals() const { return state_->pending.size(); }
std::uint64_t ControlPlane::orderedEntries() const { return state_->log.ordered(); }
std::uint64_t ControlPlane::heldEntries() const { return state_->log.heldPrefix(); }
const std::vector<AttributeDeclaration>& ControlPlane::attributes() const {
  return state_->attributes.declarations();
}
const ControlCounters& ControlPlane::counters() const { return state_->counters; }

}  // namespace theseus::control
