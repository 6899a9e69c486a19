#include "control/control_plane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>

namespace theseus::control {
namespace {

/// Chooses slot 0 where it is ready; remembers what it was asked.
class EchoTables final : public TableFunction {
 public:
  std::shared_ptr<const DispatchTable> compute(const std::vector<Entry>& entries,
                                               const Context& context) override {
    auto table = std::make_shared<DispatchTable>();
    for (auto& buckets : table->slots) buckets.fill(context.ready[0] ? 0 : -1);
    for (const Entry& entry : entries) table->schedules.push_back(entry.id.hash);
    if (diverge) table->schedules.push_back({1, 2});
    contexts.push_back(context);
    return table;
  }
  bool diverge = false;
  std::vector<Context> contexts;
};

struct Message {
  Rank from, to;
  std::string bytes;
};

class FakeHost final : public Host {
 public:
  FakeHost(Rank rank, std::deque<Message>& network) : rank_(rank), network_(network) {}
  void send(Rank to, std::string bytes) override { network_.push_back({rank_, to, std::move(bytes)}); }
  SequenceNumber promiseLimit() override {
    EXPECT_FALSE(limited);
    limited = true;
    ++promises;
    return next + slack;
  }
  void liftLimit() override {
    EXPECT_TRUE(limited);
    limited = false;
  }
  void publish(const Epoch& epoch) override {
    EXPECT_TRUE(limited) << "publish comes before lift";
    epochs.push_back(epoch);
  }
  void fail(Error error) override { errors.push_back(std::move(error)); }

  SequenceNumber next = 0, slack = 2;
  bool limited = false;
  int promises = 0;
  std::vector<Epoch> epochs;
  std::vector<Error> errors;

