// Schedules on the host executor, ranks as threads over every transport, against what the collective means.
#include "runtime/data_plane.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include <unistd.h>

#include "base/reduce.h"
#include "exec/reference/reference_executor.h"
#include "schedule/case_files_for_test.h"
#include "schedule/json.h"
#include "schedule/verify/verify.h"
#include "schedule/xml.h"
#include "synth/generators.h"

namespace theseus::runtime {
namespace {

using schedule::Schedule;
using Buffers = std::vector<std::vector<std::byte>>;

/// Endpoints of all ranks over one transport; made once, used for many collectives.
class Team {
 public:
  Team(const std::string& transport, int size) : planes_(static_cast<std::size_t>(size)) {
    auto hub = transport::makeLoopbackHub(size);
    std::vector<std::unique_ptr<transport::Endpoint>> endpoints;
    std::vector<std::string> addresses;
    static std::atomic<int> jobs{0};
    const std::string job =
        "data-plane-test-" + std::to_string(getpid()) + "-" + std::to_string(jobs.fetch_add(1));
    for (Rank rank = 0; rank < size; ++rank) {
      const transport::EndpointOptions options{rank, size, "secret", job};
      if (transport == "loopback") {
        endpoints.push_back(transport::makeLoopbackEndpoint(hub, options));
      } else {
        auto made = transport == "shm" ? transport::makeShmEndpoint(options)
                                       : transport::makeTcpEndpoint(options, {"127.0.0.1", "127.0.0.1"});
        EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
        endpoints.push_back(std::move(*made));
      }
      addresses.push_back(endpoints.back()->address());
    }
    for (Rank rank = 0; rank < size; ++rank) {
      EXPECT_TRUE(endpoints[static_cast<std::size_t>(rank)]->setPeers(addresses).has_value());
      planes_[static_cast<std::size_t>(rank)] =
          std::make_unique<DataPlane>(DataPlaneOptions{rank, size, std::chrono::seconds(20)},
                                      std::move(endpoints[static_cast<std::size_t>(rank)]));
    }
  }

  int size() const { return static_cast<int>(planes_.size()); }
  DataPlane& plane(Rank rank) { return *planes_[static_cast<std::size_t>(rank)]; }

  /// Runs `body` on a thread for each rank; returns the first error.
  Status onAll(const std::function<Status(Rank)>& body) {
    std::vector<Status> results(planes_.size());
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] { results[static_cast<std::size_t>(rank)] = body(rank); });
    }
    for (auto& thread : threads) thread.join();
    for (auto& result : results) {
      if (!result) return result;
    }
    return {};
  }

 private:
  std::vector<std::unique_ptr<DataPlane>> planes_;
};

struct Case {
  Collective collective;
  std::uint64_t count;
  DataType type = DataType::kInt32;
  ReduceOp op = ReduceOp::kSum;
  bool inPlace = false;
};

Buffers makeInputs(const Case& test, int ranks) {
  const auto size = schedule::messageSize(test.collective, ranks, test.count,
                                          static_cast<std::uint32_t>(dataTypeBytes(test.type)));
  Buffers inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::byte> bytes(size.inputBytes);
    // Small whole numbers: every order of summation gives the same bits in every type used here.
    for (std::uint64_t i = 0; i < size.inputBytes / dataTypeBytes(test.type); ++i) {
      const int value = static_cast<int>((i * 31 + static_cast<std::uint64_t>(rank) * 17) % 13);
      if (test.type == DataType::kFloat32) {
        const float typed = static_cast<float>(value);
        std::memcpy(bytes.data() + i * 4, &typed, 4);
      } else {
        std::memcpy(bytes.data() + i * 4, &value, 4);
      }
    }
    inputs.push_back(std::move(bytes));
  }
  return inputs;
}

