#include "control/control_plane.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace theseus::control
