// One collective call as the host executor sees it. Plain values; buffers are borrowed for the length of the
// call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/ids.h"
#include "resource/schedule_node.h"
#include "theseus/types.h"
#include "transport/segment.h"

namespace theseus::exec {

/// What every rank must agree on about a call; travels in each segment's header.
struct CallIdentity {
  SequenceNumber sequence = 0;
  Collective collective = Collective::kAllReduce;
  DataType dataType = DataType::kFloat32;
  ReduceOp reduceOp = ReduceOp::kSum;
  std::uint64_t count = 0;
  Rank root = 0;
};

struct Buffer {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

struct Call {
  CallIdentity identity;
  const resource::ScheduleNode* node = nullptr;
  const resource::Instance* instance = nullptr;
  Buffer buffers[3];  // by schedule::BufferKind
};

/// A header with the identity of `call`, of the given kind.
transport::SegmentHeader makeHeader(const Call& call, transport::SegmentKind kind);
/// "allreduce(float32, sum, count 1024)"
std::string describeCall(const transport::SegmentHeader& header);
/// Same call and same schedule; the rest of the header is not looked at.
bool sameCall(const transport::SegmentHeader& a, const transport::SegmentHeader& b);

}  // namespace theseus::exec
