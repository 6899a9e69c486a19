#include "schedule/verify/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"
#include "schedule/verify/shapes.h"

namespace theseus::schedule::verifying {
namespace {

constexpr std::uint64_t kMaxCells = 1u << 25;

std::size_t bufferKey(Rank rank, BufferKind kind) {
  return 3 * static_cast<std::size_t>(rank) + static_cast<std::size_t>(kind);
}

/// Numbers of counters and agents for the channels of every rank.
class ChannelMap {
 public:
  explicit ChannelMap(const Schedule& schedule) {
    const std::size_t ranks = schedule.ranks.size();
    for (int type = 0; type < 2; ++type) {
      peers_[type].resize(ranks);
      partners_[type].resize(ranks);
      first_[type].resize(ranks);
      std::map<std::pair<Rank, Rank>, std::vector<std::uint32_t>> links;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        peers_[type][rank] = schedule.ranks[rank].channelPeers(static_cast<ChannelType>(type));
        for (std::uint32_t k = 0; k < peers_[type][rank].size(); ++k) {
          links[{static_cast<Rank>(rank), peers_[type][rank][k]}].push_back(k);
        }
      }
      pair(type, links);
    }
  }

  const std::vector<Rank>& peers(ChannelType type, Rank rank) const {
    return peers_[static_cast<int>(type)][static_cast<std::size_t>(rank)];
  }
  /// The peer's number of the channel that pairs with ours: the k-th from a to b pairs with the k-th from b
  /// to a.
  std::uint32_t partner(ChannelType type, Rank rank, std::uint32_t channel) const {
    return partners_[static_cast<int>(type)][static_cast<std::size_t>(rank)][channel];
  }
  /// Assigns numbers, counting on from `next`, one for each channel of the type.
  void number(ChannelType type, std::uint32_t& next) {
    for (std::size_t rank = 0; rank < first_[static_cast<int>(type)].size(); ++rank) {
      first_[static_cast<int>(type)][rank] = next;
      next += static_cast<std::uint32_t>(peers_[static_cast<int>(type)][rank].size());
    }
  }
  std::uint32_t numberOf(ChannelType type, Rank rank, std::uint32_t channel) const {
    return first_[static_cast<int>(type)][static_cast<std::size_t>(rank)] + channel;
  }

 private:
  void pair(int type, const std::map<std::pair<Rank, Rank>, std::vector<std::uint32_t>>& links) {
    for (std::size_t rank = 0; rank < peers_[type].size(); ++rank)
      partners_[type][rank].resize(peers_[type][rank].size());
    for (const auto& [ends, channels] : links) {
      const auto back = links.find({ends.second, ends.first});
      THESEUS_CHECK(back != links.end() && back->second.size() == channels.size(), "unpaired channels");
      for (std::size_t k = 0; k < channels.size(); ++k) {
        partners_[type][static_cast<std::size_t>(ends.first)][channels[k]] = back->second[k];
      }
    }
  }

  std::vector<std::vector<Rank>> peers_[2];
  std::vector<std::vector<std::uint32_t>> partners_[2];
  std::vector<std::uint32_t> first_[2];
};

class ProgramBuilder {
 public:
  ProgramBuilder(const Schedule& schedule, const MessageSize& size, bool inPlace)
      : schedule_(schedule), channels_(schedule) {
    program_.schedule = &schedule;
    program_.size = size;
    program_.inPlace = inPlace;
  }

  Result<Program> build() {
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      auto resolved = resolve(schedule_, static_cast<Rank>(rank), program_.size);
      if (!resolved) return fail(resolved.error());
      resolved_.push_back(std::move(*resolved));
    }
    chooseGrid();
    if (schedule_.usesSwitch()) levelScratch();
    THESEUS_TRY(makeSpaces());
    makeCounters();
    makeThreads();
    return std::move(program_);
  }

 private:
  void include(std::uint64_t value) { program_.cellBytes = std::gcd(program_.cellBytes, value); }

  void chooseGrid() {
    program_.cellBytes = 0;
    include(program_.size.inputBytes);
    include(program_.size.outputBytes);
    for (const ResolvedRank& rank : resolved_) {
      for (const auto& block : rank.threadBlocks) {
        for (const ResolvedOp& op : block) {
          for (const Piece& piece : op.pieces) includePiece(piece);
        }
      }
    }
    if (program_.cellBytes == 0) program_.cellBytes = 1;
  }

