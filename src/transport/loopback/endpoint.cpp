// Ranks as threads of one process: every rank's inbox lies in a hub that all endpoints share.
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "base/check.h"
#include "drivers/posix/memory_file.h"
#include "transport/endpoint.h"
#include "transport/ring_endpoint.h"

namespace theseus::transport {

/// Immutable after construction but for the rings themselves, so any thread may use it.
class LoopbackHub {
 public:
  struct Member {
    drivers::MemoryMapping inbox;
    drivers::EventCounter counter;
  };

  explicit LoopbackHub(int size) {
    for (int rank = 0; rank < size; ++rank) {
      Result<drivers::MemoryMapping> inbox = drivers::MemoryMapping::anonymous(inboxBytes(size));
      THESEUS_CHECK(inbox.has_value(), "address space for the inboxes of a loopback job");
      Result<drivers::EventCounter> counter = drivers::EventCounter::create();
      THESEUS_CHECK(counter.has_value(), "a file descriptor for each loopback rank");
      members_.push_back({std::move(*inbox), std::move(*counter)});
    }
  }

  int size() const { return static_cast<int>(members_.size()); }
  std::byte* inbox(Rank rank) const { return members_[static_cast<std::size_t>(rank)].inbox.data(); }
  const drivers::EventCounter& counter(Rank rank) const {
    return members_[static_cast<std::size_t>(rank)].counter;
  }
  Doorbell doorbell(Rank rank) const { return {inboxHeader(inbox(rank)), &counter(rank)}; }

 private:
  std::vector<Member> members_;
};

namespace {

class LoopbackEndpoint final : public RingEndpoint {
 public:
  LoopbackEndpoint(std::shared_ptr<LoopbackHub> hub, Parts parts)
      : RingEndpoint(std::move(parts)), hub_(std::move(hub)) {
    for (Rank from = 0; from < size(); ++from) {
      if (from == rank()) continue;
      stream(from).attach(ringIn(hub_->inbox(rank()), from));
      stream(from).setWriter(hub_->doorbell(from));
    }
  }
  ~LoopbackEndpoint() override { sayGoodbyes(); }

  static std::unique_ptr<Endpoint> make(std::shared_ptr<LoopbackHub> hub, const EndpointOptions& options) {
    THESEUS_CHECK(options.size == hub->size(), "an endpoint and its hub agree on the number of ranks");
    THESEUS_CHECK(options.rank >= 0 && options.rank < options.size, "rank within its job");
    Result<drivers::Poller> poller = drivers::Poller::create();
    THESEUS_CHECK(poller.has_value(), "a file descriptor for a poller");
    THESEUS_CHECK(poller->watch(hub->counter(options.rank).descriptor(), 0).has_value(),
                  "watching an event counter");
    Parts parts{.capabilities = {.name = "loopback", .latencySeconds = 1e-6, .bytesPerSecond = 10e9},
                .options = options,
                .poller = std::move(*poller),
                .inbox = inboxHeader(hub->inbox(options.rank)),
                .counter = &hub->counter(options.rank)};
    return std::make_unique<LoopbackEndpoint>(std::move(hub), std::move(parts));
  }

  std::string address() const override { return fmt::format("loopback:{}", rank()); }

 protected:
  Status openChannel(Rank peer) override {
    channel(peer).attach(ringIn(hub_->inbox(peer), rank()), hub_->doorbell(peer));
    return {};
  }
  Result<bool> service(std::span<const drivers::PollEvent>) override { return false; }
  bool serviceIsUrgent() const override { return false; }
  base::Nanoseconds sleepLimit() const override { return base::Nanoseconds::max(); }

 private:
  std::shared_ptr<LoopbackHub> hub_;
};

}  // namespace

std::shared_ptr<LoopbackHub> makeLoopbackHub(int size) {
  THESEUS_CHECK(size > 0, "a job has at least one rank");
  return std::make_shared<LoopbackHub>(size);
}

std::unique_ptr<Endpoint> makeLoopbackEndpoint(std::shared_ptr<LoopbackHub> hub,
                                               const EndpointOptions& options) {
  return LoopbackEndpoint::make(std::move(hub), options);
}

}  // namespace theseus::transport
