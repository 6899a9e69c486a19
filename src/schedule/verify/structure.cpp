// Pass 1: structure. Everything here follows from the op table's row of an op, or from one rank's own
// numbers.
#include <fmt/format.h>

#include <bit>

#include "schedule/verify/passes.h"
#include "schedule/verify/shapes.h"

namespace theseus::schedule::verifying {
namespace {

/// Bounds on what a plan may ask of the verifier and of memory; far above every real plan.
constexpr std::size_t kMaxRanks = 4096;
constexpr std::uint64_t kMaxChunks = 1u << 20;
constexpr std::uint32_t kMaxThreadsPerBlock = 1024;

class StructurePass {
 public:
  StructurePass(const Schedule& schedule, const VerifyOptions& options, Report& report)
      : schedule_(schedule), options_(options), report_(report) {}

  void run() {
    checkHeader();
    checkChunkCounts();
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) checkRank(static_cast<Rank>(rank));
    forEachOp(schedule_, [this](const OpPlace& place, const Op& op) { checkOp(place, op); });
  }

 private:
  void add(std::string kind, const OpPlace& place, std::string message) {
    report_.add({VerifyPass::kStructure, std::move(kind), place, std::nullopt, std::move(message)});
  }

  void checkHeader() {
    const OpPlace whole;
    const std::size_t ranks = schedule_.ranks.size();
    if (ranks == 0 || ranks > kMaxRanks) {
      add("rank-count", whole, fmt::format("the plan has {} ranks; 1 to {} can run", ranks, kMaxRanks));
    }
    if (options_.jobRanks && static_cast<std::size_t>(*options_.jobRanks) != ranks) {
      add("rank-count", whole,
          fmt::format("the plan is for {} ranks, the job has {}: use a plan made for {} ranks", ranks,
                      *options_.jobRanks, *options_.jobRanks));
    }
    if (!std::has_single_bit(schedule_.bufferAlignment)) {
      add("alignment", whole,
          fmt::format("buffer_alignment {} is no power of two", schedule_.bufferAlignment));
    }
    if (schedule_.threadsPerBlock == 0 || schedule_.threadsPerBlock > kMaxThreadsPerBlock) {
      add("threads-per-block", whole,
          fmt::format("num_threads_per_block {} is outside 1 to {}", schedule_.threadsPerBlock,
                      kMaxThreadsPerBlock));
    }
    if (schedule_.minMessageBytes > schedule_.maxMessageBytes) {
      add("message-range", whole,
          fmt::format("min_message_size {} is above max_message_size {}: no message fits",
                      schedule_.minMessageBytes, schedule_.maxMessageBytes));
    }
    if (schedule_.root < 0 || static_cast<std::size_t>(schedule_.root) >= ranks) {
      add("root", whole, fmt::format("root {} is none of the {} ranks", schedule_.root, ranks));
    }
  }

  /// Input and output chunks must be the same on every rank and stand in the collective's relation; 0 is an
  /// alias of the other buffer and so only for plans that run in place.
  void checkChunkCounts() {
    if (schedule_.ranks.empty() || schedule_.collective() == Collective::kCustom) return;
    const RankPlan& first = schedule_.ranks.front();
    for (std::size_t rank = 1; rank < schedule_.ranks.size(); ++rank) {
      const RankPlan& plan = schedule_.ranks[rank];
      if (plan.inputChunks == first.inputChunks && plan.outputChunks == first.outputChunks) continue;
      add("chunk-counts", {static_cast<Rank>(rank)},
          fmt::format("{} input and {} output chunks, rank 0 has {} and {}: they must be equal",
                      plan.inputChunks, plan.outputChunks, first.inputChunks, first.outputChunks));
      return;
    }
    if (schedule_.collective() == Collective::kBarrier) return;
    const std::uint64_t input = first.inputChunks;
    const std::uint64_t output = first.outputChunks;
    const OpPlace whole;
    if (input == 0 && output == 0) {
      add("chunk-counts", whole, "neither input nor output has chunks: the collective would move nothing");
    } else if (input == 0 || output == 0) {
      checkAliasedCounts(std::max(input, output));
    } else {
      checkRelation(input, output);
    }
  }

  void checkAliasedCounts(std::uint64_t chunks) {
    if (schedule_.bufferMode != BufferMode::kInPlace) {
      add("chunk-counts", {},
          "a buffer has 0 chunks, which means it aliases the other, yet the plan runs out of place");
    }
    const std::uint64_t ranks = schedule_.ranks.size();
    const Collective collective = schedule_.collective();
    const bool split = collective == Collective::kAllGather || collective == Collective::kReduceScatter ||
                       collective == Collective::kAllToAll;
    if (split && chunks % ranks != 0) {
      add("chunk-counts", {}, fmt::format("{} chunks do not divide by {} ranks", chunks, ranks));
    }
  }

