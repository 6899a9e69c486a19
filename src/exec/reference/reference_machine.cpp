#include "exec/reference/reference_machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/reduce.h"

namespace theseus::exec {
namespace {

using schedule::BufferKind;
using schedule::ChannelType;
using schedule::Extent;
using schedule::OpClass;
using schedule::OpCode;
using schedule::OperandShape;
using schedule::Piece;

constexpr std::size_t kDeadlockOpsNamed = 8;

/// Sources [first, end) are packets, which must have arrived before they are read.
std::pair<std::size_t, std::size_t> packetSources(const schedule::ResolvedOp& op, std::size_t count) {
  switch (schedule::traits(op.code).sources) {
    case OperandShape::LocalPacket:
      return {0, count};
    case OperandShape::LocalAndPackets:
      return {1, count};
    default:
      return {0, 0};
  }
}

/// Whether destination `number` is written as packets, which readers wait for.
bool writesPackets(OpCode code, std::size_t number) {
  switch (code) {
    case OpCode::kCopyPackets:
    case OpCode::kPutPackets:
    case OpCode::kReadPutPackets:
    case OpCode::kGroupStorePackets:
      return true;
    case OpCode::kReduceCopyPackets:
    case OpCode::kReduceSendPackets:
    case OpCode::kReduceCopySendPackets:
      return number >= 1;
    default:
      return false;
  }
}

bool signalsAfterPut(OpCode code) {
  return code == OpCode::kPutWithSignal || code == OpCode::kPutWithSignalAndFlush;
}

}  // namespace

ReferenceMachine::ReferenceMachine(const schedule::Schedule& schedule, const ReferenceRun& run,
                                   std::vector<schedule::ResolvedRank> ranks,
                                   std::vector<RankMemory> memories)
    : schedule_(schedule),
      run_(run),
      ranks_(std::move(ranks)),
      memories_(std::move(memories)),
      random_(run.seed) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (std::size_t block = 0; block < ranks_[rank].threadBlocks.size(); ++block) {
      threads_.push_back({static_cast<Rank>(rank), static_cast<std::uint32_t>(block), 0, 0});
    }
    semaphores_.push_back(schedule.ranks[rank].semaphores);
  }
  pairChannels();
}

/// The k-th channel of a type from a to b is the other end of the k-th from b to a.
void ReferenceMachine::pairChannels() {
  std::map<std::tuple<Rank, Rank, ChannelType>, std::vector<std::uint32_t>> channels;
  for (Rank rank = 0; rank < schedule_.rankCount(); ++rank) {
    for (const auto type : {ChannelType::kMemory, ChannelType::kPort}) {
      const auto peers = schedule_.ranks[static_cast<std::size_t>(rank)].channelPeers(type);
      for (std::uint32_t number = 0; number < peers.size(); ++number) {
        channels[{rank, peers[number], type}].push_back(number);
      }
    }
  }
  for (const auto& [key, numbers] : channels) {
    const auto& [rank, peer, type] = key;
    const auto back = channels.find({peer, rank, type});
    if (back == channels.end()) continue;
    const std::size_t pairs = std::min(numbers.size(), back->second.size());
    for (std::size_t k = 0; k < pairs; ++k)
      otherEnd_[{rank, type, numbers[k]}] = {peer, type, back->second[k]};
  }
}

const schedule::ResolvedOp& ReferenceMachine::op(const Thread& thread) const {
  return ranks_[static_cast<std::size_t>(thread.rank)].threadBlocks[thread.block][thread.next];
}

bool ReferenceMachine::finished(const Thread& thread) const {
  return thread.next == ranks_[static_cast<std::size_t>(thread.rank)].threadBlocks[thread.block].size();
}

Status ReferenceMachine::runAll() {
  std::vector<std::size_t> unfinished;
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    if (!finished(threads_[i])) unfinished.push_back(i);
  }
  while (!unfinished.empty()) {
    // The first runnable block from a random one on.
    const std::size_t start = random_.below(unfinished.size());
    bool moved = false;
    for (std::size_t tried = 0; tried < unfinished.size() && !moved; ++tried) {
      const std::size_t position = (start + tried) % unfinished.size();
      Thread& thread = threads_[unfinished[position]];
      const auto result = attempt(thread);
      if (!result) return fail(result.error());
      moved = *result != Attempt::kBlocked;
      if (*result == Attempt::kDone) ++thread.next;
      if (finished(thread)) unfinished.erase(unfinished.begin() + static_cast<std::ptrdiff_t>(position));
    }
    if (!moved) return deadlock();
  }
  return {};
}

