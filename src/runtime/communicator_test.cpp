// Whole communicators, ranks as threads of this process: collectives, entries for all ranks, swaps while
// calls go on, errors.
#include "theseus/communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "schedule/json.h"
#include "synth/generators.h"

namespace theseus {
namespace {

using nlohmann::json;

/// Runs `body` on a thread for each rank of a job; collects errors.
void onRanks(int size, const std::string& transport, const std::function<Status(Communicator&)>& body) {
  auto job = makeLocalJob(size);
  std::mutex mutex;
  std::vector<std::string> errors;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorOptions options;
      options.rank = rank;
      options.size = size;
      options.local = job;
      options.transport = transport;
      options.bindAddress = "127.0.0.1";
      options.timeout = std::chrono::seconds(20);
      options.ctl = false;
      auto communicator = Communicator::create(options);
      Status done;
      if (communicator) done = body(**communicator);
      if (communicator && done) return;
      std::scoped_lock lock(mutex);
      errors.push_back("rank " + std::to_string(rank) + ": " +
                       (communicator ? done.error().message : communicator.error().message));
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) ADD_FAILURE() << error;
}

Status checkAllReduce(Communicator& communicator, std::size_t count) {
  std::vector<std::int64_t> source(count), destination(count, -1);
  for (std::size_t i = 0; i < count; ++i)
    source[i] = communicator.rank() * 1000 + static_cast<std::int64_t>(i);
  THESEUS_TRY(
      communicator.allReduce(source.data(), destination.data(), count, {DataType::kInt64, ReduceOp::kSum}));
  const std::int64_t n = communicator.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (destination[i] != n * (n - 1) / 2 * 1000 + n * static_cast<std::int64_t>(i)) {
      return fail(ErrorCode::kMismatch,
                  "wrong element " + std::to_string(i) + " under " + communicator.lastCall().schedule);
    }
  }
  return {};
}

class CommunicatorOver : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, CommunicatorOver, testing::Values("loopback", "shm", "tcp"));

TEST_P(CommunicatorOver, AllCollectives) {
  for (int size : {1, 2, 3, 8}) {
    onRanks(size, GetParam(), [](Communicator& communicator) -> Status {
      const int rank = communicator.rank();
      const int n = communicator.size();
      for (std::size_t count : {0, 1, 5, 1000}) {
        THESEUS_TRY(checkAllReduce(communicator, count));
        const auto total = count * static_cast<std::size_t>(n);
        std::vector<std::int32_t> mine(count, rank), all(total, -1), spread(total), received(total, -1);
        THESEUS_TRY(communicator.allGather(mine.data(), all.data(), count, DataType::kInt32));
        for (std::size_t i = 0; i < total; ++i) {
          if (all[i] != static_cast<std::int32_t>(i / count))
            return fail(ErrorCode::kMismatch, "wrong allGather");
        }
        for (std::size_t i = 0; i < total; ++i) spread[i] = rank * 100 + static_cast<std::int32_t>(i / count);
        THESEUS_TRY(communicator.allToAll(spread.data(), received.data(), count, DataType::kInt32));
        for (std::size_t i = 0; i < total; ++i) {
          if (received[i] != static_cast<std::int32_t>(i / count) * 100 + rank)
            return fail(ErrorCode::kMismatch, "wrong allToAll");
        }
        std::vector<std::int32_t> part(count, -1);
        THESEUS_TRY(communicator.reduceScatter(spread.data(), part.data(), count,
                                               {DataType::kInt32, ReduceOp::kMax}));
        for (std::int32_t value : part) {
          if (value != (n - 1) * 100 + rank) return fail(ErrorCode::kMismatch, "wrong reduceScatter");
        }
        for (int root = 0; root < n; ++root) {
          std::vector<std::int32_t> message(count, rank == root ? 77 + root : 0);
          THESEUS_TRY(communicator.broadcast(rank == root ? message.data() : nullptr, message.data(), count,
                                             {DataType::kInt32, root}));
          for (std::int32_t value : message) {
            if (value != 77 + root) return fail(ErrorCode::kMismatch, "wrong broadcast");
          }
        }
        THESEUS_TRY(communicator.barrier());
      }
      return {};
    });
  }
}

TEST_P(CommunicatorOver, ForcedSwapsWhileCallsGoOn) {
  std::atomic<int> changes{0};
  onRanks(5, GetParam(), [&](Communicator& communicator) -> Status {
    const std::vector<std::string> schedules = {"ring", "all_pairs", "halving_doubling", "binary_tree"};
    base::Random random(11);
    std::string before;
    for (int i = 0; i < 300; ++i) {
      if (i % 15 == 0 && i / 15 % communicator.size() == communicator.rank()) {
        THESEUS_TRY(communicator.swap(Collective::kAllReduce,
                                      schedules[static_cast<std::size_t>(i / 15) % schedules.size()]));
      }
      THESEUS_TRY(checkAllReduce(communicator, 1 + random.below(3000)));
      const CallReport report = communicator.lastCall();
      if (communicator.rank() == 0 && !before.empty() && report.schedule != before) ++changes;
      before = report.schedule;
    }
    return {};
  });
  EXPECT_GE(changes.load(), 4);
}

