// Everything that one running collective keeps on this rank. Owned by the HostExecutor, shared by the parts
// that step thread blocks and those that receive. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "exec/host/arrivals.h"
#include "exec/host/call.h"
#include "transport/channel.h"

namespace theseus::exec {

/// A thread block: a cooperative task that walks its ops in order.
struct BlockState {
  std::size_t op = 0;
  std::size_t piece = 0;
  std::size_t target = 0;    // remote destination of the current piece
  std::uint64_t offset = 0;  // bytes of the current target already handed over
  bool entered = false;      // the current op has counted itself in a barrier, or asked for its reads
  bool folded = false;       // the current piece's local result is in place
  std::uint32_t readsOutstanding = 0;
  std::vector<std::byte> staging;  // remote sources of the current piece
  std::vector<std::pair<transport::Channel*, std::uint64_t>>
      unflushed;  // puts whose sources are still needed
};

/// A read that this rank asked a peer for.
struct PendingRead {
  std::byte* destination = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t arrived = 0;
  std::size_t block = 0;
};

/// A read that a peer asked this rank for.
struct ServedRead {
  Rank peer = 0;
  const std::byte* source = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t sent = 0;
  std::uint32_t token = 0;
};

struct BarrierState {
  std::uint32_t arrived = 0;
  std::uint64_t generation = 0;
};

struct RunState {
  bool active = false;
  Call call;
  std::array<std::vector<std::uint64_t>, 2>
      signals;  // received, by channel type (memory, port) and channel number
  std::array<std::vector<std::uint64_t>, 2> waits;  // of them consumed
  std::vector<std::int64_t> semaphores;
  std::map<std::uint32_t, BarrierState> barriers;
  std::vector<std::uint64_t> barrierGeneration;  // by block: the generation it waits to end
  Arrivals packets;
  std::vector<PendingRead> reads;  // position = token
  std::deque<ServedRead> served;
  std::vector<BlockState> blocks;
  std::size_t blocksDone = 0;
  std::uint32_t endsReceived = 0;
  std::size_t endsSent = 0;
  std::uint64_t bytesMoved = 0;  // any progress, for the time-out
};

}  // namespace theseus::exec