/// Runs `schedule` on `team` and compares every rank's output with the meaning of the collective.
void checkRun(Team& team, std::vector<std::unique_ptr<resource::ScheduleNode>>& nodes, const Case& test,
              SequenceNumber sequence) {
  const Buffers inputs = makeInputs(test, team.size());
  exec::ReferenceRun run{test.type, test.op, test.count, test.inPlace, 1};
  const Buffers expected = exec::expectedResult(test.collective, 0, run, inputs);
  Buffers outputs(inputs.size());
  Buffers sources = inputs;
  auto done = team.onAll([&](Rank rank) -> Status {
    const auto index = static_cast<std::size_t>(rank);
    outputs[index].assign(expected[index].size(), std::byte{0xA5});
    CollectiveRequest request{
        test.collective, sources[index].data(), outputs[index].data(), test.count, test.type, test.op, 0};
    const bool gathers = outputs[index].size() >= inputs[index].size();
    if (test.inPlace && gathers) {
      const std::size_t offset = test.collective == Collective::kAllGather ? inputs[index].size() * index : 0;
      std::copy(inputs[index].begin(), inputs[index].end(),
                outputs[index].begin() + static_cast<std::ptrdiff_t>(offset));
      request.source = outputs[index].data() + offset;
    } else if (test.inPlace) {
      request.destination = sources[index].data() + outputs[index].size() * index;
    }
    auto result = team.plane(rank).run(request, sequence, *nodes[index]);
    if (result && test.inPlace && !gathers)
      std::memcpy(outputs[index].data(), request.destination, outputs[index].size());
    return result;
  });
  ASSERT_TRUE(done.has_value()) << done.error().message;
  // A reduce defines the root's output alone.
  const std::size_t defined = test.collective == Collective::kReduce ? 1 : outputs.size();
  for (std::size_t rank = 0; rank < defined; ++rank) {
    ASSERT_EQ(outputs[rank], expected[rank])
        << "rank " << rank << " count " << test.count << " in place " << test.inPlace;
  }
  if (test.inPlace) return;
  for (std::size_t rank = 0; rank < sources.size(); ++rank)
    ASSERT_EQ(sources[rank], inputs[rank]) << "the input was changed";
}

std::vector<std::unique_ptr<resource::ScheduleNode>> nodesFor(const Schedule& schedule,
                                                              bool tailSynchronized) {
  auto shared = std::make_shared<const Schedule>(schedule);
  std::vector<std::unique_ptr<resource::ScheduleNode>> nodes;
  for (Rank rank = 0; rank < shared->rankCount(); ++rank) {
    nodes.push_back(std::make_unique<resource::ScheduleNode>(schedule.name, shared, rank, tailSynchronized));
  }
  return nodes;
}

class OverTransport : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, OverTransport, testing::Values("loopback", "shm", "tcp"));

