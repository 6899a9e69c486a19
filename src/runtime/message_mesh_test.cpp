#include "runtime/message_mesh.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <map>

#include "runtime/bootstrap_fixture_for_test.h"
#include "runtime/bootstrap_stream.h"
#include "runtime/hello.h"
#include "runtime/local_job.h"

namespace theseus::runtime {
namespace {

using namespace std::chrono_literals;
using namespace testing;
using Clock = std::chrono::steady_clock;

/// Both implementations must behave alike.
class Mesh : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<std::unique_ptr<MessageMesh>> make(int size, std::chrono::milliseconds timeout = 20s) {
    std::vector<std::unique_ptr<MessageMesh>> meshes;
    std::vector<std::string> addresses;
    job_ = makeLocalJob(size);
    for (int rank = 0; rank < size; ++rank) {
      if (std::string(GetParam()) == "local") {
        meshes.push_back(makeLocalMesh(job_, rank));
      } else {
        CommunicatorOptions options = jobOptions(size, 29500, timeout);
        options.rank = rank;
        auto mesh = makeTcpMesh(options);
        EXPECT_TRUE(mesh) << mesh.error().message;
        meshes.push_back(std::move(*mesh));
      }
      addresses.push_back(meshes.back()->address());
    }
    for (auto& mesh : meshes) {
      const Status set = mesh->setPeers(addresses);
      EXPECT_TRUE(set) << set.error().message;
    }
    return meshes;
  }

