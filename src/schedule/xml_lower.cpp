// Lowering of MSCCL programs. A message is a put into a slot of the receiver's scratch that belongs to it
// alone, then a signal; so no sender ever waits for room. A dependency is a semaphore of its own, from 0 back
// to 0.
#include <fmt/format.h>

#include <limits>
#include <map>
#include <tuple>

#include "base/check.h"
#include "schedule/xml_program.h"

namespace theseus::schedule {

bool sends(XmlStepType type) {
  return type == XmlStepType::kSend || type == XmlStepType::kReceiveCopySend ||
         type == XmlStepType::kReceiveReduceSend || type == XmlStepType::kReceiveReduceCopySend;
}

bool receives(XmlStepType type) {
  return type == XmlStepType::kReceive || type == XmlStepType::kReceiveCopySend ||
         type == XmlStepType::kReceiveReduceCopy || type == XmlStepType::kReceiveReduceSend ||
         type == XmlStepType::kReceiveReduceCopySend;
}

namespace {

/// One step: block and position in it.
struct StepPlace {
  std::size_t block = 0;
  std::size_t step = 0;
  friend auto operator<=>(const StepPlace&, const StepPlace&) = default;
};

std::string toString(std::size_t rank, const StepPlace& place) {
  return fmt::format("gpu {} tb {} step {}", rank, place.block, place.step);
}

tl::unexpected<Error> error(const std::string& place, const std::string& what) {
  return fail(ErrorCode::kInvalidSchedule, fmt::format("MSCCL XML: {}: {}", place, what));
}

/// Messages from one rank to another on one channel of the XML, in order: the k-th send meets the k-th
/// receive.
struct Connection {
  std::optional<std::size_t> sender;  // block
  std::optional<std::size_t> receiver;
  std::vector<StepPlace> sendSteps;
  std::vector<StepPlace> receiveSteps;
  std::vector<std::uint32_t> slots;  // first scratch chunk of each message, on the receiver
  std::uint32_t senderChannel = 0;   // rank-level memory channels that carry the signals
  std::uint32_t receiverChannel = 0;
};
using ConnectionKey = std::tuple<Rank, Rank, std::int64_t>;  // source, destination, channel

Operand local(BufferKind buffer, std::uint32_t index, std::uint32_t size) {
  return Operand{Operand::Place::kLocal, buffer, 0, index, size};
}

/// Ops of one block under construction, with the thread synchronization that MSCCL++'s kernels need between
/// them.
class OpList {
 public:
  explicit OpList(ThreadBlock& block) : block_(block) {}

  Op& add(OpCode code) {
    auto& op = block_.ops.emplace_back();
    op.code = code;
    return op;
  }

  void data(OpCode code, std::vector<Operand> sources, Operand destination) {
    auto& op = add(code);
    op.sources = std::move(sources);
    op.destinations = {destination};
    if (destination.place == Operand::Place::kRemote) op.channelType = ChannelType::kMemory;
    add(OpCode::kNop);
  }
  void channel(OpCode code, std::uint32_t position) {
    auto& op = add(code);
    op.channelType = ChannelType::kMemory;
    op.channelIds = {position};
    if (code == OpCode::kWait) add(OpCode::kNop);
  }
  void acquire(std::uint32_t semaphore) {
    add(OpCode::kSemaphoreAcquire).semaphoreIds = {semaphore};
    add(OpCode::kNop);
  }
  void release(const std::vector<std::uint32_t>& semaphores) {
    if (!semaphores.empty()) add(OpCode::kSemaphoreRelease).semaphoreIds = semaphores;
  }

 private:
  ThreadBlock& block_;
};

class Lowering {
 public:
  explicit Lowering(const XmlProgram& program) : program_(program) {}

  Result<Schedule> run() {
    THESEUS_TRY(fillHeader());
    THESEUS_TRY(findConnections());
    THESEUS_TRY(matchMessages());
    THESEUS_TRY(assignSlots());
    assignChannels();
    for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) {
      THESEUS_TRY(findDependencies(rank));
      for (std::size_t block = 0; block < program_.ranks[rank].blocks.size(); ++block) emitBlock(rank, block);
    }
    return std::move(schedule_);
  }

 private:
  const XmlStep& stepAt(std::size_t rank, const StepPlace& place) const {
    return program_.ranks[rank].blocks[place.block].steps[place.step];
  }

  Status fillHeader() {
    schedule_.name = program_.name;
    const auto collective = parseCollective(program_.collectiveName);
    if (!collective)
      return error("algo", fmt::format("collective \"{}\" is not supported", program_.collectiveName));
    schedule_.collectiveName = std::string(name(*collective));
    schedule_.bufferMode = program_.bufferMode;
    schedule_.threadsPerBlock = program_.threadsPerBlock;
    schedule_.minMessageBytes = program_.minBytes;
    if (program_.maxBytes != 0) schedule_.maxMessageBytes = program_.maxBytes;
    schedule_.root = program_.root;
    schedule_.provenance = {{"format", "MSCCL XML"}, {"protocol", program_.protocol}};
    schedule_.ranks.resize(program_.ranks.size());
    for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank)
      THESEUS_TRY(fillChunks(*collective, rank));
    return {};
  }

