// Steps the thread blocks of a running collective: each op does as much as it can without waiting, then the
// next block has its turn. One thread.
#pragma once

#include <string>
#include <vector>

#include "exec/host/run_state.h"
#include "transport/endpoint.h"

namespace theseus::exec {

class BlockRunner {
 public:
  BlockRunner(RunState& state, std::vector<transport::Channel*>& channels)
      : state_(state), channels_(channels) {}

  /// Steps every unfinished block once, each until it waits or has moved its share of bytes. True if anything
  /// changed.
  Result<bool> stepAll();
  /// Answers peers' reads as far as channels have room.
  Result<bool> serveReads();
  /// What the unfinished blocks wait for, for a time-out's message; at most `limit` of them.
  std::string describeWaiting(std::size_t limit) const;

 private:
  enum class Step { kWaiting, kMoved, kDone };  // kDone: the op is complete
  using Op = resource::InstanceOp;

  Result<bool> stepBlock(std::size_t index);
  Result<Step> stepOp(std::size_t index, const Op& op);
  Result<Step> stepSync(std::size_t index, const Op& op);
  Result<Step> stepData(std::size_t index, const Op& op);
  Result<Step> stepPiece(std::size_t index, const Op& op, const schedule::Piece& piece);
  Step signal(const Op& op, Status& status, BlockState& block);
  bool takeSignals(const Op& op);
  bool acquire(const Op& op);
  Step barrier(std::size_t index, const Op& op);
  Result<Step> requestReads(std::size_t index, const Op& op, const schedule::Piece& piece);
  bool packetsArrived(const Op& op, const schedule::Piece& piece) const;
  void fold(const Op& op, const schedule::Piece& piece, BlockState& block);
  Result<Step> sendTargets(const Op& op, const schedule::Piece& piece, BlockState& block);
  /// One source, one target; `last`: nothing of the op comes after it.
  struct Sending {
    const schedule::Extent& source;
    const schedule::Extent& target;
    bool last = false;
  };
  Result<Step> sendOne(const Op& op, BlockState& block, const Sending& sending);
  bool flushed(BlockState& block) const;
  std::byte* local(const schedule::Extent& extent) const;

  RunState& state_;
  std::vector<transport::Channel*>& channels_;
};

}  // namespace theseus::exec