 private:
  std::shared_ptr<LocalJob> job_;
};

void ignore(Rank, std::string_view) {}

TEST_P(Mesh, AllToAllArrivesOnceAndInOrder) {
  constexpr int kSize = 8;
  constexpr int kMessages = 200;
  auto meshes = make(kSize);
  std::atomic<int> done{0};
  onThreads(kSize, [&](int rank) {
    MessageMesh& mesh = *meshes[static_cast<std::size_t>(rank)];
    std::vector<int> next(kSize, 0);
    int received = 0;
    const auto deadline = Clock::now() + 60s;
    for (int number = 0; number < kMessages; ++number) {
      for (int to = 0; to < kSize; ++to) {
        ASSERT_TRUE(mesh.send(to, std::to_string(rank) + ":" + std::to_string(number) +
                                      std::string(static_cast<std::size_t>(number), '.')));
      }
    }
    while (received < kSize * kMessages && Clock::now() < deadline) {
      mesh.poll(100ms, [&](Rank from, std::string_view message) {
        int& number = next[static_cast<std::size_t>(from)];
        EXPECT_EQ(message, std::to_string(from) + ":" + std::to_string(number) +
                               std::string(static_cast<std::size_t>(number), '.'));
        ++number;
        ++received;
      });
    }
    EXPECT_EQ(received, kSize * kMessages);
    ++done;
    while (done < kSize && Clock::now() < deadline)
      mesh.poll(5ms, [](Rank, std::string_view) { ADD_FAILURE() << "too many"; });
  });
}

TEST_P(Mesh, LargeMessagesCrossAndTooLargeOnesAreRefused) {
  auto meshes = make(2);
  std::string large(20u << 20, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 2654435761u >> 13);
  onThreads(2, [&](int rank) {
    MessageMesh& mesh = *meshes[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(mesh.send(1 - rank, large));  // both at once: neither may wait for the other to read
    ASSERT_TRUE(mesh.send(1 - rank, ""));
    std::vector<std::string> got;
    const auto deadline = Clock::now() + 60s;
    while (got.size() < 2 && Clock::now() < deadline) {
      mesh.poll(100ms, [&](Rank, std::string_view message) { got.emplace_back(message); });
    }
    ASSERT_EQ(got.size(), 2u);
    EXPECT_TRUE(got[0] == large);
    EXPECT_TRUE(got[1].empty());
  });
  EXPECT_FALSE(meshes[0]->send(1, std::string(kMessageBytesMax + 1, 'x')));
  EXPECT_FALSE(meshes[0]->send(2, "nobody"));
  EXPECT_FALSE(meshes[0]->send(-1, "nobody"));
}

TEST_P(Mesh, AMessageToOneselfComesWithTheNextPoll) {
  auto meshes = make(1);
  int polls = 0;
  ASSERT_TRUE(meshes[0]->send(0, "first"));
  std::vector<std::string> got;
  while (got.size() < 3 && polls < 10) {
    ++polls;
    meshes[0]->poll(10s,
                    [&](Rank from, std::string_view message) {  // must not sleep: something is to be done
                      EXPECT_EQ(from, 0);
                      got.emplace_back(message);
                      if (got.size() < 3) {
                        EXPECT_TRUE(meshes[0]->send(0, "again"));
                      }
                    });
  }
  EXPECT_EQ(got, (std::vector<std::string>{"first", "again", "again"}));
  EXPECT_EQ(polls, 3);
}

TEST_P(Mesh, WakeEndsASleepAndIsNotLost) {
  auto meshes = make(1);
  const auto begin = Clock::now();
  meshes[0]->wake();  // before the sleep
  meshes[0]->poll(30s, ignore);
  std::thread waker([&] { meshes[0]->wake(); });
  meshes[0]->poll(30s, ignore);
  waker.join();
  EXPECT_LT(Clock::now() - begin, 20s);
}

TEST_P(Mesh, LeavingInGoodOrderLosesNothingAndBreaksNothing) {
  auto meshes = make(2);
  std::vector<std::string> got;
  int left = 0, broken = 0;
  meshes[0]->onLeft = [&](Rank peer) {
    EXPECT_EQ(peer, 1);
    ++left;
  };
  meshes[0]->onBroken = [&](Rank, const std::string& why) {
    ++broken;
    ADD_FAILURE() << why;
  };
  const auto pump = [&] {
    meshes[0]->poll(5ms, [&](Rank, std::string_view message) { got.emplace_back(message); });
    if (meshes[1]) meshes[1]->poll(5ms, ignore);
  };
  ASSERT_TRUE(meshes[0]->send(1, "to the one that leaves"));  // connections in both directions
  ASSERT_TRUE(meshes[1]->send(0, "hello"));
  const auto deadline = Clock::now() + 20s;
  while (got.empty() && Clock::now() < deadline) pump();
  ASSERT_TRUE(meshes[1]->send(0, "last words"));
  meshes[1].reset();
  while (left == 0 && Clock::now() < deadline) pump();
  EXPECT_EQ(got, (std::vector<std::string>{"hello", "last words"}));
  EXPECT_EQ(left, 1);
  EXPECT_TRUE(meshes[0]->send(1, "thrown away"));
  for (int i = 0; i < 3; ++i) pump();
  EXPECT_EQ(left, 1);
  EXPECT_EQ(broken, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Mesh, ::testing::Values("tcp", "local"));

/// A peer with the secret that is driven byte by byte.
struct HandmadePeer {
  std::unique_ptr<FramedStream> stream;

  HandmadePeer(const std::string& address, Rank rank, const std::string& secret,
               const std::function<void()>& pump) {
    const auto target = parseEndpointText(address);
    stream = std::make_unique<FramedStream>(connectBlocking(target->port()), kMessageBytesMax);
    Hello hello(Hello::Side::kConnector, {HelloPurpose::kMessages, rank, 2, 29500}, secret);
    const auto deadline = Clock::now() + 20s;
    while (!hello.done() && Clock::now() < deadline) {
      stream->queueRaw(hello.takeOutput());
      if (!stream->flush()) return;
      pump();
      auto filled = stream->fill();
      if (!hello.feed(stream->raw()) || !filled || !*filled) return;
    }
    done = hello.done();
  }
  bool done = false;
};

struct TcpPair {
  std::unique_ptr<MessageMesh> mesh;
  std::vector<std::string> broken;
  std::vector<std::string> got;

  explicit TcpPair(const std::string& peerAddress = "127.0.0.1:9", std::chrono::milliseconds timeout = 20s) {
    auto made = makeTcpMesh(jobOptions(2, 29500, timeout));
    mesh = std::move(*made);
    EXPECT_TRUE(mesh->setPeers({mesh->address(), peerAddress}));
    mesh->onBroken = [this](Rank, const std::string& why) { broken.push_back(why); };
  }
  void pump() {
    mesh->poll(2ms, [this](Rank, std::string_view message) { got.emplace_back(message); });
  }
};

TEST(TcpMesh, APeerThatDiesIsReportedOnceAndItsLastMessageArrives) {
  TcpPair pair;
  HandmadePeer peer(pair.mesh->address(), 1, "sesame", [&] { pair.pump(); });
  ASSERT_TRUE(peer.done);
  peer.stream->queueFrame(1, "last");
  ASSERT_TRUE(peer.stream->flush());
  peer.stream.reset();  // no goodbye
  const auto deadline = Clock::now() + 20s;
  while (pair.broken.empty() && Clock::now() < deadline) pair.pump();
  for (int i = 0; i < 3; ++i) pair.pump();
  EXPECT_EQ(pair.got, std::vector<std::string>{"last"});
  ASSERT_EQ(pair.broken.size(), 1u);
  EXPECT_NE(pair.broken[0].find("rank 1"), std::string::npos);
  EXPECT_FALSE(pair.mesh->send(1, "x"));
}

TEST(TcpMesh, APeerThatAnnouncesTooMuchIsBroken) {
  TcpPair pair;
  HandmadePeer peer(pair.mesh->address(), 1, "sesame", [&] { pair.pump(); });
  ASSERT_TRUE(peer.done);
  peer.stream->queueRaw(std::string("\xff\xff\xff\xff\x01", 5));
  ASSERT_TRUE(peer.stream->flush());
  const auto deadline = Clock::now() + 20s;
  while (pair.broken.empty() && Clock::now() < deadline) pair.pump();
  ASSERT_EQ(pair.broken.size(), 1u);
  EXPECT_NE(pair.broken[0].find("4294967295"), std::string::npos);
}

TEST(TcpMesh, StrangersAreDroppedAndNothingBreaks) {
  TcpPair pair;
  HandmadePeer wrong(pair.mesh->address(), 1, "guess", [&] { pair.pump(); });
  EXPECT_FALSE(wrong.done);
  const int port = parseEndpointText(pair.mesh->address())->port();
  Descriptor http = connectBlocking(port);
  sendText(http, "GET / HTTP/1.0\r\n\r\n");
  Descriptor silent = connectBlocking(port);
  HandmadePeer right(pair.mesh->address(), 1, "sesame", [&] { pair.pump(); });
  EXPECT_TRUE(right.done);
  HandmadePeer second(pair.mesh->address(), 1, "sesame", [&] { pair.pump(); });  // the number is taken
  right.stream->queueFrame(1, "still here");
  ASSERT_TRUE(right.stream->flush());
  const auto deadline = Clock::now() + 20s;
  while (pair.got.empty() && Clock::now() < deadline) pair.pump();
  EXPECT_EQ(pair.got, std::vector<std::string>{"still here"});
  EXPECT_TRUE(pair.broken.empty());
  char byte;
  EXPECT_EQ(::recv(http.get(), &byte, 1, 0), 0);  // was closed, without an answer
}

TEST(TcpMesh, AnUnreachablePeerIsBrokenAfterTheTimeout) {
  const int nobody = freePortRange(1);
  TcpPair pair("127.0.0.1:" + std::to_string(nobody), 300ms);
  ASSERT_TRUE(pair.mesh->send(1, "x"));
  const auto deadline = Clock::now() + 20s;
  while (pair.broken.empty() && Clock::now() < deadline) pair.pump();
  ASSERT_EQ(pair.broken.size(), 1u);
  EXPECT_NE(pair.broken[0].find("cannot be reached"), std::string::npos) << pair.broken[0];
}

TEST(TcpMesh, QueuesAreBounded) {
  TcpPair pair;
  const std::string large(kMessageBytesMax, 'x');
  int accepted = 0;
  while (accepted < 100 && pair.mesh->send(1, large)) ++accepted;
  EXPECT_GE(accepted, 2);
  EXPECT_LT(accepted, 10);
}

TEST(TcpMesh, AddressesAreChecked) {
  auto mesh = makeTcpMesh(jobOptions(2, 29500));
  ASSERT_TRUE(mesh);
  EXPECT_FALSE((*mesh)->setPeers({"127.0.0.1:1"}));
  EXPECT_FALSE((*mesh)->setPeers({"127.0.0.1:1", "nonsense"}));
  EXPECT_FALSE((*mesh)->send(1, "x"));  // before setPeers has succeeded
}

}  // namespace
}  // namespace theseus::runtime