  /// Chunk counts that belong to the collective; the XML's may be 0 where one buffer is an alias of the
  /// other.
  Status fillChunks(Collective collective, std::size_t rank) {
    const auto& from = program_.ranks[rank];
    auto& to = schedule_.ranks[rank];
    const auto ranks = static_cast<std::uint32_t>(program_.ranks.size());
    const auto all = program_.chunksPerLoop;
    to.inputChunks = collective == Collective::kAllGather ? all / ranks : all;
    to.outputChunks = collective == Collective::kReduceScatter ? all / ranks : all;
    if (collective == Collective::kCustom || collective == Collective::kSendRecv) {
      to.inputChunks = from.inputChunks;
      to.outputChunks = from.outputChunks;
    } else if (all == 0) {
      return error("algo", "nchunksperloop is 0");
    }
    const bool split = collective == Collective::kAllGather || collective == Collective::kReduceScatter ||
                       collective == Collective::kAllToAll;
    if (split && all % ranks != 0) {
      return error("algo", fmt::format("nchunksperloop {} does not divide by {} gpus", all, ranks));
    }
    const auto place = fmt::format("gpu {}", rank);
    const bool aliased = program_.bufferMode != BufferMode::kOutOfPlace;
    const auto fits = [&](std::uint32_t written, std::uint32_t expected) {
      return written == expected || (written == 0 && aliased);
    };
    if (!fits(from.inputChunks, to.inputChunks)) {
      return error(place, fmt::format("i_chunks is {}, {} needs {}", from.inputChunks, name(collective),
                                      to.inputChunks));
    }
    if (!fits(from.outputChunks, to.outputChunks)) {
      return error(place, fmt::format("o_chunks is {}, {} needs {}", from.outputChunks, name(collective),
                                      to.outputChunks));
    }
    to.scratchChunks = from.scratchChunks;
    to.threadBlocks.resize(from.blocks.size());
    return {};
  }

