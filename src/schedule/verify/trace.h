// Deadlock pass: runs all thread blocks of a program abstractly, and the order it found. Internal to verify/; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/verify/program.h"
#include "schedule/verify/report.h"

namespace theseus::schedule::verifying {

/// One step of a thread block. A barrier's participants stand side by side; `group` of the first is their number.
struct TraceEvent {
  std::uint32_t thread = 0;
  std::uint32_t step = 0;
  std::uint32_t group = 1;
};

/// Executes greedily. Every wait is for something monotonic that one block alone consumes (the resources pass saw to
/// that), so an order in which all blocks end exists exactly if this one ends. Reports the blocks that stay blocked.
/// Returns the order; incomplete if there was a finding.
std::vector<TraceEvent> runToEnd(const Program& program, Report& report);

/// Race pass: vector clocks along the trace. Returns whether peers' accesses to each rank's buffers end before the rank.
bool checkRaces(const Program& program, const std::vector<TraceEvent>& trace, Report& report);

/// Meaning pass: symbolic contents of every cell along the trace, compared with the collective's postcondition.
void checkMeaning(const Program& program, const std::vector<TraceEvent>& trace, Report& report);

/// Rest of the resources pass, on the program: signals sent and waited for and semaphores balance within one collective,
/// operands of one op do not overlap.
void checkBalance(const Program& program, Report& report);

}  // namespace theseus::schedule::verifying