  void includePiece(const Piece& piece) {
    for (const auto* extents : {&piece.sources, &piece.destinations}) {
      for (const Extent& extent : *extents) {
        include(extent.offset);
        include(extent.bytes);
        if (extent.buffer != BufferKind::kScratch) continue;
        std::uint64_t& end = scratchEnd_[extent.rank];
        end = std::max(end, extent.offset + extent.bytes);
      }
    }
  }

  /// An op on a switch channel touches the same offset on every member.
  void levelScratch() {
    std::uint64_t end = 0;
    for (const auto& [rank, bytes] : scratchEnd_) end = std::max(end, bytes);
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank)
      scratchEnd_[static_cast<Rank>(rank)] = end;
  }

  Status makeSpaces() {
    std::uint64_t total = 0;
    const std::size_t ranks = schedule_.ranks.size();
    program_.buffers.resize(3 * ranks);
    program_.bufferCells.resize(3 * ranks);
    for (std::size_t i = 0; i < ranks; ++i) {
      const auto rank = static_cast<Rank>(i);
      for (const auto kind : {BufferKind::kInput, BufferKind::kOutput, BufferKind::kScratch}) {
        std::uint64_t bytes = scratchEnd_[rank];
        if (kind == BufferKind::kInput) bytes = program_.size.inputBytes;
        if (kind == BufferKind::kOutput) bytes = program_.size.outputBytes;
        const std::uint64_t cells = bytes / program_.cellBytes;
        total += cells;
        if (total > kMaxCells) return fail(ErrorCode::kUnsupported, "too many cells");
        program_.buffers[bufferKey(rank, kind)] = {static_cast<std::uint32_t>(program_.spaces.size()), 0,
                                                   false};
        program_.bufferCells[bufferKey(rank, kind)] = static_cast<std::uint32_t>(cells);
        program_.spaces.push_back({rank, kind, static_cast<std::uint32_t>(cells)});
      }
      if (program_.inPlace) alias(rank);
    }
    return {};
  }

  /// In place: allgather's input is the rank's own block of the output, reducescatter's output the own block
  /// of the input, else both are one buffer.
  void alias(Rank rank) {
    CellRange& input = program_.buffers[bufferKey(rank, BufferKind::kInput)];
    CellRange& output = program_.buffers[bufferKey(rank, BufferKind::kOutput)];
    const auto position = static_cast<std::uint32_t>(rank);
    switch (schedule_.collective()) {
      case Collective::kAllGather:
        input = {output.space, position * program_.bufferCells[bufferKey(rank, BufferKind::kInput)], false};
        return;
      case Collective::kReduceScatter:
        output = {input.space, position * program_.bufferCells[bufferKey(rank, BufferKind::kOutput)], false};
        return;
      case Collective::kCustom:
      case Collective::kBarrier:
        return;
      default:
        output = input;
    }
  }

  void makeCounters() {
    std::uint32_t next = 0;
    channels_.number(ChannelType::kMemory, next);
    firstPort_ = next;
    channels_.number(ChannelType::kPort, next);
    program_.counters.resize(next);
    for (std::size_t i = 0; i < schedule_.ranks.size(); ++i) {
      const auto rank = static_cast<Rank>(i);
      for (const auto type : {ChannelType::kMemory, ChannelType::kPort}) {
        const auto& peers = channels_.peers(type, rank);
        for (std::uint32_t k = 0; k < peers.size(); ++k) {
          program_.counters[channels_.numberOf(type, rank, k)] = {
              rank, 0, fmt::format("{} channel {} from rank {}", name(type), k, peers[k])};
        }
      }
    }
    for (std::size_t i = 0; i < schedule_.ranks.size(); ++i) {
      firstSemaphore_.push_back(static_cast<std::uint32_t>(program_.counters.size()));
      const auto& semaphores = schedule_.ranks[i].semaphores;
      for (std::size_t k = 0; k < semaphores.size(); ++k) {
        program_.counters.push_back({static_cast<Rank>(i), semaphores[k], fmt::format("semaphore {}", k)});
      }
    }
  }

  void makeThreads() {
    std::uint32_t blocks = 0;
    for (const auto& rank : schedule_.ranks) blocks += static_cast<std::uint32_t>(rank.threadBlocks.size());
    blockCount_ = blocks;
    std::map<std::pair<Rank, std::uint32_t>, std::uint32_t> barriers;
    for (std::size_t i = 0; i < schedule_.ranks.size(); ++i) {
      const auto rank = static_cast<Rank>(i);
      for (std::size_t block = 0; block < resolved_[i].threadBlocks.size(); ++block) {
        Thread thread{rank, static_cast<std::int32_t>(block), {}};
        for (const ResolvedOp& op : resolved_[i].threadBlocks[block]) {
          thread.steps.push_back(makeStep(thread, op));
          if (op.code == OpCode::kBarrier) barriers[{rank, op.barrierId}] = op.barrierThreadBlocks;
        }
        program_.threads.push_back(std::move(thread));
      }
    }
    for (std::size_t i = 0; i < schedule_.ranks.size(); ++i) {
      const auto rank = static_cast<Rank>(i);
      for (std::size_t k = 0; k < channels_.peers(ChannelType::kPort, rank).size(); ++k) {
        program_.threads.push_back({rank, -1, {}});
      }
    }
    for (const auto& [key, threadBlocks] : barriers)
      program_.barriers.push_back({key.first, key.second, threadBlocks});
  }

  /// The thread that works off a port channel.
  std::int32_t agentOf(Rank rank, std::uint32_t channel) const {
    return static_cast<std::int32_t>(channels_.numberOf(ChannelType::kPort, rank, channel) - firstPort_ +
                                     blockCount_);
  }

  const Op& opOf(const Thread& thread, const ResolvedOp& resolved) const {
    const auto& block = schedule_.ranks[static_cast<std::size_t>(thread.rank)]
                            .threadBlocks[static_cast<std::size_t>(thread.block)];
    const Op& op = block.ops[resolved.opIndex];
    return op.code == OpCode::kPipeline ? op.inner[resolved.innerIndex] : op;
  }

  Step makeStep(const Thread& thread, const ResolvedOp& resolved) {
    Step step;
    const bool inner = schedule_.ranks[static_cast<std::size_t>(thread.rank)]
                           .threadBlocks[static_cast<std::size_t>(thread.block)]
                           .ops[resolved.opIndex]
                           .code == OpCode::kPipeline;
    step.place = {thread.rank, thread.block, static_cast<std::int32_t>(resolved.opIndex),
                  inner ? static_cast<std::int32_t>(resolved.innerIndex) : -1};
    step.code = resolved.code;
    step.barrierId = resolved.barrierId;
    addSync(step, thread.rank, resolved);
    addMoves(step, thread, resolved);
    return step;
  }

  void addSync(Step& step, Rank rank, const ResolvedOp& resolved) {
    const bool port = resolved.channelType == ChannelType::kPort;
    step.relaxed =
        resolved.code == OpCode::kRelaxedWait || (resolved.code == OpCode::kRelaxedSignal && !port);
    const bool signals = resolved.code == OpCode::kSignal || resolved.code == OpCode::kRelaxedSignal ||
                         signalsAfterData(traits(resolved.code));
    const bool waits = resolved.code == OpCode::kWait || resolved.code == OpCode::kRelaxedWait;
    const bool flushes = resolved.code == OpCode::kFlush || resolved.code == OpCode::kPutWithSignalAndFlush;
    for (const std::uint32_t channel : resolved.channels) {
      if (resolved.channelType == ChannelType::kSwitch) break;
      if (waits) step.acquires.push_back(channels_.numberOf(resolved.channelType, rank, channel));
      const std::int32_t agent = port ? agentOf(rank, channel) : -1;
      if (signals) {
        const Rank peer = channels_.peers(resolved.channelType, rank)[channel];
        const std::uint32_t partner = channels_.partner(resolved.channelType, rank, channel);
        step.releases.push_back(channels_.numberOf(resolved.channelType, peer, partner));
        step.releaseAgents.push_back(agent);
      }
      if (flushes && agent >= 0) step.flushes.push_back(agent);
    }
    for (const std::uint32_t semaphore : resolved.semaphores) {
      const std::uint32_t counter = firstSemaphore_[static_cast<std::size_t>(rank)] + semaphore;
      if (resolved.code == OpCode::kSemaphoreAcquire) step.acquires.push_back(counter);
      if (resolved.code != OpCode::kSemaphoreRelease) continue;
      step.releases.push_back(counter);
      step.releaseAgents.push_back(-1);
    }
  }

  void addMoves(Step& step, const Thread& thread, const ResolvedOp& resolved) {
    const OpTraits& row = traits(resolved.code);
    const bool port = resolved.channelType == ChannelType::kPort;
    const bool packetSources = row.sources == OperandShape::LocalEach && remotesArePackets(row) && port;
    const Op& op = opOf(thread, resolved);
    for (const Piece& piece : resolved.pieces) {
      Move move;
      const std::uint64_t bytes = piece.destinations.empty() ? 0 : piece.destinations.front().bytes;
      move.cells = static_cast<std::uint32_t>(bytes / program_.cellBytes);
      addRanges(move.sources, piece.sources, {listRule(row.sources), op.sources, row, thread});
      addRanges(move.destinations, piece.destinations,
                {listRule(row.destinations), op.destinations, row, thread});
      for (CellRange& range : move.sources) range.packet = range.packet || packetSources;
      for (const CellRange& range : move.sources) step.waitsForPackets |= range.packet && !packetSources;
      if (row.destinations == OperandShape::Switch) dropSelfCopies(move);
      addAgents(move, piece, thread.rank, resolved);
      step.moves.push_back(std::move(move));
    }
  }

  /// A multicast also stores to its own source: the same bytes again, so no write.
  static void dropSelfCopies(Move& move) {
    if (move.sources.size() != 1) return;
    const CellRange& source = move.sources.front();
    std::erase_if(move.destinations, [&](const CellRange& destination) {
      return destination.space == source.space && destination.first == source.first;
    });
  }

  void addAgents(Move& move, const Piece& piece, Rank rank, const ResolvedOp& resolved) {
    move.agents.assign(move.destinations.size(), -1);
    if (resolved.channelType != ChannelType::kPort || resolved.channels.empty()) return;
    const bool pairwise = isPairwise(traits(resolved.code));
    std::size_t remote = 0;
    for (std::size_t i = 0; i < piece.destinations.size(); ++i) {
      if (piece.destinations[i].rank == rank) continue;  // local: the block writes it itself
      const std::size_t channel = pairwise ? piece.pair : remote++;
      if (channel >= resolved.channels.size()) continue;
      move.agents[i] = agentOf(rank, resolved.channels[channel]);
    }
  }

  struct RangeRule {
    ListRule rule;
    const std::vector<Operand>& operands;
    const OpTraits& row;
    const Thread& thread;
  };

  void addRanges(std::vector<CellRange>& ranges, const std::vector<Extent>& extents,
                 const RangeRule& context) {
    for (std::size_t i = 0; i < extents.size(); ++i) {
      const Slot slot = context.rule.at(i);
      bool packet = slot == Slot::kPacket || (slot == Slot::kRemote && remotesArePackets(context.row));
      if (slot != Slot::kSwitch) {
        ranges.push_back(rangeOf(extents[i].rank, extents[i], packet));
        continue;
      }
      packet = remotesArePackets(context.row);
      for (const Rank member : switchMembers(context.thread, context.operands[i])) {
        ranges.push_back(rangeOf(member, extents[i], packet));
      }
    }
  }

  CellRange rangeOf(Rank rank, const Extent& extent, bool packet) const {
    CellRange range = program_.buffers[bufferKey(rank, extent.buffer)];
    range.first += static_cast<std::uint32_t>(extent.offset / program_.cellBytes);
    range.packet = packet;
    return range;
  }

  /// Ranks of the group behind a switch operand.
  std::vector<Rank> switchMembers(const Thread& thread, const Operand& operand) const {
    const RankPlan& plan = schedule_.ranks[static_cast<std::size_t>(thread.rank)];
    const auto ids =
        plan.threadBlocks[static_cast<std::size_t>(thread.block)].channelIds(ChannelType::kSwitch);
    std::uint32_t number = ids[operand.id];
    for (const ChannelDeclaration& declaration : plan.channels) {
      if (declaration.type != ChannelType::kSwitch) continue;
      if (number < declaration.rankGroups.size()) return declaration.rankGroups[number].ranks;
      number -= static_cast<std::uint32_t>(declaration.rankGroups.size());
    }
    THESEUS_CHECK(false, "switch channel out of range");
    return {};
  }

  const Schedule& schedule_;
  ChannelMap channels_;
  Program program_;
  std::vector<ResolvedRank> resolved_;
  std::map<Rank, std::uint64_t> scratchEnd_;
  std::vector<std::uint32_t> firstSemaphore_;
  std::uint32_t firstPort_ = 0;   // counter of the first port channel
  std::uint32_t blockCount_ = 0;  // threads before the first agent
};

}  // namespace

std::string Program::describe() const {
  return fmt::format("{}, {} input and {} output bytes, {}", schedule->collectiveName, size.inputBytes,
                     size.outputBytes, inPlace ? "in place" : "out of place");
}

Result<Program> buildProgram(const Schedule& schedule, const MessageSize& size, bool inPlace) {
  return ProgramBuilder(schedule, size, inPlace).build();
}

}  // namespace theseus::schedule::verifying
