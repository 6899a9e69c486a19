// `theseus plan show`: text and figures.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "schedule/resolve.h"
#include "verb_plan.h"

namespace theseus::cli {
namespace {

using namespace schedule;

/// The message of `bytes` as a call would bring it: allGather counts its output, all others their input.
Result<MessageSize> sizeFor(const Schedule& plan, const PlanShowOptions& options) {
  const auto ranks = static_cast<std::uint64_t>(plan.rankCount());
  const auto collective = plan.collective();
  const bool blocks = collective == Collective::kAllGather || collective == Collective::kReduceScatter ||
                      collective == Collective::kAllToAll;
  const std::uint64_t step = options.elementBytes * (blocks ? ranks : 1);
  if (step == 0 || *options.bytes % step != 0) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("--bytes {}: {} on {} ranks needs a multiple of {}",
                                                         *options.bytes, plan.collectiveName, ranks, step));
  }
  return messageSize(collective, plan.rankCount(), *options.bytes / step, options.elementBytes);
}

std::string operandText(const ThreadBlock& block, const RankPlan& rank, const Op& op,
                        const Operand& operand) {
  const auto chunks = operand.size == 1 ? fmt::format("[{}]", operand.index)
                                        : fmt::format("[{}..{}]", operand.index,
                                                      std::uint64_t{operand.index} + operand.size - 1);
  if (operand.place == Operand::Place::kLocal) return std::string(name(operand.buffer)) + chunks;
  if (operand.place == Operand::Place::kSwitch) return fmt::format("switch{}{}", operand.id, chunks);
  const auto refs = block.remoteBufferIds(op.channelType.value_or(ChannelType::kMemory));
  if (operand.id >= refs.size() || refs[operand.id] >= rank.remoteBuffers.size())
    return fmt::format("remote?{}{}", operand.id, chunks);
  const auto& remote = rank.remoteBuffers[refs[operand.id]];
  return fmt::format("rank{}.{}{}", remote.rank, name(remote.kind), chunks);
}

std::string operandsText(const ThreadBlock& block, const RankPlan& rank, const Op& op,
                         const std::vector<Operand>& operands) {
  std::string text;
  for (const auto& operand : operands)
    text += (text.empty() ? "" : " ") + operandText(block, rank, op, operand);
  return text;
}

std::string channelsText(const ThreadBlock& block, const RankPlan& rank, const Op& op) {
  if (op.channelIds.empty()) return "";
  const auto type = op.channelType.value_or(ChannelType::kMemory);
  const auto numbers = block.channelIds(type);
  const auto peers = rank.channelPeers(type);
  std::string text;
  for (const auto id : op.channelIds) {
    const bool known = id < numbers.size() && numbers[id] < peers.size();
    text += known ? fmt::format(" {} {} (rank {})", name(type), numbers[id], peers[numbers[id]])
                  : fmt::format(" {} channel of block {}", name(type), id);
  }
  return text;
}

std::string opText(const ThreadBlock& block, const RankPlan& rank, const Op& op) {
  std::string text(traits(op.code).name);
  if (!op.sources.empty()) text += " " + operandsText(block, rank, op, op.sources);
  if (!op.destinations.empty()) text += " -> " + operandsText(block, rank, op, op.destinations);
  text += channelsText(block, rank, op);
  if (op.group) text += fmt::format(" slice {}/{}", op.group->index, op.group->size);
  if (op.barrierId)
    text += fmt::format(" {} of {} blocks", *op.barrierId, op.barrierThreadBlocks.value_or(0));
  if (!op.semaphoreIds.empty()) text += fmt::format(" {}", fmt::join(op.semaphoreIds, " "));
  if (op.code == OpCode::kPipeline)
    text += fmt::format(" {} chunks by {} bytes", op.pipelineChunks, op.pipelineUnitBytes);
  return text;
}

std::string extentText(const Extent& extent, Rank self) {
  const auto owner = extent.rank == self ? "" : fmt::format("rank{}.", extent.rank);
  return fmt::format("{}{}[{},{})", owner, name(extent.buffer), extent.offset, extent.offset + extent.bytes);
}

std::string pieceText(const Piece& piece, Rank self) {
  std::string text;
  for (const auto& extent : piece.sources) text += extentText(extent, self) + " ";
  text += "->";
  for (const auto& extent : piece.destinations) text += " " + extentText(extent, self);
  return text;
}

/// The resolved ranges of one op; iterations of a pipeline's inner ops are told apart as inner.iteration.
std::string rangesText(const std::vector<ResolvedOp>& resolved, std::size_t op, bool pipeline, Rank self) {
  std::string text;
  for (const auto& each : resolved) {
    if (each.opIndex != op) continue;
    for (const auto& piece : each.pieces) {
      const auto where = pipeline ? fmt::format("{}.{} ", each.innerIndex, each.iteration) : "";
      text += fmt::format("          {}{}\n", where, pieceText(piece, self));
    }
  }
  return text;
}

