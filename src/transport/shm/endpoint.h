// shm: ranks of one host. Each rank keeps its inbox in a memfd; peers get that descriptor, and the one that
// wakes the rank, over an abstract unix socket after the hello. The socket then stays open and tells by its
// end that the peer has died. Nothing has a name in the file system, so nothing is left behind however a
// process ends. One thread drives it, wake() may come from any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "drivers/posix/memory_file.h"
#include "drivers/posix/poller.h"
#include "transport/greeting.h"
#include "transport/ring_endpoint.h"
#include "transport/shm/peer_link.h"

namespace theseus::transport {

class ShmEndpoint final : public RingEndpoint {
 public:
  static Result<std::unique_ptr<Endpoint>> make(const EndpointOptions& options);
  ~ShmEndpoint() override;

  std::string address() const override { return address_; }
  Status setPeers(std::vector<std::string> addresses) override;

 protected:
  Status openChannel(Rank peer) override;
  Result<bool> service(std::span<const drivers::PollEvent> events) override;
  bool serviceIsUrgent() const override { return connecting_ > 0 || admission_.busy(); }
  base::Nanoseconds sleepLimit() const override;

 private:
  struct Memory {
    drivers::FileDescriptor file;
    drivers::MemoryMapping inbox;
    std::unique_ptr<drivers::EventCounter> counter;  // at an address that doorbells may refer to
  };
  ShmEndpoint(Parts parts, Memory memory, Admission admission, std::string address);

  bool admit(base::TimePoint now);
  Result<bool> serviceOutbound(Rank peer, base::TimePoint now);
  Result<bool> serviceInbound(Rank from);

  Memory memory_;
  Admission admission_;
  std::string address_;
  std::vector<std::unique_ptr<OutboundLink>> outbound_;  // by peer; made at connect()
  std::vector<std::unique_ptr<InboundLink>> inbound_;    // by sender; made when it is let in
  int connecting_ = 0;
};

}  // namespace theseus::transport
