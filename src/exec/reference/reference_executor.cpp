#include "exec/reference/reference_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/reduce.h"
#include "exec/reference/reference_machine.h"
#include "exec/reference/reference_memory.h"

namespace theseus::exec {
namespace {

using schedule::BufferMode;
using schedule::MessageSize;
using Bytes = std::vector<std::byte>;

bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

/// Whether the collective says what `rank`'s output is.
bool definesOutput(Collective collective, Rank rank, Rank root) {
  return collective != Collective::kReduce || rank == root;
}

MessageSize sizeOf(Collective collective, std::size_t ranks, const ReferenceRun& run) {
  return schedule::messageSize(collective, static_cast<int>(ranks), run.count,
                               static_cast<std::uint32_t>(dataTypeBytes(run.dataType)));
}

Status checkInputs(const schedule::Schedule& schedule, const MessageSize& size,
                   const std::vector<Bytes>& inputs) {
  if (inputs.size() != schedule.ranks.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("schedule '{}' has {} ranks, there are inputs for {}", schedule.name,
                            schedule.ranks.size(), inputs.size()));
  }
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    if (inputs[rank].size() == size.inputBytes) continue;
    return fail(ErrorCode::kInvalidArgument, fmt::format("rank {}'s input has {} bytes, the call says {}",
                                                         rank, inputs[rank].size(), size.inputBytes));
  }
  return {};
}

/// The rank-order fold of bytes [offset, offset + bytes) of all inputs.
Bytes foldAll(const ReferenceRun& run, const std::vector<Bytes>& inputs, std::uint64_t offset,
              std::uint64_t bytes) {
  const auto part = [&](const Bytes& input) { return input.data() + offset; };
  Bytes sum(part(inputs[0]), part(inputs[0]) + bytes);
  const std::size_t count = bytes / dataTypeBytes(run.dataType);
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    base::reduce(run.dataType, run.reduceOp, {sum.data(), sum.data(), part(inputs[rank])}, count);
  }
  if (run.reduceOp == ReduceOp::kAvg) {
    base::finishAverage(run.dataType, sum.data(), count, static_cast<int>(inputs.size()));
  }
  return sum;
}

/// Whose output is asked for, and the rank that a rooted collective starts from.
struct Viewpoint {
  std::size_t rank = 0;
  std::size_t root = 0;
};

Bytes expectedOutput(Collective collective, const ReferenceRun& run, const std::vector<Bytes>& inputs,
                     Viewpoint viewpoint) {
  const auto [rank, root] = viewpoint;
  const MessageSize size = sizeOf(collective, inputs.size(), run);
  Bytes output;
  const auto append = [&](const Bytes& bytes, std::uint64_t offset, std::uint64_t count) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    output.insert(output.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
  };
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return foldAll(run, inputs, 0, size.inputBytes);
    case Collective::kReduceScatter:
      return foldAll(run, inputs, rank * size.outputBytes, size.outputBytes);
    case Collective::kBroadcast:
      return inputs[root];
    case Collective::kSendRecv:
      return inputs[(rank + inputs.size() - 1) % inputs.size()];
    case Collective::kAllGather:
      for (const Bytes& input : inputs) append(input, 0, size.inputBytes);
      return output;
    case Collective::kAllToAll: {
      const std::uint64_t block = size.inputBytes / inputs.size();
      for (const Bytes& input : inputs) append(input, rank * block, block);
      return output;
    }
    case Collective::kBarrier:
      return {};
    case Collective::kCustom:
      break;
  }
  return Bytes(size.outputBytes, kUndefinedByte);
}

}  // namespace

Result<std::vector<Bytes>> runReference(const schedule::Schedule& schedule, const ReferenceRun& run,
                                        const std::vector<Bytes>& inputs) {
  const Collective collective = schedule.collective();
  const MessageSize size = sizeOf(collective, schedule.ranks.size(), run);
  THESEUS_TRY(checkInputs(schedule, size, inputs));
  // A plan for in-place calls alone sees one buffer even when called out of place: its input is copied there
  // first, as RankMemory does. One for out-of-place calls alone sees two even when called in place: its input
  // is copied aside.
  const bool oneBuffer = schedule.bufferMode == BufferMode::kInPlace ||
                         (schedule.bufferMode == BufferMode::kEither && run.inPlace);
  std::vector<schedule::ResolvedRank> ranks;
  std::vector<RankMemory> memories;
  for (Rank rank = 0; rank < schedule.rankCount(); ++rank) {
    auto resolved = schedule::resolve(schedule, rank, size);
    if (!resolved) return fail(resolved.error());
    memories.emplace_back(RankMemory::Shape{collective, rank, size, resolved->scratchBytes, oneBuffer},
                          inputs[static_cast<std::size_t>(rank)]);
    ranks.push_back(std::move(*resolved));
  }
  ReferenceMachine machine(schedule, run, std::move(ranks), std::move(memories));
  THESEUS_TRY(machine.runAll());

  std::vector<Bytes> outputs;
  for (Rank rank = 0; rank < schedule.rankCount(); ++rank) {
    const std::span<std::byte> output = machine.memory(rank).buffer(schedule::BufferKind::kOutput);
    if (!definesOutput(collective, rank, schedule.root))
      std::fill(output.begin(), output.end(), kUndefinedByte);
    if (run.reduceOp == ReduceOp::kAvg && reduces(collective) &&
        definesOutput(collective, rank, schedule.root)) {
      base::finishAverage(run.dataType, output.data(), output.size() / dataTypeBytes(run.dataType),
                          schedule.rankCount());
    }
    outputs.emplace_back(output.begin(), output.end());
  }
  return outputs;
}

std::vector<Bytes> expectedResult(Collective collective, Rank root, const ReferenceRun& run,
                                  const std::vector<Bytes>& inputs) {
  std::vector<Bytes> outputs;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    if (definesOutput(collective, static_cast<Rank>(rank), root)) {
      outputs.push_back(expectedOutput(collective, run, inputs, {rank, static_cast<std::size_t>(root)}));
    } else {
      outputs.emplace_back(sizeOf(collective, inputs.size(), run).outputBytes, kUndefinedByte);
    }
  }
  return outputs;
}

}  // namespace theseus::exec