std::string rankText(const Schedule& plan, Rank rank, const ResolvedRank* resolved) {
  const auto& from = plan.ranks[static_cast<std::size_t>(rank)];
  auto text =
      fmt::format("rank {}: {} input, {} output, {} scratch chunks; {} thread blocks, {} semaphores\n", rank,
                  from.inputChunks, from.outputChunks, from.scratchChunks, from.threadBlocks.size(),
                  from.semaphores.size());
  if (resolved != nullptr) text += fmt::format("  scratch {} bytes\n", resolved->scratchBytes);
  for (const auto type : {ChannelType::kMemory, ChannelType::kPort}) {
    const auto peers = from.channelPeers(type);
    if (!peers.empty()) text += fmt::format("  {} channels to ranks {}\n", name(type), fmt::join(peers, " "));
  }
  for (const auto& declaration : from.channels) {
    for (const auto& group : declaration.rankGroups) {
      text += fmt::format("  switch channel on '{}' of ranks {}\n", name(declaration.switchBuffer),
                          fmt::join(group.ranks, " "));
    }
  }
  for (std::size_t i = 0; i < from.threadBlocks.size(); ++i) {
    const auto& block = from.threadBlocks[i];
    text += fmt::format("  block {}:\n", i);
    for (std::size_t k = 0; k < block.ops.size(); ++k) {
      text += fmt::format("    {:>3} {}\n", k, opText(block, from, block.ops[k]));
      for (const auto& inner : block.ops[k].inner)
        text += fmt::format("          {}\n", opText(block, from, inner));
      if (resolved != nullptr)
        text += rangesText(resolved->threadBlocks[i], k, block.ops[k].code == OpCode::kPipeline, rank);
    }
  }
  return text;
}

std::string headText(const Schedule& plan) {
  const auto limit = plan.maxMessageBytes == std::numeric_limits<std::uint64_t>::max()
                         ? std::string("any")
                         : std::to_string(plan.maxMessageBytes);
  auto text = fmt::format(
      "plan '{}'  hash {}\n{} on {} ranks, {}, protocol {}; messages of {} to {} bytes; alignment {}\n",
      plan.name, base::toHex(contentHash(plan)), plan.collectiveName, plan.rankCount(),
      bufferModeText(plan.bufferMode), plan.protocol, plan.minMessageBytes, limit, plan.bufferAlignment);
  if (plan.root != 0) text += fmt::format("root {}\n", plan.root);
  if (!plan.usable.empty()) text += fmt::format("usable: {}\n", plan.usable);
  if (!plan.score.empty()) text += fmt::format("score: {}\n", plan.score);
  for (const auto& [key, value] : plan.provenance) text += fmt::format("{}: {}\n", key, value);
  return text;
}

Status checkRank(const Schedule& plan, const PlanShowOptions& options) {
  if (!options.rank || (*options.rank >= 0 && *options.rank < plan.rankCount())) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--rank {}: the plan has {} ranks", *options.rank, plan.rankCount()));
}

void countOps(const std::vector<Op>& ops, std::map<std::string, int>& counts) {
  for (const auto& op : ops) {
    ++counts[std::string(traits(op.code).name)];
    countOps(op.inner, counts);
  }
}

/// Bytes that leave the rank for peers (or come by get).
std::uint64_t remoteBytes(const ResolvedRank& resolved, Rank self) {
  std::uint64_t bytes = 0;
  for (const auto& block : resolved.threadBlocks) {
    for (const auto& op : block) {
      for (const auto& piece : op.pieces) {
        for (const auto& extent : piece.sources) bytes += extent.rank != self ? extent.bytes : 0;
        for (const auto& extent : piece.destinations) bytes += extent.rank != self ? extent.bytes : 0;
      }
    }
  }
  return bytes;
}

}  // namespace

std::string_view bufferModeText(BufferMode mode) {
  switch (mode) {
    case BufferMode::kOutOfPlace:
      return "out of place";
    case BufferMode::kInPlace:
      return "in place";
    case BufferMode::kEither:
      return "in or out of place";
  }
  return "?";
}

Result<std::string> showPlan(const Schedule& plan, const PlanShowOptions& options) {
  THESEUS_TRY(checkRank(plan, options));
  std::string text = headText(plan);
  for (Rank rank = 0; rank < plan.rankCount(); ++rank) {
    if (options.rank && *options.rank != rank) continue;
    if (!options.bytes) {
      text += rankText(plan, rank, nullptr);
      continue;
    }
    const auto size = sizeFor(plan, options);
    if (!size) return fail(size.error());
    const auto resolved = resolve(plan, rank, *size);
    if (!resolved) return fail(resolved.error());
    text += rankText(plan, rank, &*resolved);
  }
  return text;
}

Result<std::string> planFiguresJson(const Schedule& plan, const PlanShowOptions& options) {
  THESEUS_TRY(checkRank(plan, options));
  nlohmann::ordered_json out;
  out["name"] = plan.name;
  out["hash"] = base::toHex(contentHash(plan));
  out["collective"] = plan.collectiveName;
  out["ranks"] = plan.rankCount();
  out["mode"] = bufferModeText(plan.bufferMode);
  if (options.bytes) out["bytes"] = *options.bytes;
  auto& list = out["per_rank"] = nlohmann::ordered_json::array();
  for (Rank rank = 0; rank < plan.rankCount(); ++rank) {
    if (options.rank && *options.rank != rank) continue;
    const auto& from = plan.ranks[static_cast<std::size_t>(rank)];
    std::map<std::string, int> counts;
    for (const auto& block : from.threadBlocks) countOps(block.ops, counts);
    nlohmann::ordered_json row{{"rank", rank},
                               {"thread_blocks", from.threadBlocks.size()},
                               {"semaphores", from.semaphores.size()},
                               {"memory_channels", from.channelPeers(ChannelType::kMemory).size()},
                               {"port_channels", from.channelPeers(ChannelType::kPort).size()},
                               {"scratch_chunks", from.scratchChunks},
                               {"ops", counts}};
    if (options.bytes) {
      const auto size = sizeFor(plan, options);
      if (!size) return fail(size.error());
      const auto resolved = resolve(plan, rank, *size);
      if (!resolved) return fail(resolved.error());
      row["scratch_bytes"] = resolved->scratchBytes;
      row["remote_bytes"] = remoteBytes(*resolved, rank);
    }
    list.push_back(std::move(row));
  }
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace theseus::cli
