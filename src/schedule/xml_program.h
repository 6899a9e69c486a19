// An MSCCL XML as plain data, between its reader (xml.cpp) and its lowering (xml_lower.cpp). Internal to this
// folder; plain values, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "theseus/result.h"

namespace theseus::schedule {

enum class XmlStepType : std::uint8_t {
  kSend,
  kReceive,
  kReceiveCopySend,
  kReceiveReduceCopy,
  kReceiveReduceSend,
  kReceiveReduceCopySend,
  kCopy,
  kReduce,
  kNop
};

bool sends(XmlStepType type);
bool receives(XmlStepType type);

/// `count` chunks of one of the rank's buffers. Offsets are -1 where a step has none.
struct XmlRange {
  BufferKind buffer = BufferKind::kInput;
  std::int64_t offset = -1;
};

struct XmlStep {
  XmlStepType type = XmlStepType::kNop;
  XmlRange source;
  XmlRange destination;
  std::uint32_t count = 0;
  std::int64_t dependBlock = -1;  // -1 = none
  std::int64_t dependStep = -1;
};

struct XmlBlock {
  Rank sendPeer = -1;  // -1 = none
  Rank receivePeer = -1;
  std::int64_t channel = 0;
  std::vector<XmlStep> steps;
};

struct XmlRank {
  std::uint32_t inputChunks = 0;
  std::uint32_t outputChunks = 0;
  std::uint32_t scratchChunks = 0;
  std::vector<XmlBlock> blocks;
};

struct XmlProgram {
  std::string name;
  std::string protocol;
  std::string collectiveName;
  BufferMode bufferMode = BufferMode::kOutOfPlace;
  std::uint32_t chunksPerLoop = 0;
  std::uint32_t threadsPerBlock = 1024;
  std::uint64_t minBytes = 0;
  std::uint64_t maxBytes = 0;  // 0 = no limit
  Rank root = 0;
  std::vector<XmlRank> ranks;
};

/// Errors: unmatched messages, counts that differ, ids and chunks out of range.
Result<Schedule> lower(const XmlProgram& program);

}  // namespace theseus::schedule
