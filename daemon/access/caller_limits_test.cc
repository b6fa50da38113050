#include "daemon/access/caller_limits.h"

#include <gtest/gtest.h>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

const Grant kOne{.caller = "dns:one", .role = Role::kDump};
const Grant kOther{.caller = "dns:other", .role = Role::kDump};
const Grant kAdmin{.caller = "uid:0", .role = Role::kAdmin};
constexpr CallRates kRates{.calls_per_second = 10, .captures_per_minute = 6};
constexpr int64_t kStartNs = 1000 * kNsPerSecond;

class CallerLimitsTest : public testing::Test {
 protected:
  // How many calls of so many are admitted; each ends at once.
  int Admitted(const Grant& grant, int count, int64_t now_ns) {
    int admitted = 0;
    for (int i = 0; i < count; ++i) {
      if (!limits_.BeginCall(grant, false, kRates, now_ns)) continue;
      limits_.EndCall(grant.caller, false);
      ++admitted;
    }
    return admitted;
  }

  CallerLimits limits_;
};

TEST_F(CallerLimitsTest, AdmitABurstAndThenTheRate) {
  EXPECT_EQ(Admitted(kOne, 100, kStartNs), 20);
  EXPECT_EQ(Admitted(kOne, 100, kStartNs + kNsPerSecond), 10);
  EXPECT_EQ(Admitted(kOne, 100, kStartNs + 100 * kNsPerSecond), 20);
}

TEST_F(CallerLimitsTest, SayWhenToComeAgain) {
  Admitted(kOne, 100, kStartNs);
  auto refused = limits_.BeginCall(kOne, false, kRates, kStartNs);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().status.reason, "CALL_RATE_LIMITED");
  EXPECT_EQ(refused.error().status.code, Code::kResourceExhausted);
  const int64_t then_ns = kStartNs + refused.error().retry_after_ns;
  EXPECT_LE(refused.error().retry_after_ns, kNsPerSecond / 10 + 1);
  EXPECT_EQ(Admitted(kOne, 100, then_ns - kNsPerMs), 0);
  EXPECT_EQ(Admitted(kOne, 100, then_ns), 1);
}

TEST_F(CallerLimitsTest, OfOneCallerAreNotThoseOfAnother) {
  Admitted(kOne, 100, kStartNs);
  EXPECT_EQ(Admitted(kOther, 5, kStartNs), 5);
}

TEST_F(CallerLimitsTest, OfAdminsAreNoRates) {
  EXPECT_EQ(Admitted(kAdmin, 1000, kStartNs), 1000);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(limits_.Capture(kAdmin, kRates, kStartNs).has_value());
}

TEST_F(CallerLimitsTest, BoundWhatRunsAtATimeEvenOfAdmins) {
  for (int i = 0; i < CallerLimits::kMaxCalls; ++i) {
    ASSERT_TRUE(limits_.BeginCall(kAdmin, false, kRates, kStartNs).has_value());
  }
  auto refused = limits_.BeginCall(kAdmin, false, kRates, kStartNs);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().status.reason, "TOO_MANY_CALLS");
  limits_.EndCall(kAdmin.caller, false);
  EXPECT_TRUE(limits_.BeginCall(kAdmin, false, kRates, kStartNs).has_value());
}

TEST_F(CallerLimitsTest, BoundStreamsMoreTightly) {
  for (int i = 0; i < CallerLimits::kMaxStreams; ++i) {
    ASSERT_TRUE(limits_.BeginCall(kAdmin, true, kRates, kStartNs).has_value());
  }
  EXPECT_FALSE(limits_.BeginCall(kAdmin, true, kRates, kStartNs).has_value());
  EXPECT_TRUE(limits_.BeginCall(kAdmin, false, kRates, kStartNs).has_value());
}

TEST_F(CallerLimitsTest, BoundCaptures) {
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(limits_.Capture(kOne, kRates, kStartNs).has_value());
  auto refused = limits_.Capture(kOne, kRates, kStartNs);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().status.reason, "CAPTURE_RATE_LIMITED");
  EXPECT_NEAR(static_cast<double>(refused.error().retry_after_ns), 10.0 * kNsPerSecond, kNsPerMs);
  EXPECT_TRUE(limits_.Capture(kOne, kRates, kStartNs + 11 * kNsPerSecond).has_value());
}

TEST_F(CallerLimitsTest, FollowChangedRates) {
  Admitted(kOne, 100, kStartNs);
  const CallRates more{.calls_per_second = 1000, .captures_per_minute = 6};
  EXPECT_TRUE(limits_.BeginCall(kOne, false, more, kStartNs).has_value());
}

// A new name costs a caller nothing, so it must not bring a new burst.
TEST_F(CallerLimitsTest, DoNotForgetACallerWhoJustUsedThemUp) {
  Admitted(kOne, 100, kStartNs);
  for (int i = 0; i < 2000; ++i) Admitted({.caller = std::to_string(i), .role = Role::kRead}, 1, kStartNs);
  EXPECT_EQ(Admitted(kOne, 1, kStartNs), 0);
}

}  // namespace
}  // namespace stackd
