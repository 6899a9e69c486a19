// The verifier: nothing unverified ever runs. Pure functions, any thread.
// Five ordered passes; each relies on the ones before, so a pass that finds something ends the verification
// after it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/resolve.h"
#include "schedule/schedule.h"

namespace theseus::schedule {

enum class VerifyPass : std::uint8_t { kStructure, kResources, kDeadlock, kRace, kMeaning };
std::string_view name(VerifyPass pass);  // "structure", "resources", "deadlock", "race", "meaning"

/// Where an op stands. -1 = not applicable (a finding about a whole rank has no block).
struct OpPlace {
  Rank rank = -1;
  std::int32_t threadBlock = -1;
  std::int32_t op = -1;
  std::int32_t inner = -1;  // within a pipeline
  friend bool operator==(const OpPlace&, const OpPlace&) = default;
};
std::string toString(const OpPlace& place);  // "rank 1 block 0 op 7", "rank 2", "rank 0 block 1 op 3.2"

struct Finding {
  VerifyPass pass = VerifyPass::kStructure;
  std::string kind;  // stable kebab-case word: "unpaired-channel", "deadlock", "write-write-race", ...
  OpPlace place;
  std::optional<OpPlace> second;  // the other culprit
  std::string message;            // what, and what to do
};
/// "race: rank 1 block 0 op 7 (put): read-write-race with rank 0 block 0 op 3: ..."
std::string toString(const Finding& finding);

struct VerifyOptions {
  std::size_t maxFindings = 20;
  /// Ranks of the job, when known: a plan for another number of ranks is a finding.
  std::optional<int> jobRanks;
};

struct Verdict {
  std::vector<Finding> findings;  // empty = valid
  /// Every access of a peer to a rank's buffers happens before that rank's last op: the executor needs no
  /// closing handshake. False is no error.
  bool tailSynchronized = false;
  /// The plan has a known collective, so its meaning was checked (fragments "custom" and "test" have none).
  bool meaningChecked = false;
  /// True when the plan declares in-network switch channels; such a plan may be valid but is unusable on host
  /// memory.
  bool usesSwitch = false;
  /// Why the plan serves only messages whose chunks are all equally long (see isEven), as in MSCCL++; nullopt
  /// = it serves every message. No error, but whoever runs the plan must ask isEven() for each message size
  /// first.
  std::optional<Finding> unevenFinding;
  /// Why the plan needs memory channels whose writes are seen in causal order across three ranks, as stores
  /// to shared memory are; nullopt = order from one rank to another is enough, as over a socket. No error.
  std::optional<Finding> pairwiseFinding;
  bool valid() const { return findings.empty(); }
};

Verdict verify(const Schedule& schedule, const VerifyOptions& options = {});

/// Whether all chunks of the user's buffers are equally long for a message of this size, and no slot of
/// scratch is longer. False also when the plan cannot serve the size at all.
bool isEven(const Schedule& schedule, const MessageSize& size);

}  // namespace theseus::schedule
