// Deadlock pass: runs all thread blocks of a program abstractly, and the order it found. Internal to verify/;
// one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/verify/program.h"
#include "schedule/verify/report.h"

namespace theseus::schedule::verifying {

/// One step of a thread block. A barrier's participants stand side by side; `group` of the first is their
/// number.
struct TraceEvent {
  std::uint32_t thread = 0;
  std::uint32_t step = 0;
  std::uint32_t group = 1;
};

/// Executes greedily. Every wait is for something monotonic that one block alone consumes (the resources pass
/// saw to that), so an order in which all blocks end exists exactly if this one ends. Reports the blocks that
/// stay blocked. Returns the order; incomplete if there was a finding.
std::vector<TraceEvent> runToEnd(const Program& program, Report& report);

/// How writes of memory channels reach a peer.
enum class Delivery : std::uint8_t {
  kShared,    // as stores: whoever learns of a later one, even from a third rank, sees the earlier ones
  kPairwise,  // as messages: in order from one rank to another, in no order with what third ranks send
};

struct RaceInput {
  const Program& program;
  const std::vector<TraceEvent>& trace;
  Delivery delivery = Delivery::kShared;
};

/// Race pass: vector clocks along the trace. Returns whether peers' accesses to each rank's buffers end
/// before the rank.
bool checkRaces(const RaceInput& input, Report& report);

struct MeaningInput {
  const Program& program;
  const std::vector<TraceEvent>& trace;
  bool padded;  // slots of scratch are longer than some chunks: a copy may carry bytes that nobody wrote
};

/// Meaning pass: symbolic contents of every cell along the trace, compared with the collective's
/// postcondition.
void checkMeaning(const MeaningInput& input, Report& report);

/// Rest of the resources pass, on the program: signals sent and waited for and semaphores balance within one
/// collective, operands of one op do not overlap.
void checkBalance(const Program& program, Report& report);

}  // namespace theseus::schedule::verifying