 private:
  Rank rank_;
  std::deque<Message>& network_;
};

/// Some ranks and a network that delivers in order when told to.
class Cluster {
 public:
  explicit Cluster(int size, ControlOptions base = {}) {
    for (Rank rank = 0; rank < size; ++rank) {
      ControlOptions options = base;
      options.rank = rank;
      options.size = size;
      hosts.push_back(std::make_unique<FakeHost>(rank, network));
      tables.push_back(std::make_unique<EchoTables>());
      planes.push_back(std::make_unique<ControlPlane>(options, *hosts.back(), *tables.back()));
    }
  }
  void deliverOne() {
    Message message = std::move(network.front());
    network.pop_front();
    const Status status = planes[static_cast<std::size_t>(message.to)]->receive(message.from, message.bytes);
    if (!status && hosts[static_cast<std::size_t>(message.to)]->errors.empty())
      ADD_FAILURE() << status.error().message;
  }
  void settle() {
    for (int i = 0; !network.empty(); ++i) {
      ASSERT_LT(i, 1000000) << "does not come to rest";
      deliverOne();
    }
  }
  std::deque<Message> network;
  std::vector<std::unique_ptr<FakeHost>> hosts;
  std::vector<std::unique_ptr<EchoTables>> tables;
  std::vector<std::unique_ptr<ControlPlane>> planes;
};

TEST(ControlPlane, NothingHappensWithoutAReason) {
  Cluster cluster(4);
  EXPECT_TRUE(cluster.network.empty());
  cluster.planes[0]->setReady(3, true);
  EXPECT_TRUE(cluster.network.empty());
}

TEST(ControlPlane, ARoundAgreesOnEverything) {
  for (int size : {1, 2, 3, 5, 8, 13}) {
    Cluster cluster(size, ControlOptions{.attributes = {{"rate", AttributeOperator::kMin, 1}}});
    for (int i = 0; i < size; ++i) {
      auto& plane = *cluster.planes[static_cast<std::size_t>(i)];
      plane.setReady(0, true);
      plane.setReady(1, i != 0);
      cluster.hosts[static_cast<std::size_t>(i)]->next = static_cast<SequenceNumber>(10 * i);
      ASSERT_TRUE(plane.setAttribute("rate", 0, 5.0 - i));
    }
    cluster.planes.back()->requestRound();
    cluster.settle();
    for (auto& plane : cluster.planes) {
      EXPECT_EQ(plane->completedRound(), 1u);
      EXPECT_FALSE(plane->inRound());
      EXPECT_EQ(plane->context().ready, ReadyBits(1));
      EXPECT_EQ(plane->context().switchAt, static_cast<SequenceNumber>(10 * (size - 1) + 2));
      EXPECT_EQ(plane->context().attributes.at("rate"), std::vector<double>{5.0 - (size - 1)});
    }
    for (auto& host : cluster.hosts) {
      EXPECT_EQ(host->promises, 1);
      EXPECT_FALSE(host->limited);
      ASSERT_EQ(host->epochs.size(), 1u);
      EXPECT_EQ(host->epochs[0].table->slots[0][0], 0);
    }
  }
}

TEST(ControlPlane, ProposalsReachEveryLogInOneOrder) {
  for (int size : {1, 2, 7}) {
    Cluster cluster(size);
    for (int k = 0; k < 5; ++k) {
      for (auto& plane : cluster.planes)
        ASSERT_TRUE(plane->propose(EntryKind::kSetExo, "k=" + std::to_string(k)));
    }
    cluster.settle();
    for (auto& plane : cluster.planes) {
      ASSERT_EQ(plane->log().size(), static_cast<std::size_t>(5 * size));
      EXPECT_EQ(plane->pendingProposals(), 0u);
      for (std::size_t i = 0; i < plane->log().size(); ++i)
        EXPECT_EQ(plane->log()[i].id, cluster.planes[0]->log()[i].id);
    }
  }
}

TEST(ControlPlane, DivergingTablesStopEveryRank) {
  Cluster cluster(3);
  cluster.tables[1]->diverge = true;
  cluster.planes[0]->requestRound();
  cluster.settle();
  cluster.planes[2]->requestRound();
  cluster.settle();
  for (auto& host : cluster.hosts) {
    ASSERT_EQ(host->errors.size(), 1u);
    EXPECT_EQ(host->errors[0].code, ErrorCode::kMismatch);
    EXPECT_NE(host->errors[0].message.find("dispatch tables of round 1 differ"), std::string::npos);
    EXPECT_EQ(host->epochs.size(), 1u) << "round 2 must not publish";
  }
}

std::string contents(const ControlPlane& plane) {
  std::string text;
  for (const Entry& entry : plane.log()) text += entry.content + " ";
  return text;
}

TEST(ControlPlane, AFloodDoesNotStarveOthers) {
  ControlOptions options;
  options.limits.proposalsPerRound = 2;
  Cluster cluster(3, options);
  for (int i = 0; i < 6; ++i)
    ASSERT_TRUE(cluster.planes[0]->propose(EntryKind::kSetExo, "f" + std::to_string(i)));
  ASSERT_TRUE(cluster.planes[2]->propose(EntryKind::kSetExo, "q0"));
  cluster.settle();
  // Round 1 was joined by rank 0 with its first entry alone, by rank 2 with q0; the rest follow two a round.
  for (auto& plane : cluster.planes) EXPECT_EQ(contents(*plane), "f0 q0 f1 f2 f3 f4 f5 ");
}

TEST(ControlPlane, AThingAskedForDuringARoundGetsARoundOfItsOwn) {
  Cluster cluster(2);
  cluster.planes[0]->requestRound();
  cluster.planes[0]->setReady(1, true);  // too late for the running round
  for (int i = 0; i < 5; ++i) cluster.planes[0]->requestRound();
  cluster.planes[1]->setReady(1, true);
  cluster.settle();
  EXPECT_EQ(cluster.planes[1]->completedRound(), 2u) << "five requests are one more round";
  EXPECT_TRUE(cluster.planes[1]->context().ready[1]);
}

TEST(ControlPlane, LongContentsTravelInPieces) {
  ControlOptions options;
  options.limits.pieceBytes = 1000;
  Cluster cluster(6, options);
  std::string content(123456, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * i >> 3);
  ASSERT_TRUE(cluster.planes[4]->propose(EntryKind::kNewSchedule, content));
  cluster.settle();
  for (auto& plane : cluster.planes) {
    ASSERT_EQ(plane->log().size(), 1u);
    EXPECT_EQ(plane->log()[0].content, content);
  }
  EXPECT_EQ(cluster.planes[4]->counters().pieceMessagesSent, 124u * 3) << "to its three children in the tree";
}

TEST(ControlPlane, AnEntryIsNotReadBeforeEveryRankHoldsIt) {
  Cluster cluster(3);
  ASSERT_TRUE(cluster.planes[0]->propose(EntryKind::kSetExo, "late"));
  const auto isPieceForRank2 = [](const Message& message) {
    return message.to == 2 && message.bytes[2] == 2;
  };
  const auto late = std::find_if(cluster.network.begin(), cluster.network.end(), isPieceForRank2);
  ASSERT_NE(late, cluster.network.end());
  const Message kept = *late;
  cluster.network.erase(late);
  cluster.settle();
  for (auto& plane : cluster.planes) {
    EXPECT_EQ(plane->orderedEntries(), 1u);
    EXPECT_EQ(plane->log().size(), 0u) << "rank 2 lacks it";
  }
  const Round before = cluster.planes[0]->completedRound();
  cluster.network.push_back(kept);
  cluster.settle();
  for (auto& plane : cluster.planes) EXPECT_EQ(contents(*plane), "late ");
  EXPECT_EQ(cluster.planes[0]->completedRound(), before + 1) << "its arrival is a reason for one round";
}

TEST(ControlPlane, ANewAttributeIsInForceFromTheNextRound) {
  Cluster cluster(3);
  EXPECT_EQ(cluster.planes[1]->setAttribute("heat", 0, 1).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(cluster.planes[0]->propose(EntryKind::kNewAttribute, "heat max ranks"));
  ASSERT_TRUE(
      cluster.planes[1]->propose(EntryKind::kNewAttribute, "heat min 1"));  // the first declaration stays
  cluster.settle();
  for (auto& plane : cluster.planes) {
    ASSERT_EQ(plane->attributes().size(), 1u);
    EXPECT_EQ(plane->context().attributes.count("heat"), 0u);
  }
  for (std::uint32_t i = 0; i < 2; ++i) ASSERT_TRUE(cluster.planes[i]->setAttribute("heat", i, 10.0 + i));
  cluster.planes[2]->requestRound();
  cluster.settle();
  for (auto& plane : cluster.planes) {
    const std::vector<double>& heat = plane->context().attributes.at("heat");
    ASSERT_EQ(heat.size(), 3u);
    EXPECT_EQ(heat[0], 10);
    EXPECT_EQ(heat[1], 11);
    EXPECT_NE(heat[2], heat[2]) << "nobody knows: NaN";
  }
}

TEST(ControlPlane, ProposalsAreBounded) {
  ControlOptions options;
  options.limits.contentBytes = 100;
  options.limits.outstandingBytes = 150;
  options.limits.outstandingEntries = 3;
  Cluster cluster(2, options);
  ControlPlane& plane = *cluster.planes[0];
  EXPECT_EQ(plane.propose(EntryKind::kSetExo, std::string(101, 'x')).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(plane.propose(EntryKind::kNewAttribute, "no").error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(plane.propose(EntryKind::kSetExo, std::string(100, 'x')));
  EXPECT_EQ(plane.propose(EntryKind::kSetExo, std::string(51, 'x')).error().code, ErrorCode::kOutOfMemory);
  ASSERT_TRUE(plane.propose(EntryKind::kSetExo, ""));
  ASSERT_TRUE(plane.propose(EntryKind::kSetExo, ""));
  EXPECT_EQ(plane.propose(EntryKind::kSetExo, "").error().code, ErrorCode::kOutOfMemory);
  cluster.settle();
  EXPECT_TRUE(plane.propose(EntryKind::kSetExo, std::string(100, 'x')))
      << "room again once every rank holds them";
  cluster.settle();
  EXPECT_EQ(cluster.planes[1]->log().size(), 4u);
}

TEST(ControlPlane, MalformedMessagesAreRefusedAndChangeNothing) {
  Cluster cluster(2);
  cluster.planes[0]->requestRound();
  const std::string good = cluster.network.front().bytes;
  ControlPlane& plane = *cluster.planes[1];
  for (const std::string& bytes :
       {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), good.substr(0, good.size() - 1), good + "x"}) {
    const Status status = plane.receive(0, bytes);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(status.error().message.find("rank 0"), std::string::npos);
  }
  EXPECT_FALSE(plane.receive(1, good)) << "from oneself";
  EXPECT_FALSE(plane.receive(2, good)) << "no such rank";
  EXPECT_FALSE(plane.inRound());
  EXPECT_TRUE(cluster.hosts[1]->errors.empty());
  cluster.settle();
  EXPECT_EQ(plane.completedRound(), 1u);
}

TEST(ControlPlane, AMessageThatContradictsTheProtocolStopsAndNamesThePeer) {
  Cluster cluster(3), other(4);
  other.planes[0]->requestRound();  // its step 0 goes to rank 1
  const Status status = cluster.planes[1]->receive(0, other.network.front().bytes);
  ASSERT_FALSE(status);
  ASSERT_EQ(cluster.hosts[1]->errors.size(), 1u);
  EXPECT_NE(cluster.hosts[1]->errors[0].message.find("from rank 0: "), std::string::npos);
  EXPECT_NE(cluster.hosts[1]->errors[0].message.find("4 ranks, this one has 3"), std::string::npos);
  EXPECT_FALSE(cluster.planes[1]->inRound());
  EXPECT_EQ(cluster.planes[1]->propose(EntryKind::kSetExo, "x").error().code, ErrorCode::kAborted);
  cluster.planes[1]->requestRound();
  EXPECT_TRUE(cluster.network.empty()) << "a stopped control plane is silent";
}

TEST(ControlPlane, RanksThatStartWithDifferentTablesFindOutInRound1) {
  std::deque<Message> network;
  FakeHost host(0, network);
  EchoTables tables;
  ControlOptions options;
  options.size = 2;
  options.initialTable = {1, 1};
  ControlPlane plane(options, host, tables);
  options.rank = 1;
  options.initialTable = {2, 2};
  std::deque<Message> answers;
  FakeHost otherHost(1, answers);
  ControlPlane other(options, otherHost, tables);
  plane.requestRound();
  ASSERT_TRUE(other.receive(0, network.front().bytes));
  ASSERT_EQ(otherHost.errors.size(), 1u);
  EXPECT_NE(otherHost.errors[0].message.find("tables of round 0 differ"), std::string::npos);
  EXPECT_TRUE(otherHost.epochs.empty());
}

TEST(ControlPlane, ARankThatDoesNotKeepItsPromiseIsOnlyForTests) {
  ControlOptions options;
  options.skipLimitRule = true;
  Cluster cluster(2, options);
  cluster.planes[0]->requestRound();
  EXPECT_EQ(cluster.hosts[0]->promises, 1);
  EXPECT_FALSE(cluster.hosts[0]->limited) << "lifted at once: the planted bug";
}

}  // namespace
}  // namespace theseus::control
