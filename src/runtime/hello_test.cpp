#include "runtime/hello.h"

#include <gtest/gtest.h>

namespace theseus::runtime {
namespace {

HelloIdentity identity(Rank rank, int size = 4) { return {HelloPurpose::kRendezvous, rank, size, 29500}; }

/// Carries bytes between two sides, `step` at a time, until nothing moves or one side fails.
struct Talk {
  Hello connector;
  Hello acceptor;
  Status connectorStatus{};
  Status acceptorStatus{};

  void run(std::size_t step = 1000) {
    std::string toAcceptor, toConnector, acceptorInput, connectorInput;
    for (int turn = 0; turn < 1000; ++turn) {
      toAcceptor += connector.takeOutput();
      toConnector += acceptor.takeOutput();
      if (toAcceptor.empty() && toConnector.empty()) return;
      move(toAcceptor, acceptorInput, step);
      if (acceptorStatus) acceptorStatus = acceptor.feed(acceptorInput);
      move(toConnector, connectorInput, step);
      if (connectorStatus) connectorStatus = connector.feed(connectorInput);
    }
  }
  static void move(std::string& from, std::string& to, std::size_t step) {
    to += from.substr(0, step);
    from.erase(0, step);
  }
};

Talk talk(const HelloIdentity& connector, const HelloIdentity& acceptor, const std::string& secretA = "s",
          const std::string& secretB = "s") {
  return Talk{Hello(Hello::Side::kConnector, connector, secretA),
              Hello(Hello::Side::kAcceptor, acceptor, secretB)};
}

TEST(Hello, AgreesWhateverThePieces) {
  for (std::size_t step : {1u, 7u, 1000u}) {
    Talk both = talk(identity(3), identity(0));
    both.run(step);
    EXPECT_TRUE(both.connector.done());
    EXPECT_TRUE(both.acceptor.done());
    EXPECT_EQ(both.acceptor.peer().rank, 3);
    EXPECT_EQ(both.connector.peer().rank, 0);
  }
}

TEST(Hello, EmptySecretIsStillAHandshake) {
  Talk both = talk(identity(3), identity(0), "", "");
  both.run();
  EXPECT_TRUE(both.connector.done() && both.acceptor.done());
}

TEST(Hello, WrongSecretIsRefusedOnBothSides) {
  Talk both = talk(identity(3), identity(0), "right", "wrong");
  both.run();
  EXPECT_FALSE(both.acceptor.done());
  EXPECT_FALSE(both.connector.done());
  ASSERT_FALSE(both.acceptorStatus);
  ASSERT_FALSE(both.connectorStatus);
  EXPECT_EQ(both.acceptor.verdict(), HelloVerdict::kWrongSecret);
  EXPECT_EQ(both.connector.verdict(), HelloVerdict::kWrongSecret);
  EXPECT_NE(both.connectorStatus.error().message.find("THESEUS_SECRET"), std::string::npos);
}

TEST(Hello, OtherSizeNamesBothSizes) {
  Talk both = talk(identity(3, 8), identity(0, 4));
  both.run();
  ASSERT_FALSE(both.connectorStatus);
  EXPECT_EQ(both.connector.verdict(), HelloVerdict::kOtherSize);
  EXPECT_NE(both.connectorStatus.error().message.find("4"), std::string::npos);
  EXPECT_NE(both.acceptorStatus.error().message.find("rank 3 says that the job has 8 ranks"),
            std::string::npos);
}

TEST(Hello, RankOutsideTheJobIsRefused) {
  for (Rank rank : {-1, 4}) {
    Talk both = talk(identity(rank), identity(0));
    both.run();
    EXPECT_FALSE(both.acceptor.done());
  }
}

TEST(Hello, OtherJobOrPurposeIsRefused) {
  HelloIdentity other = identity(1);
  other.masterPort = 1;
  Talk job = talk(other, identity(0));
  job.run();
  EXPECT_EQ(job.connector.verdict(), HelloVerdict::kOtherJob);
  HelloIdentity messages = identity(1);
  messages.purpose = HelloPurpose::kMessages;
  Talk purpose = talk(messages, identity(0));
  purpose.run();
  EXPECT_FALSE(purpose.acceptor.done());
  EXPECT_FALSE(purpose.connector.done());
}

TEST(Hello, OtherProtocolsAreRefusedAtTheFirstByte) {
  Hello acceptor(Hello::Side::kAcceptor, identity(0), "s");
  std::string request = "G";
  const Status status = acceptor.feed(request);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("does not speak Theseus"), std::string::npos);
  EXPECT_TRUE(acceptor.takeOutput().empty());  // a stranger is told nothing
}

TEST(Hello, OtherVersionIsNamed) {
  Hello connector(Hello::Side::kConnector, identity(1), "s");
  std::string hello = connector.takeOutput();
  ASSERT_EQ(hello.size(), Hello::kHelloBytes);
  hello[4] = 9;
  Hello acceptor(Hello::Side::kAcceptor, identity(0), "s");
  const Status status = acceptor.feed(hello);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("version 9"), std::string::npos);
}

TEST(Hello, AProofCannotBeUsedAgainOrSentBack) {
  // A listener without the secret echoes the connector's own proof as if it were its own.
  Hello connector(Hello::Side::kConnector, identity(1), "s");
  std::string hello = connector.takeOutput();
  Hello mirror(Hello::Side::kAcceptor, identity(0), "unknown");
  ASSERT_TRUE(mirror.feed(hello));
  std::string answer = mirror.takeOutput();
  ASSERT_TRUE(connector.feed(answer));
  const std::string proof = connector.takeOutput();
  ASSERT_EQ(proof.size(), Hello::kProofBytes);
  std::string reflected = std::string(1, '\0') + proof;
  EXPECT_FALSE(connector.feed(reflected));
  EXPECT_FALSE(connector.done());
  // A recorded conversation replayed against a new acceptor: its challenge differs.
  Hello first(Hello::Side::kConnector, identity(1), "s");
  const std::string recordedHello = first.takeOutput();
  Hello recorder(Hello::Side::kAcceptor, identity(0), "s");
  std::string input = recordedHello;
  ASSERT_TRUE(recorder.feed(input));
  input = recorder.takeOutput();
  ASSERT_TRUE(first.feed(input));
  Hello fresh(Hello::Side::kAcceptor, identity(0), "s");
  input = recordedHello + first.takeOutput();
  EXPECT_FALSE(fresh.feed(input) && fresh.feed(input));
  EXPECT_FALSE(fresh.done());
}

TEST(Hello, AnUnprovenAcceptorCannotEndTheJobByClaimingAnotherSize) {
  Hello connector(Hello::Side::kConnector, identity(1), "s");
  std::string hello = connector.takeOutput();
  Hello liar(Hello::Side::kAcceptor, identity(0), "unknown");
  ASSERT_TRUE(liar.feed(hello));
  std::string answer = liar.takeOutput();
  ASSERT_TRUE(connector.feed(answer));
  std::string verdict =
      std::string(1, static_cast<char>(HelloVerdict::kOtherSize)) + std::string(Hello::kProofBytes, 'x');
  EXPECT_FALSE(connector.feed(verdict));
  EXPECT_EQ(connector.verdict(), HelloVerdict::kWrongSecret);
}

}  // namespace
}  // namespace theseus::runtime