Result<ReferenceMachine::Attempt> ReferenceMachine::attempt(Thread& thread) {
  auto& semaphores = semaphores_[static_cast<std::size_t>(thread.rank)];
  for (const auto id : op(thread).semaphores) {
    if (id < semaphores.size()) continue;
    return fail(ErrorCode::kInvalidSchedule,
                fmt::format("{}: semaphore {} of {}", place(thread), id, semaphores.size()));
  }
  const auto doneIf = [](bool done) { return done ? Attempt::kDone : Attempt::kBlocked; };
  switch (op(thread).code) {
    case OpCode::kNop:
    case OpCode::kFlush:  // puts are complete as soon as they have run
      return Attempt::kDone;
    case OpCode::kSignal:
    case OpCode::kRelaxedSignal:
      THESEUS_TRY(signalAll(thread));
      return Attempt::kDone;
    case OpCode::kWait:
    case OpCode::kRelaxedWait:
      return doneIf(waitAll(thread));
    case OpCode::kSemaphoreAcquire:
      return doneIf(acquireAll(thread));
    case OpCode::kSemaphoreRelease:
      for (const auto id : op(thread).semaphores) ++semaphores[id];
      return Attempt::kDone;
    case OpCode::kBarrier:
      return enterBarrier(thread);
    default:
      return moveData(thread);
  }
}

Status ReferenceMachine::signalAll(const Thread& thread) {
  for (const auto number : op(thread).channels) {
    const auto other = otherEnd_.find({thread.rank, op(thread).channelType, number});
    if (other == otherEnd_.end()) {
      return fail(ErrorCode::kInvalidSchedule,
                  fmt::format("{}: {} channel {} has no other end: declare it on the peer", place(thread),
                              schedule::name(op(thread).channelType), number));
    }
    ++signals_[other->second];
  }
  return {};
}

bool ReferenceMachine::waitAll(const Thread& thread) {
  std::map<ChannelKey, std::uint64_t> needed;
  for (const auto number : op(thread).channels) ++needed[{thread.rank, op(thread).channelType, number}];
  for (const auto& [key, count] : needed) {
    if (signals_[key] < count) return false;
  }
  for (const auto& [key, count] : needed) signals_[key] -= count;
  return true;
}

bool ReferenceMachine::acquireAll(const Thread& thread) {
  auto& values = semaphores_[static_cast<std::size_t>(thread.rank)];
  std::map<std::uint32_t, std::int64_t> needed;
  for (const auto id : op(thread).semaphores) ++needed[id];
  for (const auto& [id, count] : needed) {
    if (values[id] < count) return false;
  }
  for (const auto& [id, count] : needed) values[id] -= count;
  return true;
}

ReferenceMachine::Attempt ReferenceMachine::enterBarrier(Thread& thread) {
  Barrier& barrier = barriers_[{thread.rank, op(thread).barrierId}];
  if (thread.barrierTurn != 0) {
    if (barrier.turn < thread.barrierTurn) return Attempt::kBlocked;
    thread.barrierTurn = 0;
    return Attempt::kDone;
  }
  if (++barrier.arrived >= op(thread).barrierThreadBlocks) {
    barrier.arrived = 0;
    ++barrier.turn;
    return Attempt::kDone;
  }
  thread.barrierTurn = barrier.turn + 1;
  return Attempt::kMoved;
}

Result<ReferenceMachine::Attempt> ReferenceMachine::moveData(const Thread& thread) {
  const auto arrived = packetsArrived(thread);
  if (!arrived) return fail(arrived.error());
  if (!*arrived) return Attempt::kBlocked;
  for (const Piece& piece : op(thread).pieces) THESEUS_TRY(movePiece(thread, piece));
  if (signalsAfterPut(op(thread).code)) THESEUS_TRY(signalAll(thread));
  return Attempt::kDone;
}

Result<bool> ReferenceMachine::packetsArrived(const Thread& thread) {
  for (const Piece& piece : op(thread).pieces) {
    const auto [first, end] = packetSources(op(thread), piece.sources.size());
    for (std::size_t i = first; i < end; ++i) {
      const Extent& packet = piece.sources[i];
      if (packet.buffer != BufferKind::kScratch || packet.rank != thread.rank) {
        return fail(ErrorCode::kInvalidSchedule,
                    fmt::format("{}: packets are read from local scratch only", place(thread)));
      }
      if (!memory(thread.rank).arrivedPackets().covers(packet.offset, packet.offset + packet.bytes))
        return false;
    }
  }
  return true;
}

Status ReferenceMachine::movePiece(const Thread& thread, const Piece& piece) {
  auto parts = loadSources(thread, piece);
  if (!parts) return fail(parts.error());
  // Packets are folded in the order they are listed, the plain local source after them.
  if (schedule::traits(op(thread).code).sources == OperandShape::LocalAndPackets) {
    std::rotate(parts->begin(), parts->begin() + 1, parts->end());
  }
  const auto result = fold(thread, std::move(*parts));
  if (!result) return fail(result.error());
  return storeResult(thread, piece, *result);
}

Result<std::vector<ReferenceMachine::Bytes>> ReferenceMachine::loadSources(const Thread& thread,
                                                                           const Piece& piece) {
  std::vector<Bytes> parts;
  const bool fromSwitch = schedule::traits(op(thread).code).sources == OperandShape::Switch;
  for (const Extent& source : piece.sources) {
    std::vector<Rank> owners = {source.rank};
    if (fromSwitch) {
      auto members = switchMembers(thread, op(thread).channels.front());
      if (!members) return fail(members.error());
      owners = std::move(*members);
    }
    for (const Rank owner : owners) {
      const auto bytes = locate(thread, {source.buffer, owner, source.offset, source.bytes});
      if (!bytes) return fail(bytes.error());
      parts.emplace_back(bytes->begin(), bytes->end());
    }
  }
  return parts;
}

