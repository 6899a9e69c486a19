// Op codes, their traits (made from ops.def) and one op of a thread block. Plain values, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "theseus/types.h"

namespace theseus::schedule {

enum class OpCode : std::uint8_t {
#define THESEUS_OP(id, json, cls, src, dst, channels, doc) id,
#include "schedule/ops.def"
#undef THESEUS_OP
};

enum class OpClass : std::uint8_t { Local, Remote, Sync, Fused, Container };

/// Shape of an operand list. Local = a range of this rank's buffers; Remote = of a peer's; Packet = a range
/// of scratch whose bytes carry flags, so that reading them waits for their arrival.
enum class OperandShape : std::uint8_t {
  None,
  Local,               // exactly one local range
  Locals,              // one or more local ranges
  LocalEach,           // local ranges, the k-th belongs to the k-th of the other side
  LocalPacket,         // exactly one range of packets in local scratch
  LocalAndPackets,     // one local range, then one or more ranges of packets in local scratch
  LocalAndPacket,      // one local range, then one range of packets in local scratch
  LocalAndRemotes,     // one local range, then one or more remote ranges
  LocalPacketRemotes,  // one local range, one range of packets in local scratch, then remote ranges
  RemoteEach,  // remote ranges, the k-th belongs to the k-th of the other side (or all to the one source)
  Switch,      // exactly one range of a switch channel
};

enum class ChannelUse : std::uint8_t { None, Optional, Required };

struct OpTraits {
  std::string_view name;  // as in the JSON
  OpClass opClass;
  OperandShape sources;
  OperandShape destinations;
  ChannelUse channels;
  std::string_view doc;
};

const OpTraits& traits(OpCode code);
std::optional<OpCode> parseOpCode(std::string_view jsonName);
constexpr int kOpCodeCount = static_cast<int>(OpCode::kPipeline) + 1;

enum class ChannelType : std::uint8_t { kMemory, kPort, kSwitch };
std::string_view name(ChannelType type);  // "memory", "port", "switch"
std::optional<ChannelType> parseChannelType(std::string_view text);

enum class BufferKind : std::uint8_t { kInput, kOutput, kScratch };
std::string_view name(BufferKind kind);  // "i", "o", "s"
std::optional<BufferKind> parseBufferKind(std::string_view text);

/// A range of chunks. Which fields count depends on `place`.
struct Operand {
  enum class Place : std::uint8_t { kLocal, kRemote, kSwitch };
  Place place = Place::kLocal;
  BufferKind buffer = BufferKind::kInput;  // kLocal: the buffer. kRemote, kSwitch: unused
  std::uint32_t id = 0;     // kRemote: position in the block's remote_buffer_refs of the op's channel type;
                            // kSwitch: position in the block's list of switch channels
  std::uint32_t index = 0;  // first chunk
  std::uint32_t size = 0;   // chunks
  friend bool operator==(const Operand&, const Operand&) = default;
};

/// The slice `index` of `size` thread blocks that share an op's range (MSCCL++ tbg_info).
struct ThreadBlockGroup {
  std::uint32_t index = 0;
  std::uint32_t size = 1;
  friend bool operator==(const ThreadBlockGroup&, const ThreadBlockGroup&) = default;
};

struct Op {
  OpCode code = OpCode::kNop;
  std::optional<ChannelType> channelType;
  std::vector<std::uint32_t> channelIds;  // positions in the block's own channel list of that type
  std::vector<Operand> sources;
  std::vector<Operand> destinations;
  std::optional<ThreadBlockGroup> group;
  std::optional<std::uint32_t> barrierId;
  std::optional<std::uint32_t> barrierThreadBlocks;
  std::vector<std::uint32_t> semaphoreIds;
  std::optional<ReduceOp> reduceOp;     // as written in the plan; the call's own op is what runs
  std::uint64_t pipelineUnitBytes = 0;  // kPipeline only: iter_context.unit_size
  std::uint32_t pipelineChunks = 0;     // kPipeline only: iter_context.num_chunks
  std::vector<Op> inner;                // kPipeline only
  friend bool operator==(const Op&, const Op&) = default;
};

}  // namespace theseus::schedule
