#include "daemon/fingerprint/hang_fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace stackd {
namespace {

using testing::ElementsAre;

using Functions = std::vector<std::string>;

// The C library's functions stand for themselves.
void AddThread(int32_t tid, const Functions& functions, v1::Dump* dump) {
  v1::Thread* thread = dump->add_threads();
  thread->set_tid(tid);
  thread->set_stack(dump->stacks_size());
  v1::Stack* stack = dump->add_stacks();
  for (const std::string& function : functions) {
    v1::Frame* frame = stack->add_frames();
    frame->set_function(function);
    const bool is_libc = function.starts_with("__") || function.starts_with("start_");
    frame->set_module(is_libc ? "libc.so.6" : "bank");
  }
}

v1::Dump HangOf(v1::Hang::Cause cause, int32_t tid) {
  v1::Dump dump;
  dump.mutable_process()->set_executable("/usr/bin/bank");
  dump.mutable_hang()->set_cause(cause);
  dump.mutable_hang()->set_tid(tid);
  return dump;
}

void AddCycle(const std::vector<int32_t>& tids, v1::Dump* dump) {
  v1::Finding* finding = dump->add_findings();
  finding->set_kind(v1::Finding::DEADLOCK);
  for (int32_t tid : tids) finding->add_edges()->set_waiter_tid(tid);
}

v1::Hang Fingerprinted(v1::Dump dump, const std::string& loop_function = "") {
  AddHangFingerprint(loop_function, &dump);
  return dump.hang();
}

// "f" of each used frame, "(f: rule)" of each other.
Functions Explained(const v1::Hang& hang) {
  Functions frames;
  for (const v1::FingerprintFrame& frame : hang.fingerprint_frames()) {
    frames.push_back(frame.used() ? frame.function() : "(" + frame.function() + ": " + frame.rule() + ")");
  }
  return frames;
}

const Functions kPays = {"__lll_lock_wait", "__pthread_mutex_lock", "lock(Account&)", "pay", "start_thread"};
const Functions kBooks = {"__lll_lock_wait", "__pthread_mutex_lock", "lock(Account&)", "book", "start_thread"};

v1::Dump Deadlock() {
  v1::Dump dump = HangOf(v1::Hang::DEADLOCK, 12);
  AddThread(12, kPays, &dump);
  AddThread(13, kBooks, &dump);
  AddThread(14, {"__poll", "serve"}, &dump);
  AddCycle({12, 13}, &dump);
  return dump;
}

TEST(HangFingerprint, OfACycleIsOfTheStacksOfAllItsThreads) {
  const v1::Hang hang = Fingerprinted(Deadlock());
  EXPECT_EQ(hang.fingerprint_rule(), "hang-1");
  EXPECT_EQ(hang.fingerprint(), "856c407ddd810d016e3e3cfc45cb12d4") << "whoever changes this gives the rule a new name";
  EXPECT_THAT(Explained(hang),
              ElementsAre("(__lll_lock_wait: wait)", "(__pthread_mutex_lock: wait)", "lock", "book",
                          "(start_thread: start-of-thread)", "(__lll_lock_wait: wait)", "(__pthread_mutex_lock: wait)",
                          "lock", "pay", "(start_thread: start-of-thread)"));
}

TEST(HangFingerprint, DoesNotDependOnTheOrderOrNumbersOfThreads) {
  v1::Dump other = HangOf(v1::Hang::DEADLOCK, 904);
  AddThread(901, kBooks, &other);
  AddThread(903, {"__futex_wait", "serve"}, &other);
  AddThread(904, kPays, &other);
  AddCycle({904, 901}, &other);
  EXPECT_EQ(Fingerprinted(other).fingerprint(), Fingerprinted(Deadlock()).fingerprint());
}

TEST(HangFingerprint, CountsEqualThreadsOfACycleOnce) {
  v1::Dump two = HangOf(v1::Hang::DEADLOCK, 1), five = two;
  for (int tid = 1; tid <= 5; ++tid) {
    if (tid <= 2) AddThread(tid, kPays, &two);
    AddThread(tid, kPays, &five);
  }
  AddCycle({1, 2}, &two);
  AddCycle({1, 2, 3, 4, 5}, &five);
  EXPECT_EQ(Fingerprinted(two).fingerprint(), Fingerprinted(five).fingerprint());
}

TEST(HangFingerprint, DiffersWithWhatTheThreadsDo) {
  v1::Dump other = HangOf(v1::Hang::DEADLOCK, 12);
  AddThread(12, kPays, &other);
  AddThread(13, kPays, &other);
  AddCycle({12, 13}, &other);
  EXPECT_NE(Fingerprinted(other).fingerprint(), Fingerprinted(Deadlock()).fingerprint());
  v1::Dump slow = Deadlock();
  slow.mutable_hang()->set_cause(v1::Hang::NO_PROGRESS);
  EXPECT_NE(Fingerprinted(slow).fingerprint(), Fingerprinted(Deadlock()).fingerprint());
}

TEST(HangFingerprint, OfNoCycleIsOfTheThreadConcerned) {
  v1::Dump dump = HangOf(v1::Hang::HEARTBEAT_MISSED, 14);
  dump.mutable_hang()->set_heartbeat("event-loop");
  AddThread(12, kPays, &dump);
  AddThread(14, {"__poll", "query", "serve"}, &dump);
  EXPECT_THAT(Explained(Fingerprinted(dump)), ElementsAre("(__poll: wait)", "query", "serve"));
  v1::Dump other = dump;
  other.mutable_hang()->set_heartbeat("timer");
  EXPECT_NE(Fingerprinted(dump).fingerprint(), Fingerprinted(other).fingerprint());
}

TEST(HangFingerprint, OfALoopDoesNotDependOnWhatItCalledLast) {
  v1::Dump one = HangOf(v1::Hang::SPIN, 7), other = one;
  AddThread(7, {"hash", "find(int)", "main"}, &one);
  AddThread(7, {"__memcpy", "compare", "find(int)", "main"}, &other);
  EXPECT_EQ(Fingerprinted(one, "find(int)").fingerprint(), Fingerprinted(other, "find(int)").fingerprint());
  EXPECT_THAT(Explained(Fingerprinted(one, "find(int)")), ElementsAre("(hash: called-by-the-loop)", "find", "main"));
}

TEST(HangFingerprint, WithoutAStackIsOfCauseAndProgram) {
  v1::Dump one = HangOf(v1::Hang::NOT_GONE, 0), other = one;
  other.mutable_process()->set_executable("/usr/bin/shop");
  EXPECT_EQ(Fingerprinted(one).fingerprint().size(), 32u);
  EXPECT_NE(Fingerprinted(one).fingerprint(), Fingerprinted(other).fingerprint());
}

}  // namespace
}  // namespace stackd
