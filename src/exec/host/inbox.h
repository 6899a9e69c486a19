// The receiving side of the host executor: decides where arriving segments go and what their arrival changes.
// Every segment is checked against the running call, so a peer that calls something else is an error that
// names both calls. One thread.
#pragma once

#include "exec/host/run_state.h"
#include "transport/endpoint.h"

namespace theseus::exec {

class Inbox final : public transport::InboundHandler {
 public:
  explicit Inbox(RunState& state) : state_(state) {}
  Result<transport::Placement> onHeader(Rank from, const transport::SegmentHeader& header) override;
  Status onDelivered(Rank from, const transport::SegmentHeader& header) override;

 private:
  Status checkCall(Rank from, const transport::SegmentHeader& header) const;
  Result<std::byte*> destination(Rank from, const transport::SegmentHeader& header) const;
  Status countSignal(Rank from, const transport::SegmentHeader& header);
  Status serve(Rank from, const transport::SegmentHeader& header);
  Status acceptReply(Rank from, const transport::SegmentHeader& header);

  RunState& state_;
};

}  // namespace theseus::exec
