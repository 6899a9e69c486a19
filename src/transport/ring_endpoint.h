// What loopback and shm have in common: an endpoint whose channels are rings in memory. They differ in how
// the rings are found. Owned by the communicator; one thread drives it, wake() may come from any.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drivers/posix/poller.h"
#include "transport/endpoint.h"
#include "transport/inbox.h"
#include "transport/ring_channel.h"

namespace theseus::transport {

class RingEndpoint : public Endpoint {
 public:
  ~RingEndpoint() override;

  const Capabilities& capabilities() const override { return capabilities_; }
  Status setPeers(std::vector<std::string> addresses) override;
  Result<Channel*> connect(Rank peer) override;
  Result<bool> progress(InboundHandler& handler) override;
  void resume() override;
  void wait(base::Nanoseconds timeout) override;
  void wake() override;
  LinkSample takeLinkSample() override;
  Status emulateLinkRate(double bytesPerSecond) override;

 protected:
  struct Parts {
    Capabilities capabilities;
    EndpointOptions options;
    drivers::Poller poller;  // watches the owner's event counter already
    InboxHeader* inbox = nullptr;
    const drivers::EventCounter* counter = nullptr;
  };
  explicit RingEndpoint(Parts parts);

  /// Attaches the channel to its peer's memory, or begins to.
  virtual Status openChannel(Rank peer) = 0;
  /// Looks at sockets and the like; called now and then. `events`: what the poller saw. Errors name the peer.
  /// True if anything moved.
  virtual Result<bool> service(std::span<const drivers::PollEvent> events) = 0;
  /// Something is under way that service() alone can finish, so call it often.
  virtual bool serviceIsUrgent() const = 0;
  /// How long a sleep may last although nothing stirs, because service() wants to look again.
  virtual base::Nanoseconds sleepLimit() const = 0;

  int size() const { return options_.size; }
  Rank rank() const { return options_.rank; }
  const EndpointOptions& options() const { return options_; }
  const std::vector<std::string>& addresses() const { return addresses_; }
  RingChannel& channel(Rank peer) { return *channels_[static_cast<std::size_t>(peer)]; }
  RingStream& stream(Rank from) { return *streams_[static_cast<std::size_t>(from)]; }
  drivers::Poller& poller() { return poller_; }
  /// Goodbye to everybody; the derived class calls it before its memory goes.
  void sayGoodbyes();

 private:
  bool somethingCanMove();
  bool awaitWithoutSleeping(base::TimePoint end);
  void sleep(base::TimePoint end);
  Result<bool> serviceNow();

  Capabilities capabilities_;
  EndpointOptions options_;
  drivers::Poller poller_;
  Doorbell doorbell_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<RingChannel>> channels_;  // by peer; made at connect()
  std::vector<std::unique_ptr<RingStream>> streams_;    // by sender
  std::atomic<bool> wakeRequested_{false};
  bool maySpin_ = false;
  unsigned turns_ = 0;
  Status failure_;                              // sticky: a handler's error or a broken stream
  std::vector<drivers::PollEvent> seenAsleep_;  // what sleep() saw, for the next service()
};

/// Checks that hold for every transport.
Status checkPeer(Rank peer, const EndpointOptions& options);
Status checkAddresses(const std::vector<std::string>& addresses, int size);

}  // namespace theseus::transport