/// Calls until this rank runs `schedule`; every rank stops after the same call, since the switch point is
/// agreed.
Status callUntil(Communicator& communicator, const std::string& schedule) {
  for (int i = 0; i < 5000; ++i) {
    THESEUS_TRY(checkAllReduce(communicator, 100));
    if (communicator.lastCall().schedule == schedule) return {};
  }
  return fail(ErrorCode::kTimeout,
              "never ran " + schedule + ": " + communicator.explainJson(Collective::kAllReduce, 800));
}

TEST(Communicator, NewScheduleFromAPlanIsAgreedUsedAndDropped) {
  auto schedule = synth::generate({"ring", Collective::kAllReduce, 3, {}});
  ASSERT_TRUE(schedule.has_value());
  schedule->name = "from_a_file";
  const std::string plan = schedule::writeJson(*schedule);
  onRanks(3, "loopback", [&](Communicator& communicator) -> Status {
    if (communicator.rank() == 1) {
      auto added = communicator.newSched(plan);
      if (!added) return fail(added.error());
      // Usable once every rank has it; until then the name is unknown or not ready, and the choice waits for
      // it.
      Status chosen = communicator.swap(Collective::kAllReduce, *added);
      for (int i = 0; i < 200 && !chosen; ++i) {
        std::this_thread::sleep_for(
            std::chrono::milliseconds(5));  // a bounded poll for the round that orders the entry
        chosen = communicator.swap(Collective::kAllReduce, *added);
      }
      THESEUS_TRY(chosen);
    }
    THESEUS_TRY(callUntil(communicator, "from_a_file"));
    THESEUS_TRY(communicator.barrier());
    if (communicator.rank() == 2) THESEUS_TRY(communicator.dropSched("from_a_file"));
    for (int i = 0; i < 5000; ++i) {
      THESEUS_TRY(checkAllReduce(communicator, 100));
      if (communicator.lastCall().schedule != "from_a_file") return {};
    }
    return fail(ErrorCode::kTimeout, "a dropped schedule stays in use");
  });
}

TEST(Communicator, BadInputIsRefusedAtTheDoor) {
  onRanks(2, "loopback", [&](Communicator& communicator) -> Status {
    const auto mustFail = [](const auto& result, const char* what) -> Status {
      return result ? fail(ErrorCode::kMismatch, std::string("accepted: ") + what) : Status{};
    };
    THESEUS_TRY(mustFail(communicator.newSched("{\"name\": "), "truncated JSON"));
    THESEUS_TRY(mustFail(communicator.newSched(std::string(1'000'000, '[')), "deep nesting"));
    THESEUS_TRY(mustFail(communicator.newSched(R"({"generator":"ring","collective":"allreduce","ranks":7})"),
                         "another rank count"));
    THESEUS_TRY(mustFail(communicator.newSched(R"({"generator":"ring","collective":"allreduce","ranks":-2})"),
                         "negative ranks"));
    THESEUS_TRY(mustFail(communicator.swap(Collective::kAllReduce, "no_such_schedule"), "unknown schedule"));
    THESEUS_TRY(mustFail(communicator.setExo("", "1"), "empty attribute name"));
    THESEUS_TRY(mustFail(communicator.allReduce(nullptr, nullptr, 4, {}), "null buffers"));
    THESEUS_TRY(
        mustFail(communicator.broadcast(nullptr, nullptr, 0, {DataType::kInt8, 9}), "root out of range"));
    return checkAllReduce(communicator, 10);  // and the communicator still works
  });
}

TEST(Communicator, AttributesAndStatusAreSeenByAll) {
  onRanks(3, "loopback", [&](Communicator& communicator) -> Status {
    if (communicator.rank() == 0) THESEUS_TRY(communicator.setExo("phase", "training"));
    THESEUS_TRY(communicator.newAttr("queue_depth", AttributeJoin::kMax,
                                     [rank = communicator.rank()] { return rank * 10.0; }));
    for (int i = 0; i < 400; ++i) {
      const json status = json::parse(communicator.statusJson());
      const bool entries = status.at("log_entries").get<int>() >= 2;
      const auto& attributes = status.at("attributes");
      if (entries && attributes.contains("queue_depth") && attributes["queue_depth"][0] == 20.0) break;
      if (i == 399) return fail(ErrorCode::kTimeout, status.dump());
      // Samplers run on a slow tick; setExo starts the rounds that carry them.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (communicator.rank() == 0) THESEUS_TRY(communicator.setExo("tick", std::to_string(i)));
    }
    return communicator.barrier();
  });
}

TEST(Communicator, DifferentCallsAreAnErrorOnEveryRank) {
  std::atomic<int> failures{0};
  auto job = makeLocalJob(3);
  std::vector<std::thread> threads;
  std::vector<std::string> messages(3);
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorOptions options;
      options.rank = rank;
      options.size = 3;
      options.local = job;
      options.ctl = false;
      options.timeout = std::chrono::seconds(10);
      auto communicator = Communicator::create(options);
      ASSERT_TRUE(communicator.has_value());
      std::vector<float> data(64), result(192);
      Status status = rank == 1
                          ? (*communicator)->allGather(data.data(), result.data(), 64, DataType::kFloat32)
                          : (*communicator)->allReduce(data.data(), result.data(), 64, {});
      if (!status) {
        ++failures;
        messages[static_cast<std::size_t>(rank)] = status.error().message;
      }
      EXPECT_FALSE((*communicator)->barrier().has_value()) << "a broken communicator stays broken";
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 3);
  for (const auto& message : messages) {
    EXPECT_NE(message.find("allreduce"), std::string::npos) << message;
    EXPECT_NE(message.find("allgather"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace theseus
