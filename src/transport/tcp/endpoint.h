// tcp: one listener, one epoll, one one-way connection for each direction that is used, no thread. Owned by
// the communicator; one thread drives it, wake() may come from any.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "drivers/posix/poller.h"
#include "drivers/posix/socket.h"
#include "transport/endpoint.h"
#include "transport/greeting.h"
#include "transport/link_meter.h"
#include "transport/tcp/channel.h"
#include "transport/tcp/stream.h"
#include "transport/token_bucket.h"

namespace theseus::transport {

class TcpEndpoint final : public Endpoint {
 public:
  struct Parts {
    EndpointOptions options;
    std::string address;
    drivers::Poller poller;
    drivers::EventCounter waker;
    Admission admission;
  };
  static Result<std::unique_ptr<Endpoint>> make(const EndpointOptions& options, const TcpOptions& tcp);
  explicit TcpEndpoint(Parts parts);

  const Capabilities& capabilities() const override { return capabilities_; }
  std::string address() const override { return address_; }
  Status setPeers(std::vector<std::string> addresses) override;
  Result<Channel*> connect(Rank peer) override;
  Result<bool> progress(InboundHandler& handler) override;
  void resume() override;
  void wait(base::Nanoseconds timeout) override;
  void wake() override;
  LinkSample takeLinkSample() override { return meter_.take(); }
  Status emulateLinkRate(double bytesPerSecond) override;

 private:
  void dispatch(std::span<const drivers::PollEvent> events);
  Result<bool> admitAndConnect(base::TimePoint now);
  Result<bool> sendQueued(base::TimePoint now);
  Result<bool> receiveArrived(InboundHandler& handler);
  bool canMoveNow(base::TimePoint now);
  base::Nanoseconds sleepLimit(base::TimePoint now);

  bool mayFlush(const TcpChannel& channel, base::TimePoint now);
  std::vector<FlowReading> readFlows();
  FlowReading readFlow(const TcpChannel& channel) const;
  void measureBefore(base::TimePoint now);
  void measureAfter(bool heavy);

  EndpointOptions options_;
  std::string address_;
  Capabilities capabilities_;
  drivers::Poller poller_;
  drivers::EventCounter waker_;
  Admission admission_;
  std::vector<drivers::SocketAddress> peers_;
  std::vector<std::unique_ptr<TcpChannel>> channels_;  // by peer; made at connect()
  std::vector<std::unique_ptr<TcpStream>> streams_;    // by sender; made when it is let in
  std::atomic<bool> wakeRequested_{false};
  std::size_t firstToSend_ = 0;  // takes turns, so that no peer gets all tokens of an emulated link
  int connecting_ = 0;
  Status failure_;  // sticky: a handler's error or a broken stream
  LinkMeter meter_;
  TokenBucket bucket_;
};

}  // namespace theseus::transport
