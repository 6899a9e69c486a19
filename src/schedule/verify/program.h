// All ranks of a plan, resolved for one message size, on one grid of cells: what the dynamic passes
// (deadlock, race, meaning) execute. Internal to verify/; built once, then read only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/resolve.h"
#include "schedule/schedule.h"
#include "schedule/verify/verify.h"
#include "theseus/result.h"

namespace theseus::schedule::verifying {

/// A run of cells of one space. A space is the memory of one buffer, or of two that alias.
struct CellRange {
  std::uint32_t space = 0;
  std::uint32_t first = 0;
  bool packet = false;  // the cells hold packets
};

/// Data of one piece of an op: `cells` cells from every source to every destination.
struct Move {
  std::uint32_t cells = 0;
  std::vector<CellRange> sources;
  std::vector<CellRange> destinations;
  std::vector<std::int32_t>
      agents;  // for each destination: the port channel's thread that writes it, -1 = the block itself
};

struct Step {
  OpPlace place;
  OpCode code = OpCode::kNop;
  bool waitsForPackets = false;  // packet sources are waited for (not so for ppkt over port)
  bool relaxed = false;          // relaxed signal or wait
  std::uint32_t barrierId = 0;
  std::vector<std::uint32_t> acquires;  // counters, one unit of each is waited for and taken
  std::vector<std::uint32_t> releases;  // counters that get one unit
  std::vector<std::int32_t>
      releaseAgents;                  // for each release: the port channel's thread, -1 = the block itself
  std::vector<std::int32_t> flushes;  // threads of port channels whose earlier work is waited for
  std::vector<Move> moves;
};

/// A thread of execution: a thread block, or the agent that works off one port channel in order.
struct Thread {
  Rank rank = 0;
  std::int32_t block = -1;  // -1 = agent of a port channel
  std::vector<Step> steps;
};

/// Signals of a channel that arrive at one rank, or a semaphore.
struct Counter {
  Rank rank = 0;
  std::int64_t initial = 0;
  std::string name;  // "semaphore 3", "memory channel 2 from rank 1"
};

struct Space {
  Rank rank = 0;
  BufferKind kind = BufferKind::kInput;
  std::uint32_t cells = 0;
};

struct Barrier {
  Rank rank = 0;
  std::uint32_t id = 0;
  std::uint32_t threadBlocks = 0;
};

struct Program {
  const Schedule* schedule = nullptr;
  MessageSize size;
  bool inPlace = false;
  std::uint64_t cellBytes = 1;
  std::vector<Space> spaces;
  std::vector<CellRange> buffers;          // by 3 * rank + kind: where the buffer lies
  std::vector<std::uint32_t> bufferCells;  // by 3 * rank + kind
  std::vector<Thread> threads;             // blocks first, in order of rank and block, then agents
  std::vector<Counter> counters;
  std::vector<Barrier> barriers;  // sorted by rank and id

  CellRange buffer(Rank rank, BufferKind kind) const {
    return buffers[3 * static_cast<std::size_t>(rank) + static_cast<std::size_t>(kind)];
  }
  std::uint32_t cellsOf(Rank rank, BufferKind kind) const {
    return bufferCells[3 * static_cast<std::size_t>(rank) + static_cast<std::size_t>(kind)];
  }
  std::string describe() const;  // "allreduce of 4096 bytes, in place"
};

/// Resolves every rank. The plan must have passed structure and resources; an error means that the plan does
/// not serve this size or is too large to expand.
Result<Program> buildProgram(const Schedule& schedule, const MessageSize& size, bool inPlace);

struct ExaminedSize {
  MessageSize size;
  bool inPlace = false;
  bool even = true;        // all chunks are equally long
  bool evenExists = true;  // some examined size is even
};

/// The message sizes at which a plan is examined: chunks that divide evenly (with several iterations of each
/// pipeline, and with slices of unequal length), chunks that do not, and fewer units than chunks; each out of
/// place and in place as the plan says. Never empty; even sizes first; all lie within the plan's range where
/// that is possible.
std::vector<ExaminedSize> examinedSizes(const Schedule& schedule);

}  // namespace theseus::schedule::verifying
