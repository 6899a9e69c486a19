// Pass 2: resources. Ids and chunk ranges, channels on both sides, who consumes which counter.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "schedule/verify/passes.h"
#include "schedule/verify/shapes.h"

namespace theseus::schedule::verifying {
namespace {

class ResourcesPass {
 public:
  ResourcesPass(const Schedule& schedule, Report& report) : schedule_(schedule), report_(report) {}

  void run() {
    for (std::size_t i = 0; i < schedule_.ranks.size(); ++i) {
      const auto rank = static_cast<Rank>(i);
      checkDeclarations(rank);
      checkRemoteBuffers(rank);
      for (std::size_t block = 0; block < schedule_.ranks[i].threadBlocks.size(); ++block) {
        checkBlockLists({rank, static_cast<std::int32_t>(block)});
      }
    }
    if (!report_.empty()) return;  // everything below looks up what was just checked
    checkPairing();
    forEachOp(schedule_, [this](const OpPlace& place, const Op& op) { checkOp(place, op); });
    if (!report_.empty()) return;
    checkBarriers();
    checkConsumers();
  }

 private:
  const RankPlan& plan(Rank rank) const { return schedule_.ranks[static_cast<std::size_t>(rank)]; }
  const ThreadBlock& block(const OpPlace& place) const {
    return plan(place.rank).threadBlocks[static_cast<std::size_t>(place.threadBlock)];
  }
  bool isPeer(Rank rank, Rank peer) const {
    return peer >= 0 && peer < schedule_.rankCount() && peer != rank;
  }

  void add(std::string kind, const OpPlace& place, std::string message, std::optional<OpPlace> second = {}) {
    report_.add({VerifyPass::kResources, std::move(kind), place, second, std::move(message)});
  }

  void checkDeclarations(Rank rank) {
    for (const ChannelDeclaration& declaration : plan(rank).channels) {
      for (const Rank peer : declaration.connectedTo) {
        if (isPeer(rank, peer)) continue;
        add("channel-peer", {rank},
            fmt::format("a {} channel leads to rank {}, which is {}", name(declaration.type), peer,
                        peer == rank ? "the rank itself" : "no rank of the plan"));
      }
      for (const auto& group : declaration.rankGroups) checkGroup(rank, group.ranks);
    }
  }

  void checkGroup(Rank rank, const std::vector<Rank>& members) {
    std::set<Rank> distinct;
    bool inRange = true;
    for (const Rank member : members) {
      inRange = inRange && member >= 0 && member < schedule_.rankCount() && distinct.insert(member).second;
    }
    if (inRange && distinct.count(rank) != 0) return;
    add("switch-group", {rank}, "a switch group must hold distinct ranks of the plan, this one among them");
  }

  void checkRemoteBuffers(Rank rank) {
    const auto& buffers = plan(rank).remoteBuffers;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      if (isPeer(rank, buffers[i].rank)) continue;
      add("remote-buffer-peer", {rank},
          fmt::format(
              "remote buffer {} belongs to rank {}, which is {}", i, buffers[i].rank,
              buffers[i].rank == rank ? "the rank itself: use a local operand" : "no rank of the plan"));
    }
  }

  std::size_t channelCount(Rank rank, ChannelType type) const {
    if (type != ChannelType::kSwitch) return plan(rank).channelPeers(type).size();
    std::size_t groups = 0;
    for (const ChannelDeclaration& declaration : plan(rank).channels) {
      if (declaration.type == type) groups += declaration.rankGroups.size();
    }
    return groups;
  }

  void checkBlockLists(const OpPlace& place) {
    for (const ThreadBlockChannels& list : block(place).channels) {
      const std::size_t count = channelCount(place.rank, list.type);
      for (const std::uint32_t id : list.ids) {
        if (id < count) continue;
        add("channel-range", place,
            fmt::format("the block lists {} channel {}, the rank has {}", name(list.type), id, count));
      }
    }
    const auto& buffers = plan(place.rank).remoteBuffers;
    for (const ThreadBlockRemoteBuffers& list : block(place).remoteBuffers) {
      for (const std::uint32_t id : list.ids) {
        if (id >= buffers.size()) {
          add("remote-buffer-range", place,
              fmt::format("the block lists remote buffer {}, the rank has {}", id, buffers.size()));
          continue;
        }
        const auto& types = buffers[id].accessTypes;
        if (std::find(types.begin(), types.end(), list.accessType) != types.end()) continue;
        add("access-type", place,
            fmt::format("remote buffer {} is not declared for access over {}", id, name(list.accessType)));
      }
    }
  }

