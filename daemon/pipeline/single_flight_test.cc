#include "daemon/pipeline/single_flight.h"

#include <gtest/gtest.h>

#include <thread>

namespace stackd {
namespace {

using Flight = SingleFlight<int, int>;

int64_t Soon() { return MonotonicNs() + 20 * kNsPerSecond; }

TEST(SingleFlight, WorksOnceForCallsThatOverlapAndAgainLater) {
  Flight flight("late");
  const int64_t first_deadline_ns = Soon();
  int asked = 0, worked = 0;
  const auto may_begin = [&]() -> Result<void> {
    ++asked;
    return {};
  };
  Flight::Done joined{0, 0};
  std::jthread other;
  const auto done = flight.Do(1, first_deadline_ns, may_begin, [&]() -> Result<int> {
    other = std::jthread([&] { joined = flight.Do(1, Soon(), may_begin, [] { return Result<int>(-1); }); });
    while (flight.joined() == 0) std::this_thread::yield();
    EXPECT_EQ(*flight.Do(2, Soon(), {}, [] { return Result<int>(7); }).result, 7) << "another key is other work";
    return ++worked;
  });
  other.join();
  EXPECT_EQ(*done.result, 1);
  EXPECT_EQ(*joined.result, 1);
  EXPECT_EQ(joined.deadline_ns, first_deadline_ns);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(*flight.Do(1, Soon(), may_begin, [&] { return Result<int>(++worked); }).result, 2);
}

TEST(SingleFlight, ARefusedCallDoesNothingAndLeavesNothingBehind) {
  Flight flight("late");
  const auto refuse = [] { return Result<void>(Error(Code::kResourceExhausted, "no")); };
  EXPECT_EQ(flight.Do(1, Soon(), refuse, [] { return Result<int>(1); }).result.error().message, "no");
  EXPECT_EQ(*flight.Do(1, Soon(), {}, [] { return Result<int>(2); }).result, 2);
}

TEST(SingleFlight, ACallWhoseDeadlinePassesLeavesWithoutTheResult) {
  Flight flight("late");
  flight.Do(1, Soon(), {}, [&] {
    const auto late = std::async(std::launch::async, [&] { return flight.Do(1, MonotonicNs(), {}, {}); }).get();
    EXPECT_EQ(late.result.error().code, Code::kDeadlineExceeded);
    EXPECT_EQ(late.result.error().message, "late");
    return Result<int>(1);
  });
}

}  // namespace
}  // namespace stackd
