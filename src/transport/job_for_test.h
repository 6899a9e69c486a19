// Jobs of endpoints in one process, and the traffic that the tests of all transports drive over them. Tests
// only.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/endpoint.h"

namespace theseus::transport::testing {

using Job = std::vector<std::unique_ptr<Endpoint>>;

/// All ranks of a job over "loopback", "shm" or "tcp" on this host, addresses exchanged. `secret` is the same
/// for all.
Job makeJob(const std::string& transport, int size);
Result<std::unique_ptr<Endpoint>> makeEndpoint(const std::string& transport, const EndpointOptions& options);
/// Unique within the machine for as long as the process lives.
std::string freshJobName();
void exchangeAddresses(Job& job);

/// Runs body(rank) on a thread for each rank and joins them.
void onEveryRank(int size, const std::function<void(int)>& body);

/// The payload number `index` from `from` to `to`.
std::vector<std::byte> pattern(Rank from, Rank to, std::uint64_t index, std::size_t bytes);

/// Checks order and content of what arrives, and parks a segment now and then.
class CheckingHandler final : public InboundHandler {
 public:
  CheckingHandler(Rank self, int size, std::uint64_t seed, double parkChance)
      : self_(self),
        random_(seed),
        parkChance_(parkChance),
        next_(static_cast<std::size_t>(size)),
        payloads_(static_cast<std::size_t>(size)) {}
  Result<Placement> onHeader(Rank from, const SegmentHeader& header) override;
  Status onDelivered(Rank from, const SegmentHeader& header) override;

  std::uint64_t received(Rank from) const { return next_[static_cast<std::size_t>(from)]; }
  std::uint64_t receivedInAll() const;
  std::uint64_t parked() const { return parked_; }

 private:
  Rank self_;
  base::Random random_;
  double parkChance_;
  std::uint64_t parked_ = 0;
  std::vector<std::uint64_t> next_;
  std::vector<std::vector<std::byte>> payloads_;
};

/// Delivers every payload into the same memory and counts.
class CountingHandler final : public InboundHandler {
 public:
  CountingHandler() : memory_(kSegmentBytesMax) {}
  Result<Placement> onHeader(Rank, const SegmentHeader&) override {
    return Placement{.later = park, .destination = memory_.data()};
  }
  Status onDelivered(Rank, const SegmentHeader& header) override {
    ++segments;
    bytes += header.bytes;
    return {};
  }
  bool park = false;
  std::uint64_t segments = 0;
  std::uint64_t bytes = 0;

 private:
  std::vector<std::byte> memory_;
};

/// Drives `endpoint` until `done` or for at most `limit`; false if time ran out or an error came (kept in
/// `failure`).
struct Drive {
  Endpoint& endpoint;
  InboundHandler& handler;
  base::Nanoseconds limit = std::chrono::seconds(30);
  Error failure;
  bool until(const std::function<bool()>& done);
};

/// Puts one segment, driving progress until there is room.
bool putAll(Drive& drive, Channel& channel, const SegmentHeader& header, const std::byte* payload);

}  // namespace theseus::transport::testing