  Status findConnections() {
    const auto ranks = static_cast<Rank>(program_.ranks.size());
    for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) {
      const auto& blocks = program_.ranks[rank].blocks;
      for (std::size_t block = 0; block < blocks.size(); ++block) {
        const auto place = fmt::format("gpu {} tb {}", rank, block);
        for (const auto peer : {blocks[block].sendPeer, blocks[block].receivePeer}) {
          if (peer >= ranks || peer == static_cast<Rank>(rank))
            return error(place, fmt::format("gpu {} is no peer", peer));
        }
        THESEUS_TRY(claim(rank, block, true));
        THESEUS_TRY(claim(rank, block, false));
        for (std::size_t step = 0; step < blocks[block].steps.size(); ++step)
          THESEUS_TRY(addStep(rank, {block, step}));
      }
    }
    return {};
  }

  Connection* connection(std::size_t rank, std::size_t block, bool sending) {
    const auto& from = program_.ranks[rank].blocks[block];
    const auto peer = sending ? from.sendPeer : from.receivePeer;
    if (peer < 0) return nullptr;
    const auto self = static_cast<Rank>(rank);
    return &connections_[sending ? ConnectionKey{self, peer, from.channel}
                                 : ConnectionKey{peer, self, from.channel}];
  }

  Status claim(std::size_t rank, std::size_t block, bool sending) {
    auto* const found = connection(rank, block, sending);
    if (found == nullptr) return {};
    auto& owner = sending ? found->sender : found->receiver;
    if (owner) {
      return error(fmt::format("gpu {} tb {}", rank, block),
                   fmt::format("tb {} already {} the same peer on the same channel", *owner,
                               sending ? "sends to" : "receives from"));
    }
    owner = block;
    return {};
  }

  Status addStep(std::size_t rank, const StepPlace& place) {
    const auto& step = stepAt(rank, place);
    if (sends(step.type)) {
      auto* const to = connection(rank, place.block, true);
      if (to == nullptr) return error(toString(rank, place), "sends, but its tb has send=\"-1\"");
      to->sendSteps.push_back(place);
    }
    if (receives(step.type)) {
      auto* const from = connection(rank, place.block, false);
      if (from == nullptr) return error(toString(rank, place), "receives, but its tb has recv=\"-1\"");
      from->receiveSteps.push_back(place);
    }
    return checkRanges(rank, place);
  }

  Status checkRanges(std::size_t rank, const StepPlace& place) const {
    const auto& step = stepAt(rank, place);
    if (step.type == XmlStepType::kNop) return {};
    if (step.count == 0) return error(toString(rank, place), "cnt is 0");
    const bool readsSource = step.type != XmlStepType::kReceive && step.type != XmlStepType::kReceiveCopySend;
    const bool writesDestination =
        step.type != XmlStepType::kSend && step.type != XmlStepType::kReceiveReduceSend;
    if (readsSource) THESEUS_TRY(checkRange(rank, place, step.source));
    if (writesDestination) THESEUS_TRY(checkRange(rank, place, step.destination));
    return {};
  }

  Status checkRange(std::size_t rank, const StepPlace& place, const XmlRange& range) const {
    const auto& plan = schedule_.ranks[rank];
    const auto chunks = range.buffer == BufferKind::kInput    ? plan.inputChunks
                        : range.buffer == BufferKind::kOutput ? plan.outputChunks
                                                              : program_.ranks[rank].scratchChunks;
    const auto count = stepAt(rank, place).count;
    if (range.offset >= 0 && static_cast<std::uint64_t>(range.offset) + count <= chunks) return {};
    return error(toString(rank, place), fmt::format("{} chunks from {} of buffer '{}', which has {}", count,
                                                    range.offset, name(range.buffer), chunks));
  }

  Status matchMessages() const {
    for (const auto& [key, messages] : connections_) {
      const auto& [source, destination, channel] = key;
      const auto place = fmt::format("gpu {} to gpu {} on channel {}", source, destination, channel);
      if (messages.sendSteps.size() != messages.receiveSteps.size()) {
        return error(place, fmt::format("{} messages are sent and {} received", messages.sendSteps.size(),
                                        messages.receiveSteps.size()));
      }
      for (std::size_t k = 0; k < messages.sendSteps.size(); ++k) {
        const auto sent = stepAt(static_cast<std::size_t>(source), messages.sendSteps[k]).count;
        const auto received = stepAt(static_cast<std::size_t>(destination), messages.receiveSteps[k]).count;
        if (sent == received) continue;
        return error(place,
                     fmt::format("message {} is sent with cnt {} ({}) and received with cnt {} ({})", k, sent,
                                 toString(static_cast<std::size_t>(source), messages.sendSteps[k]), received,
                                 toString(static_cast<std::size_t>(destination), messages.receiveSteps[k])));
      }
    }
    return {};
  }

  Status assignSlots() {
    for (auto& [key, messages] : connections_) {
      const auto destination = static_cast<std::size_t>(std::get<1>(key));
      auto& scratch = schedule_.ranks[destination].scratchChunks;
      for (const auto& place : messages.receiveSteps) {
        const auto count = stepAt(destination, place).count;
        if (count > std::numeric_limits<std::uint32_t>::max() - scratch) {
          return error(toString(destination, place), "more than 32 bits of scratch chunks");
        }
        messages.slots.push_back(scratch);
        scratch += count;
      }
    }
    return {};
  }

  /// Both sides open the channels of a pair in one order, so that the k-th meets the k-th.
  void assignChannels() {
    for (auto& [key, messages] : connections_) {
      if (messages.sendSteps.empty()) continue;
      const auto [source, destination, channel] = key;
      messages.senderChannel = openChannel(source, destination);
      messages.receiverChannel = openChannel(destination, source);
      auto& known = remoteBuffers_[{source, destination}];
      if (known) continue;
      auto& remotes = schedule_.ranks[static_cast<std::size_t>(source)].remoteBuffers;
      known = static_cast<std::uint32_t>(remotes.size());
      remotes.push_back({destination, BufferKind::kScratch, {ChannelType::kMemory}});
    }
  }

  std::uint32_t openChannel(Rank rank, Rank peer) {
    auto& declarations = schedule_.ranks[static_cast<std::size_t>(rank)].channels;
    if (declarations.empty()) declarations.emplace_back();
    auto& peers = declarations.front().connectedTo;
    peers.push_back(peer);
    return static_cast<std::uint32_t>(peers.size() - 1);
  }

  Status findDependencies(std::size_t rank) {
    acquires_.clear();
    releases_.clear();
    const auto& blocks = program_.ranks[rank].blocks;
    auto& semaphores = schedule_.ranks[rank].semaphores;
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      for (std::size_t step = 0; step < blocks[block].steps.size(); ++step) {
        const StepPlace place{block, step};
        const auto& from = blocks[block].steps[step];
        if (from.dependBlock < 0) continue;
        const auto onBlock = static_cast<std::size_t>(from.dependBlock);
        if (onBlock >= blocks.size() || from.dependStep < 0 ||
            static_cast<std::size_t>(from.dependStep) >= blocks[onBlock].steps.size()) {
          return error(toString(rank, place),
                       fmt::format("depends on tb {} step {}, which the gpu does not have", from.dependBlock,
                                   from.dependStep));
        }
        const StepPlace on{onBlock, static_cast<std::size_t>(from.dependStep)};
        if (onBlock == block && on.step >= step)
          return error(toString(rank, place), "depends on a step not before it");
        if (onBlock == block) continue;  // the order of the block does it
        const auto semaphore = static_cast<std::uint32_t>(semaphores.size());
        semaphores.push_back(0);
        acquires_[place] = semaphore;
        releases_[on].push_back(semaphore);
      }
    }
    return {};
  }

  /// What a block needs to know while its steps are written out.
  struct BlockState {
    std::size_t rank;
    Connection* out;  // null = none
    Connection* in;
    std::uint32_t outPosition;  // of the channels within the block
    std::uint32_t inPosition;
    std::size_t sent = 0;
    std::size_t received = 0;
  };

  void emitBlock(std::size_t rank, std::size_t block) {
    auto& to = schedule_.ranks[rank].threadBlocks[block];
    BlockState state{rank, connection(rank, block, true), connection(rank, block, false), 0, 0};
    std::vector<std::uint32_t> channels;
    if (state.out != nullptr && !state.out->sendSteps.empty()) {
      channels.push_back(state.out->senderChannel);
      const auto peer = program_.ranks[rank].blocks[block].sendPeer;
      to.remoteBuffers.push_back({ChannelType::kMemory, {*remoteBuffers_[{static_cast<Rank>(rank), peer}]}});
    }
    if (state.in != nullptr && !state.in->receiveSteps.empty()) {
      state.inPosition = static_cast<std::uint32_t>(channels.size());
      channels.push_back(state.in->receiverChannel);
    }
    if (!channels.empty()) to.channels.push_back({ChannelType::kMemory, channels});
    OpList ops(to);
    for (std::size_t step = 0; step < program_.ranks[rank].blocks[block].steps.size(); ++step) {
      const StepPlace place{block, step};
      if (const auto found = acquires_.find(place); found != acquires_.end()) ops.acquire(found->second);
      emitStep(stepAt(rank, place), state, ops);
      if (const auto found = releases_.find(place); found != releases_.end()) ops.release(found->second);
    }
  }

  static void emitStep(const XmlStep& step, BlockState& state, OpList& ops) {
    const auto range = [&](const XmlRange& from) {
      return local(from.buffer, static_cast<std::uint32_t>(from.offset), step.count);
    };
    Operand slot;
    if (receives(step.type)) {
      ops.channel(OpCode::kWait, state.inPosition);
      slot = local(BufferKind::kScratch, state.in->slots[state.received++], step.count);
    }
    switch (step.type) {
      case XmlStepType::kNop:
        break;
      case XmlStepType::kSend:
        emitSend(range(step.source), state, ops);
        break;
      case XmlStepType::kReceive:
        ops.data(OpCode::kCopy, {slot}, range(step.destination));
        break;
      case XmlStepType::kReceiveCopySend:
        ops.data(OpCode::kCopy, {slot}, range(step.destination));
        emitSend(range(step.destination), state, ops);
        break;
      case XmlStepType::kReceiveReduceCopy:
        ops.data(OpCode::kReduce, {range(step.source), slot}, range(step.destination));
        break;
      case XmlStepType::kReceiveReduceSend:  // not stored: the message's own slot holds the result
        ops.data(OpCode::kReduce, {slot, range(step.source)}, slot);
        emitSend(slot, state, ops);
        break;
      case XmlStepType::kReceiveReduceCopySend:
        ops.data(OpCode::kReduce, {range(step.source), slot}, range(step.destination));
        emitSend(range(step.destination), state, ops);
        break;
      case XmlStepType::kCopy:
        ops.data(OpCode::kCopy, {range(step.source)}, range(step.destination));
        break;
      case XmlStepType::kReduce:
        ops.data(OpCode::kReduce, {range(step.destination), range(step.source)}, range(step.destination));
        break;
    }
  }

  static void emitSend(const Operand& source, BlockState& state, OpList& ops) {
    const auto slot = state.out->slots[state.sent++];
    ops.data(OpCode::kPut, {source},
             Operand{Operand::Place::kRemote, BufferKind::kInput, 0, slot, source.size});
    ops.channel(OpCode::kSignal, state.outPosition);
  }

  const XmlProgram& program_;
  Schedule schedule_;
  std::map<ConnectionKey, Connection> connections_;
  std::map<std::pair<Rank, Rank>, std::optional<std::uint32_t>>
      remoteBuffers_;                                         // (rank, peer) -> number on rank
  std::map<StepPlace, std::uint32_t> acquires_;               // of the rank in work
  std::map<StepPlace, std::vector<std::uint32_t>> releases_;  // of the rank in work
};

}  // namespace

Result<Schedule> lower(const XmlProgram& program) { return Lowering(program).run(); }

}  // namespace theseus::schedule