  /// The k-th channel from a to b pairs with the k-th from b to a, so there must be as many.
  void checkPairing() {
    for (const auto type : {ChannelType::kMemory, ChannelType::kPort}) {
      std::map<std::pair<Rank, Rank>, int> links;
      for (Rank rank = 0; rank < schedule_.rankCount(); ++rank) {
        for (const Rank peer : plan(rank).channelPeers(type)) ++links[{rank, peer}];
      }
      for (const auto& [ends, count] : links) {
        const auto back = links.find({ends.second, ends.first});
        const int other = back == links.end() ? 0 : back->second;
        if (other >= count) continue;
        add("unpaired-channel", {ends.first},
            fmt::format("{} {} channels lead to rank {}, {} come back: both sides must declare as many",
                        count, name(type), ends.second, other),
            OpPlace{ends.second});
      }
    }
  }

  void checkOp(const OpPlace& place, const Op& op) {
    checkChannelIds(place, op);
    for (const std::uint32_t id : op.semaphoreIds) {
      if (id < plan(place.rank).semaphores.size()) continue;
      add("semaphore-range", place,
          fmt::format("semaphore {}, the rank has {}", id, plan(place.rank).semaphores.size()));
    }
    for (const Operand& operand : op.sources) checkRange(place, op, operand, false);
    for (const Operand& operand : op.destinations) checkRange(place, op, operand, true);
    if (report_.empty()) checkChannelPeers(place, op);
    if (op.code == OpCode::kPipeline) checkPipeline(place, op);
  }

  void checkChannelIds(const OpPlace& place, const Op& op) {
    if (!op.channelType || traits(op.code).channels == ChannelUse::None) return;
    const std::size_t count = block(place).channelIds(*op.channelType).size();
    for (const std::uint32_t id : op.channelIds) {
      if (id < count) continue;
      add("channel-range", place,
          fmt::format("{} names {} channel {} of its block, which lists {}", traits(op.code).name,
                      name(*op.channelType), id, count));
    }
  }

  /// The buffer and its owner behind an operand; nullopt (and a finding) when its id names nothing.
  std::optional<RemoteBuffer> target(const OpPlace& place, const Op& op, const Operand& operand) {
    if (operand.place == Operand::Place::kLocal) return RemoteBuffer{place.rank, operand.buffer, {}};
    if (operand.place == Operand::Place::kRemote) {
      const auto ids = block(place).remoteBufferIds(*op.channelType);
      if (operand.id < ids.size()) return plan(place.rank).remoteBuffers[ids[operand.id]];
      add("remote-buffer-range", place,
          fmt::format("{} names {} remote buffer {} of its block, which lists {}", traits(op.code).name,
                      name(*op.channelType), operand.id, ids.size()));
      return std::nullopt;
    }
    const auto ids = block(place).channelIds(ChannelType::kSwitch);
    if (operand.id >= ids.size()) {
      add("channel-range", place,
          fmt::format("{} names switch channel {} of its block, which lists {}", traits(op.code).name,
                      operand.id, ids.size()));
      return std::nullopt;
    }
    std::uint32_t number = ids[operand.id];
    for (const ChannelDeclaration& declaration : plan(place.rank).channels) {
      if (declaration.type != ChannelType::kSwitch) continue;
      if (number < declaration.rankGroups.size())
        return RemoteBuffer{place.rank, declaration.switchBuffer, {}};
      number -= static_cast<std::uint32_t>(declaration.rankGroups.size());
    }
    return std::nullopt;
  }

  std::uint64_t chunksOf(Rank rank, BufferKind kind) const {
    if (kind == BufferKind::kInput) return plan(rank).inputChunks;
    return kind == BufferKind::kOutput ? plan(rank).outputChunks : plan(rank).scratchChunks;
  }

  void checkRange(const OpPlace& place, const Op& op, const Operand& operand, bool written) {
    const auto buffer = target(place, op, operand);
    if (!buffer) return;
    const std::uint64_t chunks = chunksOf(buffer->rank, buffer->kind);
    const std::uint64_t end = std::uint64_t{operand.index} + operand.size;
    if (end > chunks) {
      add("chunk-range", place,
          fmt::format("{} touches chunks {} to {} of rank {} '{}', which has {}", traits(op.code).name,
                      operand.index, end - 1, buffer->rank, name(buffer->kind), chunks));
    }
    const bool packet = remotesArePackets(traits(op.code)) && operand.place == Operand::Place::kRemote;
    if (packet && buffer->kind != BufferKind::kScratch) {
      add("packet-buffer", place,
          fmt::format("{} sends packets to rank {} '{}'; packets live in scratch ('s') only",
                      traits(op.code).name, buffer->rank, name(buffer->kind)));
    }
    const bool keepsInput =
        schedule_.bufferMode != BufferMode::kInPlace && schedule_.collective() != Collective::kCustom;
    if (written && keepsInput && buffer->kind == BufferKind::kInput) {
      add("input-written", place,
          fmt::format("{} writes rank {} 'i', the user's input, which a plan that runs out of place only "
                      "reads: use 'o' or "
                      "scratch",
                      traits(op.code).name, buffer->rank));
    }
  }

