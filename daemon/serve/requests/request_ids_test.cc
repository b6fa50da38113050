#include "daemon/serve/requests/request_ids.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

int64_t InOneSecond() { return MonotonicNs() + kNsPerSecond; }

TEST(RequestIds, MakeOnceForEqualIds) {
  RequestIds ids;
  int made = 0;
  auto make = [&]() -> Result<std::string> { return "dump" + std::to_string(++made); };
  EXPECT_EQ(*ids.Once("a", InOneSecond(), make), "dump1");
  EXPECT_EQ(*ids.Once("a", InOneSecond(), make), "dump1");
  EXPECT_EQ(*ids.Once("b", InOneSecond(), make), "dump2");
}

TEST(RequestIds, TryAgainAfterAFailure) {
  RequestIds ids;
  EXPECT_FALSE(
      ids.Once("a", InOneSecond(), []() -> Result<std::string> { return Error(Code::kNotFound, "gone"); }).has_value());
  EXPECT_TRUE(ids.Once("a", InOneSecond(), []() -> Result<std::string> { return "dump"; }).has_value());
}

TEST(RequestIds, MakeOnceForCallsThatOverlap) {
  RequestIds ids;
  std::atomic<int> made = 0, waiting = 0;
  std::vector<std::jthread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      ++waiting;
      auto name = ids.Once("a", InOneSecond() * 2, [&]() -> Result<std::string> {
        while (waiting < 4) std::this_thread::yield();
        ++made;
        return "dump";
      });
      EXPECT_EQ(name.value_or("failed"), "dump");
    });
  }
  callers.clear();
  EXPECT_EQ(made, 1);
}

TEST(RequestIds, DoNotWaitBeyondTheDeadline) {
  RequestIds ids;
  auto name = ids.Once("a", InOneSecond(), [&]() -> Result<std::string> {
    auto second = ids.Once("a", MonotonicNs() + kNsPerMs, []() -> Result<std::string> { return "never"; });
    EXPECT_EQ(second.error().code, Code::kDeadlineExceeded);
    return "dump";
  });
  EXPECT_EQ(*name, "dump");
}

TEST(RequestIds, ForgetTheOldestWhenThereAreTooMany) {
  RequestIds ids(10);
  int made = 0;
  auto make = [&]() -> Result<std::string> { return std::to_string(++made); };
  for (int i = 0; i < 100; ++i) ids.Once(std::to_string(i), InOneSecond(), make);
  EXPECT_EQ(*ids.Once("99", InOneSecond(), make), "100");
  EXPECT_EQ(*ids.Once("0", InOneSecond(), make), "101");
}

}  // namespace
}  // namespace stackd
