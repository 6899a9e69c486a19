#include "control/replication.h"

#include <gtest/gtest.h>

#include <bit>
#include <memory>

#include "base/clock.h"

namespace theseus::control {
namespace {

TEST(ReplicationTree, EveryRankHasOneParentAndALogarithmicDepth) {
  for (int size = 1; size <= 70; ++size) {
    for (const Rank root : {0, size / 3, size - 1}) {
      std::vector<int> parents(static_cast<std::size_t>(size));
      for (Rank rank = 0; rank < size; ++rank) {
        for (const Rank child : treeChildren(root, rank, size)) {
          ++parents[static_cast<std::size_t>(child)];
          ASSERT_EQ(treeParent(root, child, size), rank);
        }
        int depth = 0;
        for (Rank up = rank; up != root; up = treeParent(root, up, size))
          ASSERT_LE(++depth, std::bit_width(static_cast<unsigned>(size - 1)));
      }
      for (Rank rank = 0; rank < size; ++rank)
        EXPECT_EQ(parents[static_cast<std::size_t>(rank)], rank == root ? 0 : 1);
    }
  }
}

ControlLimits smallLimits() {
  ControlLimits limits;
  limits.contentBytes = 100;
  limits.outstandingEntries = 3;
  limits.outstandingBytes = 150;
  limits.pieceBytes = 4;
  return limits;
}

Entry entryOf(Rank origin, std::uint64_t number, std::string content) {
  const base::Hash128 hash = entryHash(EntryKind::kSetExo, content);
  return {{origin, 0, number, hash}, EntryKind::kSetExo, std::move(content)};
}

struct Sent {
  Rank from, to;
  std::string bytes;
};

/// All messages that `from` would send for an entry of its own.
std::vector<Sent> spread(const Entry& entry, int size) {
  Log log;
  std::vector<Sent> sent;
  Replication(entry.id.origin, size, smallLimits(), log).spread(entry, [&](Rank to, std::string bytes) {
    sent.push_back({entry.id.origin, to, std::move(bytes)});
  });
  return sent;
}

TEST(Replication, ReachesEveryRankInAnyOrderWithRepetitions) {
  base::Random random(1);
  for (int size : {2, 3, 8, 13}) {
    for (const std::string& content :
         {std::string(), std::string("abc"), std::string("abcd"), std::string(99, 'x')}) {
      const Entry entry = entryOf(1, 0, content);
      std::vector<std::unique_ptr<Log>> logs;
      std::vector<std::unique_ptr<Replication>> ranks;
      for (Rank rank = 0; rank < size; ++rank) {
        logs.push_back(std::make_unique<Log>());
        ranks.push_back(std::make_unique<Replication>(rank, size, smallLimits(), *logs.back()));
      }
      std::vector<Sent> network = spread(entry, size);
      while (!network.empty()) {
        std::swap(network[random.below(network.size())], network.back());
        const Sent sent = network.back();
        if (random.chance(0.7)) network.pop_back();
        const auto piece = decodePiece(sent.bytes, size);
        ASSERT_TRUE(piece);
        const Status status = ranks[static_cast<std::size_t>(sent.to)]->accept(
            sent.from, *piece, sent.bytes,
            [&](Rank to, std::string bytes) { network.push_back({sent.to, to, std::move(bytes)}); });
        ASSERT_TRUE(status) << status.error().message;
      }
      for (Rank rank = 0; rank < size; ++rank) {
        if (rank == 1) continue;
        EXPECT_EQ(logs[static_cast<std::size_t>(rank)]->contentOf(entry.id), Log::Content::kHeld);
        EXPECT_EQ(ranks[static_cast<std::size_t>(rank)]->incomplete(), 0u);
      }
    }
  }
}

/// Rank 0 of two, which gets pieces of rank 1.
class Receiver : public ::testing::Test {
 protected:
  Status give(const Piece& piece, Rank from = 1) {
    return replication.accept(from, piece, "", [&](Rank, std::string) { ++forwarded; });
  }
  Piece pieceOf(const Entry& entry, std::uint32_t index) {
    return {entry.id, entry.kind, static_cast<std::uint32_t>(entry.content.size()),
            4,        index,      std::string_view(entry.content).substr(std::size_t{index} * 4, 4)};
  }
  void expectMismatch(const Status& status) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kMismatch) << status.error().message;
  }
  int forwarded = 0;
  Log log;
  Replication replication{0, 2, smallLimits(), log};
};

TEST_F(Receiver, OnlyTheParentInTheTreeSends) {
  Log other;
  Replication third(2, 3, smallLimits(), other);  // the tree of rank 0 reaches rank 2 from rank 0 itself
  const Entry entry = entryOf(0, 0, "ab");
  expectMismatch(third.accept(1, pieceOf(entry, 0), "", [](Rank, std::string) {}));
  EXPECT_TRUE(third.accept(0, pieceOf(entry, 0), "", [](Rank, std::string) {}));
  expectMismatch(give(pieceOf(entry, 0)));  // rank 0 gets its own entry from nobody
}

