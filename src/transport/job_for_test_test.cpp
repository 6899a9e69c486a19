// The definitions behind job_for_test.h; the name puts them into the test program.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/hash.h"
#include "transport/job_for_test.h"

namespace theseus::transport::testing {

std::string freshJobName() {
  static std::atomic<int> counter{0};
  return fmt::format("test-{}-{}", ::getpid(), counter++);
}

Result<std::unique_ptr<Endpoint>> makeEndpoint(const std::string& transport, const EndpointOptions& options) {
  if (transport == "shm") return makeShmEndpoint(options);
  return makeTcpEndpoint(options, {.bindAddress = "127.0.0.1", .advertiseAddress = "127.0.0.1"});
}

void exchangeAddresses(Job& job) {
  std::vector<std::string> addresses;
  for (const auto& endpoint : job) addresses.push_back(endpoint->address());
  for (const auto& endpoint : job) {
    Status set = endpoint->setPeers(addresses);
    ASSERT_TRUE(set.has_value()) << set.error().message;
  }
}

Job makeJob(const std::string& transport, int size) {
  Job job;
  EndpointOptions options{.rank = 0, .size = size, .secret = "open sesame", .job = freshJobName()};
  auto hub = transport == "loopback" ? makeLoopbackHub(size) : nullptr;
  for (Rank rank = 0; rank < size; ++rank) {
    options.rank = rank;
    if (hub) {
      job.push_back(makeLoopbackEndpoint(hub, options));
      continue;
    }
    Result<std::unique_ptr<Endpoint>> endpoint = makeEndpoint(transport, options);
    if (!endpoint) {
      ADD_FAILURE() << endpoint.error().message;
      return {};
    }
    job.push_back(std::move(*endpoint));
  }
  exchangeAddresses(job);
  return job;
}

void onEveryRank(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::byte> pattern(Rank from, Rank to, std::uint64_t index, std::size_t bytes) {
  base::Random random(index * 1'000'003 + static_cast<std::uint64_t>(from * 1009 + to));
  std::vector<std::byte> payload(bytes);
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    if (i % 8 == 0) word = random.next();
    payload[i] = static_cast<std::byte>(word >> (8 * (i % 8)));
  }
  return payload;
}

Result<Placement> CheckingHandler::onHeader(Rank from, const SegmentHeader& header) {
  const auto at = static_cast<std::size_t>(from);
  if (header.sequence != next_[at])
    return fail(ErrorCode::kMismatch,
                fmt::format("segment {} from {} instead of {}", header.sequence, from, next_[at]));
  if (random_.chance(parkChance_)) {
    ++parked_;
    return Placement{.later = true};
  }
  payloads_[at].assign(header.bytes, std::byte{0xee});
  return Placement{.destination = payloads_[at].data()};
}

Status CheckingHandler::onDelivered(Rank from, const SegmentHeader& header) {
  const auto at = static_cast<std::size_t>(from);
  if (payloads_[at] != pattern(from, self_, header.sequence, header.bytes))
    return fail(ErrorCode::kMismatch, fmt::format("segment {} from {} is damaged", header.sequence, from));
  ++next_[at];
  return {};
}

std::uint64_t CheckingHandler::receivedInAll() const {
  std::uint64_t sum = 0;
  for (std::uint64_t count : next_) sum += count;
  return sum;
}

bool Drive::until(const std::function<bool()>& done) {
  const base::Clock& clock = base::SteadyClock::instance();
  const base::TimePoint end = clock.now() + limit;
  while (!done()) {
    if (clock.now() > end) {
      failure = {ErrorCode::kTimeout, "the test's time is over"};
      return false;
    }
    Result<bool> moved = endpoint.progress(handler);
    if (!moved) {
      failure = moved.error();
      return false;
    }
    if (!*moved) {
      endpoint.wait(std::chrono::milliseconds(1));
      endpoint.resume();
    }
  }
  return true;
}

bool putAll(Drive& drive, Channel& channel, const SegmentHeader& header, const std::byte* payload) {
  Result<bool> accepted = false;
  const bool driven = drive.until([&] {
    accepted = channel.put(header, payload);
    return !accepted || *accepted;
  });
  if (!accepted) drive.failure = accepted.error();
  return driven && accepted.has_value();
}

}  // namespace theseus::transport::testing
