#include "daemon/detect/respond/hang_queue.h"

#include <gtest/gtest.h>

#include <set>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr int64_t kSecond = kNsPerSecond;

std::shared_ptr<const Rule> RuleWith(int64_t count, const std::string& name = "rule") {
  Rule rule;
  rule.name = name;
  rule.count = count;
  return std::make_shared<const Rule>(rule);
}

SharedSuspicion MakeSuspicion(const std::string& process, const std::shared_ptr<const Rule>& rule,
                              HangCause cause = HangCause::kHeartbeatMissed, int64_t seen_ns = 0) {
  auto suspicion = std::make_shared<Suspicion>();
  suspicion->process_id = process;
  suspicion->subject = "subject";
  suspicion->hang.cause = cause;
  suspicion->rule = rule;
  suspicion->seen_ns = seen_ns;
  return suspicion;
}

TEST(HangQueue, AStormIsDumpedBitByBitAndWhole) {
  HangQueue queue;
  const auto rule = RuleWith(10);
  for (int i = 0; i < 200; ++i) queue.Add(MakeSuspicion(std::to_string(i), rule), 0);
  std::set<std::string> dumped;
  for (int second = 0; second < 20 * 60; ++second) {
    while (SharedSuspicion next = queue.Take(second * kSecond)) dumped.insert(next->process_id);
    EXPECT_LE(dumped.size(), 10u * (second / 60 + 1));
  }
  EXPECT_EQ(dumped.size(), 200u);
  EXPECT_EQ(queue.waiting(), 0u);
  EXPECT_EQ(queue.deferred(), 190);
}

TEST(HangQueue, WithoutARuleOfTheOperatorsTenDumpsAMinuteAreMadeOfEachKindOfHang) {
  for (const auto& rule : BuiltInRules()) {
    HangQueue queue;
    for (int i = 0; i < 25; ++i) queue.Add(MakeSuspicion(std::to_string(i), rule), 0);
    std::vector<int> dumped;
    for (int second : {0, 59, 60, 119, 120}) {
      dumped.push_back(0);
      while (queue.Take(second * kSecond) != nullptr) ++dumped.back();
    }
    EXPECT_EQ(dumped, (std::vector<int>{10, 0, 10, 0, 5})) << rule->name;
  }
}

TEST(HangQueue, OneHangIsDumpedAgainAfterItsCooldownOnly) {
  HangQueue queue;
  const auto rule = RuleWith(10);
  EXPECT_EQ(queue.Add(MakeSuspicion("a", rule), 0), HangQueue::Verdict::kQueued);
  ASSERT_NE(queue.Take(0), nullptr);
  EXPECT_EQ(queue.Add(MakeSuspicion("a", rule), 599 * kSecond), HangQueue::Verdict::kInCooldown);
  EXPECT_EQ(queue.Add(MakeSuspicion("b", rule), 599 * kSecond), HangQueue::Verdict::kQueued);
  EXPECT_EQ(queue.Add(MakeSuspicion("a", rule), 600 * kSecond), HangQueue::Verdict::kQueued);
}

TEST(HangQueue, ADeadlockIsDumpedOnceInTheLifeOfItsProcess) {
  HangQueue queue;
  const auto rule = RuleWith(10);
  queue.Add(MakeSuspicion("a", rule, HangCause::kDeadlock), 0);
  ASSERT_NE(queue.Take(0), nullptr);
  EXPECT_EQ(queue.Add(MakeSuspicion("a", rule, HangCause::kDeadlock), 1'000'000 * kSecond),
            HangQueue::Verdict::kInCooldown);
  queue.Forget("a");
  EXPECT_EQ(queue.Add(MakeSuspicion("a", rule, HangCause::kDeadlock), 1'000'001 * kSecond), HangQueue::Verdict::kQueued);
}

TEST(HangQueue, WhatIsOverIsNotDumped) {
  HangQueue queue;
  const auto rule = RuleWith(10);
  const SharedSuspicion suspicion = MakeSuspicion("a", rule);
  queue.Add(suspicion, 0);
  suspicion->over = true;
  EXPECT_EQ(queue.Take(0), nullptr);
  EXPECT_EQ(queue.over_before_dump(), 1);
}

TEST(HangQueue, AProcessWithManyHangsDoesNotHoldUpTheOthers) {
  HangQueue queue;
  const auto rule = RuleWith(3);
  for (int i = 0; i < 5; ++i) {
    auto suspicion = MakeSuspicion("loud", rule);
    suspicion->subject += std::to_string(i);
    queue.Add(suspicion, 0);
  }
  queue.Add(MakeSuspicion("quiet", rule), 0);
  EXPECT_EQ(queue.Take(0)->process_id, "loud");
  EXPECT_EQ(queue.Take(0)->process_id, "quiet");
  EXPECT_EQ(queue.Take(0)->process_id, "loud");
  EXPECT_EQ(queue.Take(0), nullptr);
}

TEST(HangQueue, ADumpThatFailedIsTriedAgainSomeTimes) {
  HangQueue queue;
  queue.Add(MakeSuspicion("a", RuleWith(10)), 0);
  for (int64_t second : {0, 10}) {
    SharedSuspicion taken = queue.Take(second * kSecond);
    ASSERT_NE(taken, nullptr);
    EXPECT_TRUE(queue.Return(taken, second * kSecond));
    EXPECT_EQ(queue.Take((second + 9) * kSecond), nullptr);
  }
  SharedSuspicion taken = queue.Take(20 * kSecond);
  ASSERT_NE(taken, nullptr);
  EXPECT_FALSE(queue.Return(taken, 20 * kSecond));
}

TEST(HangQueue, RulesHaveLimitsOfTheirOwn) {
  HangQueue queue;
  queue.Add(MakeSuspicion("a", RuleWith(1, "one")), 0);
  queue.Add(MakeSuspicion("b", RuleWith(1, "other")), 0);
  EXPECT_NE(queue.Take(0), nullptr);
  EXPECT_NE(queue.Take(0), nullptr);
}

TEST(HangQueue, WhatWaitsTooLongIsToldOnce) {
  HangQueue queue;
  const auto rule = RuleWith(1);
  queue.Add(MakeSuspicion("a", rule, HangCause::kDeadlock, 0), 0);
  queue.Add(MakeSuspicion("b", rule, HangCause::kDeadlock, kSecond), kSecond);
  ASSERT_NE(queue.Take(kSecond), nullptr);
  EXPECT_EQ(queue.TakeOverdue(5 * kSecond, 5 * kSecond).size(), 0u);
  EXPECT_EQ(queue.TakeOverdue(6 * kSecond, 5 * kSecond).size(), 1u);
  EXPECT_EQ(queue.TakeOverdue(7 * kSecond, 5 * kSecond).size(), 0u);
  EXPECT_EQ(queue.waiting(), 1u);
}

}  // namespace
}  // namespace stackd