TEST_P(OverTransport, EveryAutomaticGeneratorAndStragglerAware) {
  for (int ranks : {2, 3, 5, 8}) {
    Team team(GetParam(), ranks);
    SequenceNumber sequence = 0;
    for (const synth::GeneratorInfo& info : synth::generators()) {
      if (ranks < info.minRanks) continue;
      for (Collective collective : info.collectives) {
        auto schedule = synth::generate({info.name, collective, ranks, {}});
        ASSERT_TRUE(schedule.has_value()) << info.name << ": " << schedule.error().message;
        auto nodes = nodesFor(*schedule, true);
        for (std::uint64_t count : {1, 2, 17, 1024, 100003}) {
          for (bool inPlace : {false, true}) {
            if (inPlace && collective == Collective::kAllToAll) continue;
            SCOPED_TRACE(info.name + " " + std::string(name(collective)) + " on " + std::to_string(ranks));
            checkRun(team, nodes, {collective, count, DataType::kInt32, ReduceOp::kSum, inPlace}, sequence++);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

/// Plans written by others' tools, with whatever the verifier says about their tails.
void runPlan(const std::filesystem::path& file, const std::string& transport) {
  SCOPED_TRACE(file.filename().string());
  auto schedule = schedule::readAny(schedule::testing::readFile(file));
  ASSERT_TRUE(schedule.has_value()) << schedule.error().message;
  const schedule::Verdict verdict = schedule::verify(*schedule);
  const bool known =
      schedule->collective() != Collective::kCustom && schedule->collective() != Collective::kSendRecv;
  if (!verdict.valid() || verdict.usesSwitch || !known) {
    std::printf(
        "[ not run  ] %s: %s\n", file.filename().c_str(),
        verdict.valid() ? "switch channels or no known collective" : toString(verdict.findings[0]).c_str());
    return;
  }
  Team team(transport, schedule->rankCount());
  auto nodes = nodesFor(*schedule, verdict.tailSynchronized);
  SequenceNumber sequence = 0;
  const auto ranks = static_cast<std::uint64_t>(schedule->rankCount());
  for (std::uint64_t bytes : {8u, 120u, 4096u, 65536u, 1000004u, 4194304u}) {
    const bool whole = schedule->collective() == Collective::kAllReduce;
    const std::uint64_t count = std::max<std::uint64_t>(1, bytes / 4 / (whole ? 1 : ranks));
    const auto size = schedule::messageSize(schedule->collective(), schedule->rankCount(), count, 4);
    const std::uint64_t total = std::max(size.inputBytes, size.outputBytes);
    if (total < schedule->minMessageBytes || total > schedule->maxMessageBytes) continue;
    for (bool inPlace : {false, true}) {
      if (inPlace && schedule->collective() == Collective::kAllToAll) continue;
      checkRun(team, nodes, {schedule->collective(), count, DataType::kFloat32, ReduceOp::kSum, inPlace},
               sequence++);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST_P(OverTransport, PlansOfOtherTools) {
  THESEUS_SKIP_WITHOUT_CASES();
  for (const auto& file : schedule::testing::caseFiles("mscclpp", ".json")) runPlan(file, GetParam());
  for (const auto& file : schedule::testing::caseFiles("msccl-xml", ".xml")) runPlan(file, GetParam());
}

TEST_P(OverTransport, RanksThatCallDifferentThingsGetAnErrorNamingBoth) {
  Team team(GetParam(), 2);
  auto schedule = synth::generate({"ring", Collective::kAllReduce, 2, {}});
  ASSERT_TRUE(schedule.has_value()) << schedule.error().message;
  auto nodes = nodesFor(*schedule, true);
  std::vector<Error> errors(2);
  auto done = team.onAll([&](Rank rank) -> Status {
    std::vector<std::int32_t> data(1000), result(1000);
    CollectiveRequest request{Collective::kAllReduce,
                              data.data(),
                              result.data(),
                              rank == 0 ? 1000u : 900u,
                              DataType::kInt32,
                              ReduceOp::kSum,
                              0};
    auto status = team.plane(rank).run(request, 0, *nodes[static_cast<std::size_t>(rank)]);
    if (!status) errors[static_cast<std::size_t>(rank)] = status.error();
    // Whoever notices tells the other, as the control plane does in a job.
    if (!status && status.error().code == ErrorCode::kMismatch)
      team.plane(1 - rank).interrupt(status.error());
    return status;
  });
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, ErrorCode::kMismatch) << done.error().message;
  const std::string& message = done.error().message;
  EXPECT_NE(message.find("count 1000"), std::string::npos) << message;
  EXPECT_NE(message.find("count 900"), std::string::npos) << message;
}

TEST_P(OverTransport, AnInterruptionEndsAWait) {
  auto schedule = synth::generate({"ring", Collective::kAllReduce, 2, {}});
  ASSERT_TRUE(schedule.has_value());
  auto nodes = nodesFor(*schedule, true);
  Team team(GetParam(), 2);
  std::vector<std::int32_t> data(1000), result(1000);
  CollectiveRequest request{
      Collective::kAllReduce, data.data(), result.data(), 1000, DataType::kInt32, ReduceOp::kSum, 0};
  std::thread interrupter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    team.plane(0).interrupt({ErrorCode::kAborted, "stopped by the test"});
  });
  auto done = team.plane(0).run(request, 0, *nodes[0]);
  interrupter.join();
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().message, "stopped by the test");
}

}  // namespace
}  // namespace theseus::runtime
