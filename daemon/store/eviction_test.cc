#include "daemon/store/eviction.h"

#include <gtest/gtest.h>

namespace stackd {
namespace {

const DumpRow kNone;
const DumpRow kCrash{.id = 1, .bytes = 10, .is_crash = true, .create_seconds = 1000};
const DumpRow kOther{.id = 2, .bytes = 10, .create_seconds = 2000};
const DumpStoreOptions kLimits{.max_bytes = 100, .max_dumps = 12, .max_age_seconds = 500};

Totals Of(Amount crashes, Amount others) { return {.crashes = crashes, .others = others}; }

TEST(EvictionTest, LeavesAllWithinTheLimits) {
  EXPECT_EQ(ChooseVictim(kLimits, Of({6, 50}, {6, 50}), 1500, kCrash, kOther).dump, nullptr);
}

TEST(EvictionTest, TakesWhatIsTooOldWhateverItIs) {
  for (const Totals& totals : {Of({1, 10}, {1, 10}), Of({20, 10}, {1, 10})}) {
    const Victim crash = ChooseVictim(kLimits, totals, 1501, kCrash, kOther);
    EXPECT_EQ(crash.dump, &kCrash);
    EXPECT_EQ(crash.limit, &Evictions::age);
  }
  EXPECT_EQ(ChooseVictim(kLimits, Of({1, 10}, {1, 10}), 2501, kCrash, kOther).dump, &kOther);
  EXPECT_EQ(ChooseVictim(kLimits, Of({1, 10}, {1, 10}), 9999, kNone, kNone).dump, nullptr);
}

TEST(EvictionTest, TakesNothingForItsAgeWhileTheClockCannotBeBelieved) {
  EXPECT_EQ(ChooseVictim(kLimits, Of({1, 10}, {1, 10}), std::nullopt, kCrash, kOther).dump, nullptr);
}

TEST(EvictionTest, TakesOthersBeforeCrashesButLeavesThemAQuarter) {
  const Victim by_count = ChooseVictim(kLimits, Of({9, 10}, {4, 10}), 1500, kCrash, kOther);
  EXPECT_EQ(by_count.dump, &kOther);
  EXPECT_EQ(by_count.limit, &Evictions::count);
  EXPECT_EQ(ChooseVictim(kLimits, Of({10, 10}, {3, 10}), 1500, kCrash, kOther).dump, &kCrash);
  const Victim by_bytes = ChooseVictim(kLimits, Of({1, 75}, {1, 26}), 1500, kCrash, kOther);
  EXPECT_EQ(by_bytes.dump, &kOther);
  EXPECT_EQ(by_bytes.limit, &Evictions::bytes);
  EXPECT_EQ(ChooseVictim(kLimits, Of({1, 76}, {1, 25}), 1500, kCrash, kOther).dump, &kCrash);
}

TEST(EvictionTest, TakesWhatThereIs) {
  EXPECT_EQ(ChooseVictim(kLimits, Of({1, 1}, {20, 200}), 1500, kNone, kOther).dump, &kOther);
  EXPECT_EQ(ChooseVictim(kLimits, Of({20, 200}, {9, 90}), 1500, kCrash, kNone).dump, &kCrash);
  EXPECT_EQ(ChooseVictim(kLimits, Of({20, 200}, {9, 90}), 1500, kNone, kNone).dump, nullptr);
}

TEST(EvictionTest, CountsTheBytesOfGroups) {
  Totals totals = Of({1, 10}, {5, 50});
  totals.groups.bytes = 41;
  EXPECT_EQ(ChooseVictim(kLimits, totals, 1500, kCrash, kOther).limit, &Evictions::bytes);
}

}  // namespace
}  // namespace stackd
