#include "daemon/otlp/dump_quota.h"

#include <gtest/gtest.h>

#include <string>

namespace stackd {
namespace {

TEST(DumpQuotaTest, TheFirstOfEachFingerprintHaveAPlace) {
  DumpQuota quota(2);
  EXPECT_TRUE(quota.Take("a"));
  EXPECT_TRUE(quota.Take("b"));
  EXPECT_TRUE(quota.Take("a"));
  EXPECT_FALSE(quota.Take("a"));
  EXPECT_TRUE(quota.Take("b"));
  EXPECT_FALSE(quota.Take("b"));
}

TEST(DumpQuotaTest, NoneHasAPlaceIfNoneIsToBeSent) {
  DumpQuota quota(0);
  EXPECT_FALSE(quota.Take("a"));
}

TEST(DumpQuotaTest, APlaceThatIsGivenBackIsAnothers) {
  DumpQuota quota(1);
  EXPECT_TRUE(quota.Take("a"));
  quota.GiveBack("a");
  quota.GiveBack("a");
  quota.GiveBack("unknown");
  EXPECT_TRUE(quota.Take("a"));
  EXPECT_FALSE(quota.Take("a"));
}

TEST(DumpQuotaTest, OfTooManyFingerprintsThatSeenLongestAgoBeginsAnew) {
  DumpQuota quota(1);
  for (size_t i = 0; i < DumpQuota::kMaxFingerprints; ++i) EXPECT_TRUE(quota.Take(std::to_string(i)));
  EXPECT_FALSE(quota.Take("0"));
  EXPECT_TRUE(quota.Take("one more"));
  EXPECT_FALSE(quota.Take("0"));
  EXPECT_TRUE(quota.Take("1"));
}

}  // namespace
}  // namespace stackd
