// All ranks of a schedule stepping through their ops, one op at a time. Owned by one reference run; one
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "exec/reference/reference_executor.h"
#include "exec/reference/reference_memory.h"
#include "schedule/resolve.h"

namespace theseus::exec {

class ReferenceMachine {
 public:
  ReferenceMachine(const schedule::Schedule& schedule, const ReferenceRun& run,
                   std::vector<schedule::ResolvedRank> ranks, std::vector<RankMemory> memories);
  /// Runs to the end, in an order drawn from the run's seed. Errors: a deadlock, an access out of bounds.
  Status runAll();
  RankMemory& memory(Rank rank) { return memories_[static_cast<std::size_t>(rank)]; }

 private:
  using ResolvedOp = schedule::ResolvedOp;
  using Bytes = std::vector<std::byte>;

  /// Where one thread block stands.
  struct Thread {
    Rank rank = 0;
    std::uint32_t block = 0;
    std::size_t next = 0;
    std::uint64_t barrierTurn = 0;  // the turn of the barrier it waits in, plus one; 0 = not in one
  };
  struct Barrier {
    std::uint64_t turn = 0;  // times it has opened
    std::uint32_t arrived = 0;
  };
  /// Channel `number` of `type` at `rank`: where signals to it are counted.
  struct ChannelKey {
    Rank rank;
    schedule::ChannelType type;
    std::uint32_t number;
    friend auto operator<=>(const ChannelKey&, const ChannelKey&) = default;
  };
  enum class Attempt { kBlocked, kMoved, kDone };

  void pairChannels();
  const ResolvedOp& op(const Thread& thread) const;
  bool finished(const Thread& thread) const;
  Result<Attempt> attempt(Thread& thread);
  Status signalAll(const Thread& thread);
  bool waitAll(const Thread& thread);
  bool acquireAll(const Thread& thread);
  Attempt enterBarrier(Thread& thread);
  Result<Attempt> moveData(const Thread& thread);
  Status movePiece(const Thread& thread, const schedule::Piece& piece);
  Status storeResult(const Thread& thread, const schedule::Piece& piece, const Bytes& result);
  Result<bool> packetsArrived(const Thread& thread);
  Result<std::vector<Bytes>> loadSources(const Thread& thread, const schedule::Piece& piece);
  Result<Bytes> fold(const Thread& thread, std::vector<Bytes> parts);
  Result<std::span<std::byte>> locate(const Thread& thread, const schedule::Extent& extent);
  Result<std::vector<Rank>> switchMembers(const Thread& thread, std::uint32_t channel) const;
  std::string place(const Thread& thread) const;
  std::string waitingFor(const Thread& thread) const;
  tl::unexpected<Error> deadlock() const;

  const schedule::Schedule& schedule_;
  ReferenceRun run_;
  std::vector<schedule::ResolvedRank> ranks_;
  std::vector<RankMemory> memories_;
  std::vector<Thread> threads_;
  base::Random random_;
  std::map<ChannelKey, ChannelKey> otherEnd_;
  std::map<ChannelKey, std::uint64_t> signals_;
  std::vector<std::vector<std::int64_t>> semaphores_;  // by rank
  std::map<std::pair<Rank, std::uint32_t>, Barrier> barriers_;
};

}  // namespace theseus::exec
