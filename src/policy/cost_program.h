// A schedule boiled down to what costs time: messages between ranks and who waits for what. Internal to the
// cost model; built once, then read only.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"
#include "theseus/result.h"

namespace theseus::policy {

struct CostMessage {
  Rank from = 0;
  Rank to = 0;
  double fraction = 0;            // of the message
  bool fetched = false;           // a get: the reader asks and waits
  std::uint32_t packetFirst = 0;  // cells in packet numbering that the arrival fills
  std::uint32_t packetCells = 0;  // 0 = no packets
};

/// Packet cells that must have arrived.
struct CostPacketWait {
  std::uint32_t first = 0;
  std::uint32_t cells = 0;
};

struct CostRelease {
  std::uint32_t counter = 0;
  Rank to = 0;  // the releasing rank itself for semaphores
};

struct CostStep {
  std::vector<std::uint32_t> acquires;
  std::vector<CostPacketWait> packetWaits;
  std::vector<CostMessage> messages;
  std::vector<CostPacketWait> localPackets;  // filled by this step, at once
  std::vector<CostRelease> releases;
  std::int32_t barrier = -1;  // position in CostProgram::barrierThreads
};

struct CostThread {
  Rank rank = 0;
  std::vector<CostStep> steps;
};

struct CostProgram {
  int ranks = 0;
  std::vector<CostThread> threads;
  std::vector<std::int64_t> counters;         // initial values
  std::vector<std::uint32_t> barrierThreads;  // threads that meet
  std::uint32_t cells = 0;
};

Result<CostProgram> buildCostProgram(const schedule::Schedule& schedule);

}  // namespace theseus::policy