  void checkRelation(std::uint64_t input, std::uint64_t output) {
    const std::uint64_t ranks = schedule_.ranks.size();
    std::uint64_t expected = input;
    if (schedule_.collective() == Collective::kAllGather) expected = input * ranks;
    if (schedule_.collective() == Collective::kReduceScatter) expected = input / ranks;
    const bool split = schedule_.collective() == Collective::kReduceScatter ||
                       schedule_.collective() == Collective::kAllToAll;
    if (output != expected || (split && input % ranks != 0)) {
      add("chunk-counts", {},
          fmt::format("{} input chunks and {} output chunks do not fit {} on {} ranks", input, output,
                      schedule_.collectiveName, ranks));
    }
  }

  void checkRank(Rank rank) {
    const RankPlan& plan = schedule_.ranks[static_cast<std::size_t>(rank)];
    for (const std::uint64_t chunks : {plan.inputChunks, plan.outputChunks, plan.scratchChunks}) {
      if (chunks > kMaxChunks)
        add("chunk-counts", {rank}, fmt::format("{} chunks; {} is the most", chunks, kMaxChunks));
    }
    for (const std::int64_t initial : plan.semaphores) {
      if (initial < 0)
        add("semaphore-initial", {rank}, fmt::format("a semaphore begins at {}, below 0", initial));
    }
  }

  void checkOp(const OpPlace& place, const Op& op) {
    const OpTraits& row = traits(op.code);
    checkList(place, op, {row.sources, &op.sources, "source"});
    checkList(place, op, {row.destinations, &op.destinations, "destination"});
    checkSizes(place, op);
    checkChannels(place, op);
    checkNumbers(place, op);
    checkContainer(place, op);
  }

  struct OperandList {
    OperandShape shape;
    const std::vector<Operand>* operands;
    std::string_view side;
  };

  void checkList(const OpPlace& place, const Op& op, const OperandList& list) {
    const ListRule rule = listRule(list.shape);
    const std::size_t count = list.operands->size();
    const std::size_t least = rule.fixedCount() + rule.minimumRest;
    if (count < least || (rule.rest == Slot::kNone && count > least)) {
      add("operand-count", place,
          fmt::format("{} has {} {} operands; it takes {}{}", traits(op.code).name, count, list.side, least,
                      rule.rest == Slot::kNone ? "" : " or more"));
      return;
    }
    for (std::size_t i = 0; i < count; ++i)
      checkOperand(place, op, {rule.at(i), (*list.operands)[i], list.side, i});
  }

  struct OperandCheck {
    Slot slot;
    const Operand& operand;
    std::string_view side;
    std::size_t position;
  };

  void checkOperand(const OpPlace& place, const Op& op, const OperandCheck& check) {
    const auto wanted = check.slot == Slot::kRemote   ? Operand::Place::kRemote
                        : check.slot == Slot::kSwitch ? Operand::Place::kSwitch
                                                      : Operand::Place::kLocal;
    constexpr std::string_view kPlaceNames[] = {"local", "remote", "switch"};
    if (check.operand.place != wanted) {
      add("operand-place", place,
          fmt::format("{} {} {} is {}; it must be {}", traits(op.code).name, check.side, check.position,
                      kPlaceNames[static_cast<std::size_t>(check.operand.place)],
                      kPlaceNames[static_cast<std::size_t>(wanted)]));
    } else if (check.slot == Slot::kPacket && check.operand.buffer != BufferKind::kScratch) {
      add("packet-buffer", place,
          fmt::format("{} {} {} holds packets, which live in scratch ('s') only, not in '{}'",
                      traits(op.code).name, check.side, check.position, name(check.operand.buffer)));
    }
    if (check.operand.size == 0) {
      add("empty-operand", place, fmt::format("{} {} has size 0", check.side, check.position));
    }
  }

  void checkSizes(const OpPlace& place, const Op& op) {
    if (op.sources.empty() || op.destinations.empty()) return;
    if (!isPairwise(traits(op.code))) {
      const std::uint32_t size = op.destinations.front().size;
      bool equal = true;
      for (const Operand& operand : op.sources) equal = equal && operand.size == size;
      for (const Operand& operand : op.destinations) equal = equal && operand.size == size;
      if (!equal) add("operand-size", place, "the operands have different numbers of chunks");
      return;
    }
    if (op.sources.size() != op.destinations.size()) {
      add("operand-count", place,
          fmt::format("{} pairs sources with destinations, yet has {} and {}", traits(op.code).name,
                      op.sources.size(), op.destinations.size()));
      return;
    }
    for (std::size_t i = 0; i < op.sources.size(); ++i) {
      if (op.sources[i].size == op.destinations[i].size) continue;
      add("operand-size", place,
          fmt::format("pair {} has {} chunks at its source and {} at its destination", i, op.sources[i].size,
                      op.destinations[i].size));
    }
  }

  static bool hasRemote(const std::vector<Operand>& operands) {
    for (const Operand& operand : operands) {
      if (operand.place != Operand::Place::kLocal) return true;
    }
    return false;
  }

