// Shuffles who has which lock and what each thread does, and leaves all stacks of waiters alike. A verdict that does not
// depend on this evidence differs from the one that is computed here from the shuffle alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>

#include "daemon/testing/hang_scene.h"

namespace stackd {
namespace {

using Finding = v1::Finding;
using Wait = v1::Wait;

constexpr int kShuffles = 2000;
constexpr int32_t kFirstTid = 101;
// Below each tid of the scene: it ended, and did not begin during the dump.
constexpr int32_t kEndedTid = 77;
constexpr int32_t kNobody = 0;

enum class Doing { kLocks, kSleeps, kRuns };

struct ShuffledThread {
  int32_t tid = 0;
  Doing doing = Doing::kRuns;
  int32_t owner_tid = kNobody;  // of the lock that it waits for
  bool is_shared = false;
};

uint64_t LockOf(int32_t tid) { return 0x5000 + static_cast<uint64_t>(tid) * 0x100; }

class Shuffle {
 public:
  explicit Shuffle(std::mt19937* random) {
    const int count = Below(random, 2, 9);
    for (int32_t tid = kFirstTid; tid < kFirstTid + count; ++tid) {
      ShuffledThread thread{.tid = tid};
      const int doing = Below(random, 0, 8);
      thread.doing = doing == 0 ? Doing::kSleeps : doing == 1 ? Doing::kRuns : Doing::kLocks;
      thread.owner_tid = kFirstTid + Below(random, 0, count);
      const int kind = Below(random, 0, 16);
      if (kind == 0) thread.owner_tid = kEndedTid;
      if (kind == 1) thread.owner_tid = kNobody;
      thread.is_shared = kind == 2;
      threads_[tid] = thread;
    }
  }

  void Fill(HangScene* scene) const {
    for (const auto& [tid, thread] : threads_) {
      const std::string name = "t" + std::to_string(tid);
      if (thread.doing == Doing::kSleeps) scene->AddSleeper(tid, name, "Work");
      if (thread.doing == Doing::kRuns) scene->AddThread(tid, name, {"Work", "start_thread@libc.so.6"});
      if (thread.doing != Doing::kLocks) continue;
      scene->AddLocker(tid, name, "Work", LockOf(tid));
      scene->AddMutex(LockOf(tid), thread.owner_tid);
      scene->capture().futexes.back().is_shared = thread.is_shared;
    }
  }

  // Tells the owner that `tid` waits for; 0 where no thread is certain.
  int32_t OwnerOf(int32_t tid) const {
    const auto known = threads_.find(tid);
    if (known == threads_.end() || known->second.doing != Doing::kLocks || known->second.is_shared) return 0;
    return known->second.owner_tid;
  }

  // Tells for each cycle who waits for which owner.
  std::set<std::map<int32_t, int32_t>> Cycles() const {
    std::set<std::map<int32_t, int32_t>> cycles;
    for (const auto& [tid, thread] : threads_) {
      std::map<int32_t, int32_t> passed;
      int32_t next = tid;
      while (OwnerOf(next) != 0 && passed.emplace(next, OwnerOf(next)).second) next = OwnerOf(next);
      if (next == tid && !passed.empty()) cycles.insert(passed);
    }
    return cycles;
  }

  bool AnyWaitsFor(int32_t owner_tid) const {
    for (const auto& [tid, thread] : threads_) {
      if (thread.doing == Doing::kLocks && !thread.is_shared && thread.owner_tid == owner_tid) return true;
    }
    return false;
  }

  const std::map<int32_t, ShuffledThread>& threads() const { return threads_; }

 private:
  // Draws at least `first`, below `end`; the same with each library, which std::uniform_int_distribution is not.
  static int Below(std::mt19937* random, int first, int end) {
    return first + static_cast<int>((*random)() % static_cast<uint32_t>(end - first));
  }

  std::map<int32_t, ShuffledThread> threads_;
};

// Maps each waiter to its owner.
std::map<int32_t, int32_t> EdgesOf(const Finding& finding) {
  std::map<int32_t, int32_t> edges;
  for (const auto& edge : finding.edges()) edges[edge.waiter_tid()] = edge.owner_tid();
  return edges;
}

void ExpectOwnersOf(const Shuffle& shuffle, HangScene* scene) {
  for (const auto& [tid, thread] : shuffle.threads()) {
    const Wait& wait = scene->wait(tid);
    const int32_t owner_tid = shuffle.OwnerOf(tid);
    EXPECT_EQ(wait.owner() == Wait::KNOWN ? wait.owner_tid() : 0, owner_tid == kEndedTid ? 0 : owner_tid) << "of " << tid;
    EXPECT_EQ(wait.owner() == Wait::GONE, owner_tid == kEndedTid) << "of " << tid;
  }
}

void ExpectCyclesOf(const Shuffle& shuffle, const v1::Dump& dump) {
  std::set<std::map<int32_t, int32_t>> found;
  for (const Finding& finding : dump.findings()) {
    const auto edges = EdgesOf(finding);
    for (const auto& [waiter_tid, owner_tid] : edges) EXPECT_EQ(owner_tid, shuffle.OwnerOf(waiter_tid));
    if (finding.kind() != Finding::DEADLOCK && finding.kind() != Finding::SELF_DEADLOCK) continue;
    EXPECT_EQ(finding.kind() == Finding::SELF_DEADLOCK, edges.size() == 1);
    EXPECT_EQ(finding.severity(), Finding::HANG);
    EXPECT_TRUE(found.insert(edges).second) << "twice: " << finding.explanation();
  }
  EXPECT_EQ(found, shuffle.Cycles());
}

TEST(Mutation, VerdictsFollowOwnersAndStatesThatWereShuffled) {
  std::mt19937 random(17);
  int cycle_count = 0;
  int harmless_count = 0;
  for (int i = 0; i < kShuffles && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("shuffle " + std::to_string(i));
    const Shuffle shuffle(&random);
    HangScene scene;
    shuffle.Fill(&scene);
    scene.Explain();
    ExpectOwnersOf(shuffle, &scene);
    ExpectCyclesOf(shuffle, scene.dump());
    const bool hangs = !shuffle.Cycles().empty() || shuffle.AnyWaitsFor(kEndedTid);
    cycle_count += shuffle.Cycles().empty() ? 0 : 1;
    harmless_count += hangs ? 0 : 1;
    for (const Finding& finding : scene.dump().findings()) {
      EXPECT_TRUE(hangs || finding.severity() != Finding::HANG) << finding.explanation();
    }
  }
  // Shuffles of one sort alone would prove nothing.
  EXPECT_GT(cycle_count, kShuffles / 10);
  EXPECT_GT(harmless_count, kShuffles / 10);
}

}  // namespace
}  // namespace stackd
