#include "control/log.h"

#include <gtest/gtest.h>

namespace theseus::control {
namespace {

Entry entryOf(Rank origin, std::uint64_t number, std::string content) {
  const base::Hash128 hash = entryHash(EntryKind::kSetExo, content);
  return {{origin, 0, number, hash}, EntryKind::kSetExo, std::move(content)};
}

TEST(Log, HeldPrefixWaitsForTheFirstMissingContent) {
  Log log;
  const Entry a = entryOf(0, 0, "a"), b = entryOf(1, 0, "b"), c = entryOf(0, 1, "c");
  for (const Entry* entry : {&a, &b, &c}) log.order(entry->id);
  EXPECT_EQ(log.ordered(), 3u);
  EXPECT_EQ(log.heldPrefix(), 0u);
  log.hold(c);
  log.hold(a);
  EXPECT_EQ(log.heldPrefix(), 1u);
  EXPECT_EQ(log.entry(1), nullptr);
  EXPECT_EQ(log.entry(2)->content, "c");
  log.hold(b);
  EXPECT_EQ(log.heldPrefix(), 3u);
}

TEST(Log, EveryVersionStaysReadable) {
  Log log;
  for (std::uint64_t i = 0; i < 4; ++i) log.hold(entryOf(0, i, std::to_string(i)));
  for (std::uint64_t i = 0; i < 4; ++i) log.order(entryOf(0, i, std::to_string(i)).id);
  log.agree(1);
  EXPECT_EQ(log.agreed().size(), 1u);
  EXPECT_EQ(log.heldPrefix(), 4u);
  log.agree(3);
  log.agree(3);
  ASSERT_EQ(log.agreed().size(), 3u);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(log.entry(i)->content, std::to_string(i));
  EXPECT_EQ(log.entry(4), nullptr);
  EXPECT_EQ(log.agreedOf(0, 0), 3u);
  EXPECT_EQ(log.agreedOf(0, 1), 0u);
}

TEST(Log, TellsSameFromDifferentContent) {
  Log log;
  const Entry a = entryOf(0, 0, "a"), other = entryOf(0, 0, "other");
  EXPECT_EQ(log.contentOf(a.id), Log::Content::kMissing);
  log.hold(a);
  EXPECT_EQ(log.contentOf(a.id), Log::Content::kHeld);
  EXPECT_EQ(log.contentOf(other.id), Log::Content::kDifferent);
  EXPECT_FALSE(log.checkOrderable(other.id));
  log.order(a.id);
  log.agree(1);
  EXPECT_EQ(log.contentOf(a.id), Log::Content::kHeld) << "after it has moved to the agreed prefix";
  EXPECT_EQ(log.contentOf(other.id), Log::Content::kDifferent);
}

TEST(Log, OrderedIdWithoutContentAlreadyFixesTheHash) {
  Log log;
  log.order(entryOf(2, 0, "x").id);
  EXPECT_EQ(log.contentOf(entryOf(2, 0, "y").id), Log::Content::kDifferent);
}

TEST(Log, AnOriginsNumbersDoNotSkip) {
  Log log;
  EXPECT_FALSE(log.checkOrderable(entryOf(3, 1, "b").id));
  log.order(entryOf(3, 0, "a").id);
  EXPECT_TRUE(log.checkOrderable(entryOf(3, 1, "b").id));
  EXPECT_FALSE(log.checkOrderable(entryOf(3, 2, "c").id));
  EXPECT_TRUE(log.checkOrderable(entryOf(3, 0, "a").id)) << "once more is harmless";
  log.order(entryOf(3, 0, "a").id);
  EXPECT_EQ(log.ordered(), 1u);
}

TEST(Log, BytesBeyondTheAgreedPrefixAreCountedByOrigin) {
  Log log;
  log.hold(entryOf(1, 0, "four"));
  Entry restarted = entryOf(1, 0, "sixsix");
  restarted.id.incarnation = 2;
  log.hold(restarted);
  log.hold(entryOf(2, 0, "x"));
  EXPECT_EQ(log.bytesBeyondAgreed(1), 10u);
  log.order(entryOf(1, 0, "four").id);
  log.agree(1);
  EXPECT_EQ(log.bytesBeyondAgreed(1), 6u);
}

}  // namespace
}  // namespace theseus::control
