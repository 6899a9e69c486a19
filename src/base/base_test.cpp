#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/hash.h"
#include "theseus/result.h"
#include "theseus/types.h"

namespace theseus {

TEST(Types, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(DataType::kFloat64); ++i) {
    EXPECT_EQ(parseDataType(name(static_cast<DataType>(i))), static_cast<DataType>(i));
  }
  for (int i = 0; i <= static_cast<int>(Collective::kCustom); ++i) {
    EXPECT_EQ(parseCollective(name(static_cast<Collective>(i))), static_cast<Collective>(i));
  }
  EXPECT_EQ(parseCollective("reduce_scatter"), Collective::kReduceScatter);
  EXPECT_FALSE(parseReduceOp("SUM"));
}

TEST(Hash, KnownValueAndHex) {
  const base::Hash128 empty = base::hash128("");
  EXPECT_EQ(base::toHex(empty), "99aa06d3014798d86001c324468d497f");  // XXH3_128bits of no bytes, seed 0
  EXPECT_EQ(base::hashFromHex(base::toHex(empty)), empty);
  EXPECT_FALSE(base::hashFromHex("99aa"));
  EXPECT_FALSE(base::hashFromHex("zzaa06d3014798d86001c324468d497f"));
}

TEST(Random, SameSeedSameNumbers) {
  base::Random a(7), b(7);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.next(), b.next());
  EXPECT_LT(a.unit(), 1.0);
}

}  // namespace theseus