  /// Over port, and for ops that signal, the k-th channel must lead to the owner of the k-th remote
  /// destination.
  void checkChannelPeers(const OpPlace& place, const Op& op) {
    if (!op.channelType || *op.channelType == ChannelType::kSwitch || op.channelIds.empty()) return;
    const bool bound = *op.channelType == ChannelType::kPort || signalsAfterData(traits(op.code));
    if (!bound) return;
    const auto channels = block(place).channelIds(*op.channelType);
    const auto buffers = block(place).remoteBufferIds(*op.channelType);
    const auto peers = plan(place.rank).channelPeers(*op.channelType);
    std::size_t k = 0;
    for (const Operand& operand : op.destinations) {
      if (operand.place != Operand::Place::kRemote || k >= op.channelIds.size()) continue;
      const Rank owner = plan(place.rank).remoteBuffers[buffers[operand.id]].rank;
      const Rank peer = peers[channels[op.channelIds[k++]]];
      if (owner == peer) continue;
      add("channel-peer-mismatch", place,
          fmt::format("{} writes a buffer of rank {} over a channel to rank {}", traits(op.code).name, owner,
                      peer));
    }
  }

  /// Iteration j handles unit j of every operand, so every data op must span exactly the pipeline's chunks.
  void checkPipeline(const OpPlace& place, const Op& pipeline) {
    OpPlace inner = place;
    for (std::size_t i = 0; i < pipeline.inner.size(); ++i) {
      const Op& op = pipeline.inner[i];
      inner.inner = static_cast<std::int32_t>(i);
      if (!movesData(traits(op.code))) continue;
      bool whole = true;
      for (const Operand& operand : op.sources) whole = whole && operand.size == pipeline.pipelineChunks;
      for (const Operand& operand : op.destinations) whole = whole && operand.size == pipeline.pipelineChunks;
      if (whole && !op.group && !remotesArePackets(traits(op.code))) continue;
      add("pipeline-range", inner,
          fmt::format("{} in a pipeline of {} chunks must have operands of that many chunks, no tbg_info, "
                      "and no packets",
                      traits(op.code).name, pipeline.pipelineChunks));
    }
  }

  void checkBarriers() {
    struct Use {
      OpPlace first;
      std::uint32_t threadBlocks = 0;
      std::set<std::int32_t> blocks;
    };
    std::map<std::pair<Rank, std::uint32_t>, Use> uses;
    forEachOp(schedule_, [&](const OpPlace& place, const Op& op) {
      if (op.code != OpCode::kBarrier) return;
      Use& use = uses[{place.rank, *op.barrierId}];
      if (use.blocks.empty()) use = {place, *op.barrierThreadBlocks, {}};
      use.blocks.insert(place.threadBlock);
      if (use.threadBlocks == *op.barrierThreadBlocks) return;
      add("barrier-count", place,
          fmt::format("barrier {} is for {} blocks here and for {} there", *op.barrierId,
                      *op.barrierThreadBlocks, use.threadBlocks),
          use.first);
    });
    for (const auto& [key, use] : uses) {
      if (use.blocks.size() == use.threadBlocks) continue;
      add("barrier-count", use.first,
          fmt::format("barrier {} waits for {} blocks, {} use it", key.second, use.threadBlocks,
                      use.blocks.size()));
    }
  }

  /// Which block gets a unit of a counter must not depend on timing: one block alone waits for each channel
  /// and acquires each semaphore.
  void checkConsumers() {
    std::map<std::tuple<Rank, int, std::uint32_t>, OpPlace> consumers;
    forEachOp(schedule_, [&](const OpPlace& place, const Op& op) {
      if (op.code == OpCode::kWait || op.code == OpCode::kRelaxedWait) {
        const auto ids = block(place).channelIds(*op.channelType);
        for (const std::uint32_t id : op.channelIds) {
          checkConsumer(consumers, {place.rank, static_cast<int>(*op.channelType), ids[id]}, place);
        }
      }
      if (op.code != OpCode::kSemaphoreAcquire) return;
      for (const std::uint32_t id : op.semaphoreIds)
        checkConsumer(consumers, {place.rank, kSemaphore, id}, place);
    });
  }

  static constexpr int kSemaphore = 3;  // beside the channel types in a consumer's key

  void checkConsumer(std::map<std::tuple<Rank, int, std::uint32_t>, OpPlace>& consumers,
                     const std::tuple<Rank, int, std::uint32_t>& key, const OpPlace& place) {
    const auto [known, isNew] = consumers.try_emplace(key, place);
    if (isNew || known->second.threadBlock == place.threadBlock) return;
    const bool semaphore = std::get<1>(key) == kSemaphore;
    add(semaphore ? "contended-semaphore" : "contended-channel", place,
        fmt::format("two blocks {} {} {}: which of them goes on first would be chance; give each its own",
                    semaphore ? "acquire" : "wait on", semaphore ? "semaphore" : "channel", std::get<2>(key)),
        known->second);
  }

  const Schedule& schedule_;
  Report& report_;
};

}  // namespace

void checkResources(const Schedule& schedule, Report& report) { ResourcesPass(schedule, report).run(); }

}  // namespace theseus::schedule::verifying