  void checkChannels(const OpPlace& place, const Op& op) {
    const OpTraits& row = traits(op.code);
    const bool remote = hasRemote(op.sources) || hasRemote(op.destinations);
    if ((row.channels == ChannelUse::Required || remote) && !op.channelType) {
      add("channel-type", place, fmt::format("{} needs a channel_type", row.name));
      return;
    }
    if (row.channels == ChannelUse::None && !op.channelIds.empty()) {
      add("channel-count", place, fmt::format("{} takes no channels", row.name));
    }
    if (row.channels == ChannelUse::Required && op.channelIds.empty()) {
      add("channel-count", place, fmt::format("{} names no channel", row.name));
    }
    const bool usesSwitch = op.channelType == ChannelType::kSwitch;
    const ListRule sources = listRule(row.sources);
    const ListRule destinations = listRule(row.destinations);
    const bool wantsSwitch = sources.at(0) == Slot::kSwitch || destinations.at(0) == Slot::kSwitch;
    if (op.channelType && usesSwitch != wantsSwitch && (remote || row.channels == ChannelUse::Required)) {
      add("channel-type", place,
          fmt::format("{} cannot run over a {} channel", row.name, name(*op.channelType)));
      return;
    }
    checkChannelsPerDestination(place, op, row);
  }

  /// Over port one channel carries each destination; an op that signals names one for each destination on any
  /// channel.
  void checkChannelsPerDestination(const OpPlace& place, const Op& op, const OpTraits& row) {
    if (!hasRemote(op.destinations) || op.channelType == ChannelType::kSwitch) return;
    std::size_t remotes = 0;
    for (const Operand& operand : op.destinations)
      remotes += operand.place == Operand::Place::kRemote ? 1 : 0;
    const bool needed = op.channelType == ChannelType::kPort || row.channels == ChannelUse::Required;
    if (needed && !(row.channels == ChannelUse::Required && op.channelIds.empty()) &&
        op.channelIds.size() != remotes) {
      add("channel-count", place,
          fmt::format("{} has {} remote destinations and {} channels; each destination needs one", row.name,
                      remotes, op.channelIds.size()));
    }
  }

  void checkNumbers(const OpPlace& place, const Op& op) {
    if (op.code == OpCode::kBarrier &&
        (!op.barrierId || !op.barrierThreadBlocks || *op.barrierThreadBlocks == 0)) {
      add("barrier-numbers", place, "barrier needs barrier_id and num_threadblocks of 1 or more");
    }
    const bool semaphore = op.code == OpCode::kSemaphoreAcquire || op.code == OpCode::kSemaphoreRelease;
    if (semaphore == op.semaphoreIds.empty()) {
      add("semaphore-ids", place,
          semaphore ? fmt::format("{} names no semaphore", traits(op.code).name)
                    : fmt::format("{} takes no semaphore", traits(op.code).name));
    }
    if (op.group && (op.group->size == 0 || op.group->index >= op.group->size)) {
      add("thread-block-group", place,
          fmt::format("tb_id {} is outside a group of {} blocks", op.group->index, op.group->size));
    }
  }

  void checkContainer(const OpPlace& place, const Op& op) {
    if (op.code != OpCode::kPipeline) {
      if (!op.inner.empty())
        add("nested-ops", place, fmt::format("{} cannot hold ops", traits(op.code).name));
      return;
    }
    if (place.inner >= 0) {
      add("nested-pipeline", place, "a pipeline within a pipeline cannot run");
      return;
    }
    if (op.pipelineUnitBytes == 0 || op.pipelineChunks == 0) {
      add("pipeline-numbers", place,
          fmt::format("unit_size {} and num_chunks {} must be 1 or more", op.pipelineUnitBytes,
                      op.pipelineChunks));
    } else if (std::has_single_bit(schedule_.bufferAlignment) &&
               op.pipelineUnitBytes % schedule_.bufferAlignment != 0) {
      add("pipeline-numbers", place,
          fmt::format("unit_size {} is no multiple of buffer_alignment {}", op.pipelineUnitBytes,
                      schedule_.bufferAlignment));
    }
  }

  const Schedule& schedule_;
  const VerifyOptions& options_;
  Report& report_;
};

}  // namespace

void forEachOp(const Schedule& schedule, const std::function<void(const OpPlace&, const Op&)>& visit) {
  const auto visitWithInner = [&visit](OpPlace place, const Op& op) {
    visit(place, op);
    for (std::size_t inner = 0; inner < op.inner.size(); ++inner) {
      place.inner = static_cast<std::int32_t>(inner);
      visit(place, op.inner[inner]);
    }
  };
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const auto& blocks = schedule.ranks[rank].threadBlocks;
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      OpPlace place{static_cast<Rank>(rank), static_cast<std::int32_t>(block)};
      for (std::size_t i = 0; i < blocks[block].ops.size(); ++i) {
        place.op = static_cast<std::int32_t>(i);
        visitWithInner(place, blocks[block].ops[i]);
      }
    }
  }
}

void checkStructure(const Schedule& schedule, const VerifyOptions& options, Report& report) {
  StructurePass(schedule, options, report).run();
}

}  // namespace theseus::schedule::verifying