Result<ReferenceMachine::Bytes> ReferenceMachine::fold(const Thread& thread, std::vector<Bytes> parts) {
  Bytes result = std::move(parts.at(0));
  const std::size_t elementBytes = dataTypeBytes(run_.dataType);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].size() != result.size() || result.size() % elementBytes != 0) {
      return fail(ErrorCode::kInvalidSchedule,
                  fmt::format("{}: operands of {} and {} bytes are not whole elements of one length",
                              place(thread), result.size(), parts[i].size()));
    }
    base::reduce(run_.dataType, run_.reduceOp, {result.data(), result.data(), parts[i].data()},
                 result.size() / elementBytes);
  }
  return result;
}

Status ReferenceMachine::storeResult(const Thread& thread, const Piece& piece, const Bytes& result) {
  const bool toSwitch = schedule::traits(op(thread).code).destinations == OperandShape::Switch;
  for (std::size_t number = 0; number < piece.destinations.size(); ++number) {
    const Extent& destination = piece.destinations[number];
    std::vector<Rank> owners = {destination.rank};
    if (toSwitch) {
      auto members = switchMembers(thread, op(thread).channels.back());
      if (!members) return fail(members.error());
      owners = std::move(*members);
    }
    for (const Rank owner : owners) {
      const auto bytes = locate(thread, {destination.buffer, owner, destination.offset, destination.bytes});
      if (!bytes) return fail(bytes.error());
      if (bytes->size() != result.size()) {
        return fail(ErrorCode::kInvalidSchedule, fmt::format("{}: {} bytes for a destination of {}",
                                                             place(thread), result.size(), bytes->size()));
      }
      std::copy(result.begin(), result.end(), bytes->begin());
      if (!writesPackets(op(thread).code, number)) continue;
      memory(owner).arrivedPackets().add(destination.offset, destination.offset + destination.bytes);
    }
  }
  return {};
}

Result<std::span<std::byte>> ReferenceMachine::locate(const Thread& thread, const Extent& extent) {
  if (extent.rank < 0 || extent.rank >= schedule_.rankCount()) {
    return fail(ErrorCode::kInvalidSchedule,
                fmt::format("{}: there is no rank {}", place(thread), extent.rank));
  }
  const std::span<std::byte> buffer = memory(extent.rank).buffer(extent.buffer);
  if (extent.offset > buffer.size() || extent.bytes > buffer.size() - extent.offset) {
    return fail(
        ErrorCode::kInvalidSchedule,
        fmt::format("{}: bytes {} to {} of rank {}'s buffer '{}', which has {}", place(thread), extent.offset,
                    extent.offset + extent.bytes, extent.rank, schedule::name(extent.buffer), buffer.size()));
  }
  return buffer.subspan(extent.offset, extent.bytes);
}

Result<std::vector<Rank>> ReferenceMachine::switchMembers(const Thread& thread, std::uint32_t channel) const {
  std::uint32_t number = 0;
  for (const auto& declaration : schedule_.ranks[static_cast<std::size_t>(thread.rank)].channels) {
    if (declaration.type != ChannelType::kSwitch) continue;
    for (const auto& group : declaration.rankGroups) {
      if (number++ == channel) return group.ranks;
    }
  }
  return fail(ErrorCode::kInvalidSchedule,
              fmt::format("{}: there is no switch channel {}", place(thread), channel));
}

std::string ReferenceMachine::place(const Thread& thread) const {
  const ResolvedOp& current = op(thread);
  return fmt::format("schedule '{}': rank {} block {} op {} ({})", schedule_.name, thread.rank, thread.block,
                     current.opIndex, schedule::traits(current.code).name);
}

std::string ReferenceMachine::waitingFor(const Thread& thread) const {
  const ResolvedOp& current = op(thread);
  switch (current.code) {
    case OpCode::kWait:
    case OpCode::kRelaxedWait:
      return fmt::format("a signal on {} channels {}", schedule::name(current.channelType),
                         fmt::join(current.channels, ", "));
    case OpCode::kSemaphoreAcquire:
      return fmt::format("semaphores {}", fmt::join(current.semaphores, ", "));
    case OpCode::kBarrier:
      return fmt::format("{} blocks at barrier {}", current.barrierThreadBlocks, current.barrierId);
    default:
      return "packets";
  }
}

tl::unexpected<Error> ReferenceMachine::deadlock() const {
  std::string message = "deadlock:";
  std::size_t named = 0, waiting = 0;
  for (const Thread& thread : threads_) {
    if (finished(thread)) continue;
    ++waiting;
    if (named == kDeadlockOpsNamed) continue;
    message += fmt::format("{} {} waits for {}", named == 0 ? "" : ";", place(thread), waitingFor(thread));
    ++named;
  }
  if (waiting > named) message += fmt::format("; and {} more blocks", waiting - named);
  return fail(ErrorCode::kInvalidSchedule, message);
}

}  // namespace theseus::exec