TEST_F(Receiver, PiecesOfDifferentContentsDoNotMix) {
  const Entry entry = entryOf(1, 0, "abcdefgh");
  ASSERT_TRUE(give(pieceOf(entry, 0)));
  Piece other = pieceOf(entry, 1);
  other.contentBytes = 7;
  other.bytes = other.bytes.substr(0, 3);
  expectMismatch(give(other));
  Piece changed = pieceOf(entry, 0);
  changed.bytes = "abcX";
  expectMismatch(give(changed));
  expectMismatch(give(pieceOf(entryOf(1, 0, "ABCDEFGH"), 1)));
  ASSERT_TRUE(give(pieceOf(entry, 1)));
  EXPECT_EQ(log.contentOf(entry.id), Log::Content::kHeld);
}

TEST_F(Receiver, DamagedContentIsNoticedAndNotKept) {
  const Entry entry = entryOf(1, 0, "abcdefgh");
  ASSERT_TRUE(give(pieceOf(entry, 0)));
  Piece damaged = pieceOf(entry, 1);
  damaged.bytes = "efgH";
  expectMismatch(give(damaged));
  EXPECT_EQ(log.contentOf(entry.id), Log::Content::kMissing);
  EXPECT_TRUE(give(pieceOf(entry, 1))) << "the refused piece changed nothing";
  EXPECT_EQ(log.contentOf(entry.id), Log::Content::kHeld);
}

TEST_F(Receiver, DamagedContentOfOnePieceLeavesNothingBehind) {
  const Entry entry = entryOf(1, 0, "abc");
  Piece damaged = pieceOf(entry, 0);
  damaged.bytes = "abC";
  expectMismatch(give(damaged));
  EXPECT_EQ(replication.incomplete(), 0u);
}

TEST_F(Receiver, AnOriginsOutstandingEntriesAndBytesAreBounded) {
  expectMismatch(give(pieceOf(entryOf(1, 0, std::string(101, 'x')), 0)));
  expectMismatch(give(
      pieceOf(entryOf(1, 6, "x"), 0)));  // twice the bound of 3, this rank being one round behind at most
  for (std::uint64_t number = 0; number < 3; ++number) {
    ASSERT_TRUE(give(pieceOf(entryOf(1, number, std::string(100, 'a')), 0))) << number;
  }
  expectMismatch(give(pieceOf(entryOf(1, 3, "x"), 0)));  // 301 bytes
  EXPECT_EQ(replication.incomplete(), 3u);
}

TEST(Piece, DocumentedBytes) {
  const std::string content = "abcdefgh";
  Piece piece{{6, 1, 0x51, {0x61, 0x62}}, EntryKind::kSetExo, 8, 5, 1, std::string_view(content).substr(5)};
  const char expected[] =
      "\x54\x01\x02\x00\x07\x00\x00\x00"
      "\x06\x00\x00\x00\x01\x00\x00\x00\x51\x00\x00\x00\x00\x00\x00\x00"
      "\x61\x00\x00\x00\x00\x00\x00\x00\x62\x00\x00\x00\x00\x00\x00\x00"
      "\x03\x00\x00\x00\x08\x00\x00\x00\x05\x00\x00\x00\x01\x00\x00\x00"
      "fgh";
  EXPECT_EQ(encodePiece(piece, 7), std::string(expected, sizeof expected - 1));
}

TEST(Piece, StrictDecoding) {
  const Entry entry = entryOf(1, 0, "abcdefgh");
  const Piece good{entry.id, entry.kind, 8, 5, 1, "fgh"};
  const std::string bytes = encodePiece(good, 3);
  const auto decoded = decodePiece(bytes, 3);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->bytes, "fgh");
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decodePiece(bytes.substr(0, length), 3)) << length;
  EXPECT_FALSE(decodePiece(bytes + "i", 3));
  const auto refused = [&](auto change) {
    Piece piece = good;
    change(piece);
    return !decodePiece(encodePiece(piece, 3), 3).has_value();
  };
  EXPECT_FALSE(refused([](Piece&) {}));
  EXPECT_TRUE(refused([](Piece& piece) { piece.index = 2; }));
  EXPECT_TRUE(refused([](Piece& piece) { piece.index = 0; })) << "piece 0 has 5 bytes";
  EXPECT_TRUE(refused([](Piece& piece) { piece.pieceBytes = 0; }));
  EXPECT_TRUE(refused([](Piece& piece) { piece.kind = static_cast<EntryKind>(6); }));
  EXPECT_TRUE(refused([](Piece& piece) { piece.id.origin = 3; }));
  EXPECT_TRUE(refused([](Piece& piece) { piece.contentBytes = 1u << 20, piece.pieceBytes = 3; }))
      << "too many pieces";
}

}  // namespace
}  // namespace theseus::control
