// What collect finds out about the waits of a process: with an agent that does as it is told, and whose memory, threads and
// fds are this test's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "daemon/base/clock.h"
#include "daemon/capture/waited_on.h"
#include "daemon/collect/collector.h"
#include "daemon/process/futex_words.h"
#include "daemon/process/memory_reader.h"
#include "daemon/process/wait_facts.h"
#include "daemon/testing/fake_agent.h"

namespace stackd {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kLongNs = 20 * kNsPerSecond;
constexpr char kId[] = "5-1000";

stackd_syscall Call(uint32_t number, std::vector<uint64_t> arguments) {
  stackd_syscall call{.number = number, .known = STACKD_SYSCALL_KNOWN | ((1u << arguments.size()) - 1), .arguments = {}};
  std::ranges::copy(arguments, call.arguments);
  return call;
}
template <typename Word>
stackd_syscall FutexWait(const Word* word) {
  return Call(SYS_futex, {reinterpret_cast<uint64_t>(word), FUTEX_WAIT_PRIVATE});
}

// A mutex of glibc's that thread `owner` holds and somebody waits for.
struct alignas(8) Mutex {
  uint32_t lock = 2, count = 0;
  uint32_t owner;
  uint32_t users = 1, kind = 0, more[5] = {};
};

std::string MakeDir() {
  std::string name = "/tmp/waits-XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  EXPECT_EQ(chmod(name.c_str(), 0755), 0);
  return name;
}

class WaitsTest : public testing::Test {
 protected:
  WaitsTest() : dir_(MakeDir()) {
    auto started = Collector::Start({.dir = dir_, .ring_bytes = 256u << 10});
    EXPECT_TRUE(started.has_value());
    collector_ = std::move(*started);
    collector_->OnCrash([](std::shared_ptr<Capture>, const std::function<void()>& release) { release(); });
  }
  ~WaitsTest() override {
    agent_.reset();
    collector_.reset();
    std::filesystem::remove_all(dir_);
  }

  void Connect(const stackd_hello& hello = Hello(5), const std::vector<Fd>& files = OwnFiles()) {
    agent_ = std::make_unique<FakeAgent>(dir_);
    ASSERT_EQ(agent_->Register(hello, files), "");
    while (collector_->Processes().empty()) sched_yield();
  }

  // Captures a process whose threads, of tids from 1, are in `calls`; then `after` is done by its helper.
  std::shared_ptr<Capture> CaptureOf(const std::vector<stackd_syscall>& calls, const std::function<void()>& after = [] {}) {
    std::atomic<bool> is_over = false;
    std::thread helper([&] {
      uint32_t seq = agent_->AwaitCommand();
      agent_->Begin(seq, static_cast<uint32_t>(calls.size()));
      uint32_t tid = 0;
      for (const stackd_syscall& call : calls) {
        tid++;
        while (!agent_->WriteThread(seq, tid, call)) sched_yield();
      }
      agent_->Finish(seq);
      after();
      agent_->AnswerFilesUntil(is_over);
    });
    request_.deadline_ns = MonotonicNs() + kLongNs;
    const int64_t begin_ns = MonotonicNs();
    auto capture = collector_->CaptureProcess(kId, request_);
    took_ns_ = MonotonicNs() - begin_ns;
    is_over = true;
    helper.join();
    EXPECT_TRUE(capture.has_value());
    return capture ? *capture : nullptr;
  }

  const std::string dir_;
  std::unique_ptr<Collector> collector_;
  std::unique_ptr<FakeAgent> agent_;
  CaptureRequest request_;
  int64_t took_ns_ = 0;
};

// --- Dumps: locks ---

TEST_F(WaitsTest, EachThreadHasTheCallThatItIsIn) {
  Connect();
  auto capture = CaptureOf({Call(SYS_nanosleep, {0x7000}), {}});
  ASSERT_EQ(capture->threads.size(), 2u);
  ASSERT_TRUE(capture->threads[0].call.has_value());
  EXPECT_EQ(capture->threads[0].call->number, static_cast<uint32_t>(SYS_nanosleep));
  EXPECT_EQ(capture->threads[0].call->arguments[0], 0x7000u);
  EXPECT_FALSE(capture->threads[1].call.has_value());
  EXPECT_EQ(capture->threads[0].unmoved_ns, -1);
}

TEST_F(WaitsTest, EachFutexIsReadOnceWithTheLockThatItIs) {
  Connect();
  const Mutex mutex{.owner = 3};
  alignas(8) const uint32_t other[16] = {77};
  auto capture = CaptureOf({FutexWait(&mutex), FutexWait(&mutex), FutexWait(&other), Call(SYS_read, {7})},
                           [&] { agent_->AnswerFds(1); });
  ASSERT_EQ(capture->futexes.size(), 2u);
  const bool mutex_first = capture->futexes[0].avma == reinterpret_cast<uint64_t>(&mutex);
  const FutexWord& locked = capture->futexes[mutex_first ? 0 : 1];
  const FutexWord& counter = capture->futexes[mutex_first ? 1 : 0];
  EXPECT_LT(capture->futexes[0].avma, capture->futexes[1].avma);
  EXPECT_EQ(locked.value, 2u);
  ASSERT_TRUE(locked.mutex.has_value());
  EXPECT_EQ(locked.mutex->owner_tid, 3);
  EXPECT_EQ(counter, (FutexWord{.avma = reinterpret_cast<uint64_t>(&other), .value = 77}));
  EXPECT_THAT(capture->notes, Each(Not(HasSubstr("lock"))));
}

std::shared_ptr<const ProcessFiles> OwnProcess() {
  auto files = std::make_shared<ProcessFiles>();
  std::vector<Fd> own = OwnFiles();
  EXPECT_TRUE(files->SetMemory(&own[0]) && files->SetMaps(&own[1]) && files->SetFolder(&own[2]));
  return files;
}

TEST_F(WaitsTest, AFutexIsSharedWhereItsMemoryIsWhateverItsLockSays) {
  Connect();
  constexpr int32_t kSharedKind = 128;
  const Mutex own{.owner = 3, .kind = kSharedKind};
  void* pages = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const auto* shared = new (pages) Mutex{.owner = 3};
  const auto capture = CaptureOf({FutexWait(&own), FutexWait(shared)});
  ASSERT_EQ(capture->futexes.size(), 2u);
  for (const FutexWord& word : capture->futexes) {
    EXPECT_EQ(word.is_shared, word.avma == reinterpret_cast<uint64_t>(shared));
    EXPECT_EQ(word.shared_memory.inode != 0, word.is_shared);
  }
  munmap(pages, 4096);
}

TEST_F(WaitsTest, AFutexThatIsTheLockOfAStreamIsTheThreadsThatHasIt) {
  Connect();
  FILE* stream = tmpfile();
  ASSERT_NE(stream, nullptr);
  flockfile(stream);
  auto* lock = reinterpret_cast<int*>(stream->_lock);
  EXPECT_EQ(CaptureOf({FutexWait(lock)})->futexes.at(0).stdio_owner_tid, 0) << "nobody waits";
  lock[0] = 2;
  // As older versions of glibc count, and as newer ones do.
  const int count = lock[1];
  for (const int held : {1, 0}) {
    lock[1] = held;
    const auto capture = CaptureOf({FutexWait(lock)});
    ASSERT_EQ(capture->futexes.size(), 1u);
    EXPECT_EQ(capture->futexes[0].stdio_owner_tid, gettid()) << held;
  }
  lock[0] = 1;
  lock[1] = count;
  funlockfile(stream);
  fclose(stream);
}

TEST(ProcessFiles, AProcessCountsThreadsAsItself) {
  const auto files = OwnProcess();
  EXPECT_TRUE(files->CountsThreadsAs(*files));
  EXPECT_FALSE(files->CountsThreadsAs(ProcessFiles()));
}

TEST_F(WaitsTest, AFutexInTheControlBlockOfAThreadIsThatThreads) {
  Connect();
  // Where glibc 2.43 has the word that joining waits on, and its last words.
  const auto block = reinterpret_cast<uint64_t>(pthread_self());
  const auto capture = CaptureOf({FutexWait(reinterpret_cast<const void*>(block + 0x628))});
  ASSERT_EQ(capture->futexes.size(), 1u);
  EXPECT_EQ(capture->futexes[0].thread_tid, gettid());
}

TEST_F(WaitsTest, AFutexThatCannotBeReadIsMissingAndTheOthersAreNot) {
  Connect();
  const Mutex mutex{.owner = 3};
  auto capture =
      CaptureOf({FutexWait(reinterpret_cast<uint32_t*>(16)), FutexWait(&mutex),
                 FutexWait(reinterpret_cast<uint32_t*>(~7ull)), FutexWait(reinterpret_cast<const char*>(&mutex) + 1)});
  ASSERT_EQ(capture->futexes.size(), 1u);
  EXPECT_EQ(capture->futexes[0].avma, reinterpret_cast<uint64_t>(&mutex));
}

TEST_F(WaitsTest, ALockAtEitherEndOfAMappingIsRead) {
  Connect();
  const size_t page = 4096;
  auto* pages = static_cast<char*>(mmap(nullptr, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(mprotect(pages + page, page, PROT_READ | PROT_WRITE), 0);
  auto* first = new (pages + page) Mutex{.owner = 3};
  auto* last = new (pages + 2 * page - sizeof(Mutex)) Mutex{.owner = 3};
  auto capture = CaptureOf({FutexWait(first), FutexWait(last)});
  ASSERT_EQ(capture->futexes.size(), 2u);
  EXPECT_TRUE(capture->futexes[0].mutex.has_value());
  EXPECT_TRUE(capture->futexes[1].mutex.has_value());
  munmap(pages, 3 * page);
}

TEST_F(WaitsTest, MoreFutexesThanTheLimitAreLeftOut) {
  Connect();
  std::vector<uint32_t> words(kMaxFutexWords + 100, 1);
  std::vector<stackd_syscall> calls;
  for (uint32_t& word : words) calls.push_back(FutexWait(&word));
  auto capture = CaptureOf(calls);
  EXPECT_EQ(capture->threads.size(), words.size());
  EXPECT_EQ(capture->futexes.size(), kMaxFutexWords);
  EXPECT_THAT(capture->notes, Contains(HasSubstr("4096 futexes")));
}

TEST_F(WaitsTest, AProcessWhoseMemoryCannotBeReadIsCapturedWithoutLocksAndSaysSo) {
  stackd_hello hello = Hello(5);
  hello.flags = STACKD_HELLO_HAS_MAPS | STACKD_HELLO_HAS_PROC;
  std::vector<Fd> files = OwnFiles();
  files.erase(files.begin());
  Connect(hello, files);
  const Mutex mutex{.owner = 3};
  auto capture = CaptureOf({FutexWait(&mutex)});
  EXPECT_THAT(capture->futexes, IsEmpty());
  EXPECT_THAT(capture->notes, Contains(HasSubstr("not dumpable")));
  EXPECT_EQ(capture->threads.size(), 1u);
}

// --- Dumps: who waits still ---

ThreadCall WaitsFor(int32_t tid, uint64_t avma) {
  return {tid, SystemCall{.number = SYS_futex, .known_arguments = 3, .arguments = {avma, FUTEX_WAIT_PRIVATE}}};
}

std::vector<int32_t> TidsInCircles(const std::vector<ThreadCall>& calls, const std::vector<FutexWord>& words) {
  std::vector<int32_t> tids;
  for (const LockEdge& edge : EdgesInCircles(EdgesOf(calls, words))) tids.push_back(edge.waiter_tid);
  std::ranges::sort(tids);
  return tids;
}

TEST(ConfirmWaits, OnlyCirclesAreLookedAtAgain) {
  const std::vector<FutexWord> words = {{.avma = 8, .value = 2, .mutex = PthreadMutex{.owner_tid = 3}},
                                        {.avma = 16, .value = 4},
                                        {.avma = 24, .value = 2, .mutex = PthreadMutex{.owner_tid = 5}},
                                        {.avma = 32, .value = 3, .rwlock = GlibcRwlock{.avma = 32, .writer_tid = 1}}};
  EXPECT_THAT(TidsInCircles({WaitsFor(1, 8), WaitsFor(3, 24), WaitsFor(4, 8)}, words), IsEmpty()) << "a chain";
  EXPECT_THAT(TidsInCircles({WaitsFor(1, 8), WaitsFor(3, 32), WaitsFor(9, 8)}, words), ElementsAre(1, 3))
      << "who waits for a circle is no part of it";
  EXPECT_THAT(TidsInCircles({WaitsFor(1, 8), WaitsFor(3, 16), WaitsFor(4, 32)}, words), ElementsAre(1, 3, 4)) << "a tid";
  EXPECT_THAT(TidsInCircles({WaitsFor(3, 8), WaitsFor(5, 24)}, words), ElementsAre(3, 5)) << "each for itself";
  EXPECT_THAT(TidsInCircles({{3, SystemCall{.number = SYS_read}}, WaitsFor(5, 99)}, words), IsEmpty());
}

TEST(ConfirmWaits, OfAWaitThatARuntimeKnowsTheFutexSaysNothing) {
  const std::vector<FutexWord> words = {{.avma = 8, .value = 2, .mutex = PthreadMutex{.owner_tid = 3}},
                                        {.avma = 24, .value = 2, .mutex = PthreadMutex{.owner_tid = 1}}};
  const std::vector<ThreadCall> calls = {WaitsFor(1, 8), WaitsFor(3, 24)};
  const auto tids = [&](const std::vector<ManagedWait>& waits) {
    std::set<int32_t> found;
    for (const LockEdge& edge : EdgesInCircles(EdgesOf(calls, words, waits))) found.insert(edge.waiter_tid);
    return found;
  };
  EXPECT_THAT(tids({}), ElementsAre(1, 3));
  EXPECT_THAT(tids({{.waiter_tid = 3, .owner_tid = 7}}), IsEmpty()) << "it waits for another thread";
  EXPECT_THAT(tids({{.waiter_tid = 3, .owner_tid = 7}, {.waiter_tid = 7, .owner_tid = 1}}), ElementsAre(1, 3, 7))
      << "through locks of both kinds";
}

TEST(ConfirmWaits, AThreadWaitsStillIfItHasNotRunAndSleepsInTheSameCall) {
  const LockEdge waiter = {.waiter_tid = 7, .holder_tid = 9, .futex_avma = 8};
  const std::vector<ThreadMotion> first = {{.tid = 7, .run_count = 3}}, later = {{.tid = 7, .run_count = 4}};
  const std::vector<ThreadWait> same = {{.tid = 7, .call = WaitsFor(7, 8).call}},
                                other = {{.tid = 7, .call = WaitsFor(7, 16).call}};
  EXPECT_EQ(DoesStillWait(waiter, SleepLook(first, same, first)), StillWaits::kYes);
  EXPECT_EQ(DoesStillWait(waiter, SleepLook(first, same, later)), StillWaits::kNotClear);
  EXPECT_EQ(DoesStillWait(waiter, SleepLook(first, other, first)), StillWaits::kNo);
  EXPECT_EQ(DoesStillWait(waiter, SleepLook(first, {}, first)), StillWaits::kNotClear) << "it runs";
  EXPECT_EQ(DoesStillWait(waiter, SleepLook({}, same, {})), StillWaits::kYes) << "where the kernel does not count";
  const LockEdge of_runtime = {.waiter_tid = 7, .holder_tid = 9};
  EXPECT_EQ(DoesStillWait(of_runtime, SleepLook(first, other, first)), StillWaits::kYes);
  EXPECT_EQ(DoesStillWait(of_runtime, SleepLook(first, other, later)), StillWaits::kNotClear);
}

// Threads 1 and 2 hand two locks of a runtime back and forth: each reading is torn, and looks like a circle.
class TornReadings : public testing::Test {
 protected:
  CircleProbe Probe() {
    CircleProbe probe;
    probe.read_motion = [this] {
      if (runs_) ++runs;
      return std::vector<ThreadMotion>{{.tid = 1, .run_count = runs}, {.tid = 2, .run_count = 5}};
    };
    probe.sample = [this]() -> Result<std::vector<ThreadWait>> {
      return std::vector<ThreadWait>{{.tid = 1, .call = WaitsFor(1, 8).call}, {.tid = 2, .call = WaitsFor(2, 16).call}};
    };
    probe.read_locks = [this](const std::vector<ThreadWait>&) -> std::optional<std::vector<LockEdge>> {
      if (++readings == stands_still_at) runs_ = false;
      return std::vector<LockEdge>{{.waiter_tid = 1, .holder_tid = 2}, {.waiter_tid = 2, .holder_tid = 1}};
    };
    probe.is_connected = [] { return true; };
    return probe;
  }

  int readings = 0, stands_still_at = 0;
  uint64_t runs = 0;
  bool runs_ = true;
};

TEST_F(TornReadings, AreNoCircleHoweverOftenTheyAreEqual) {
  const ConfirmedCircles confirmed = ConfirmCircles(Probe(), MonotonicNs() + 20 * kNsPerMs);
  EXPECT_TRUE(confirmed.has_looked);
  EXPECT_GT(readings, 1);
  EXPECT_THAT(confirmed.unconfirmed_tids, ElementsAre(1));
}

TEST_F(TornReadings, AreOneWhenNoThreadHasRunFromTheFirstCountToTheSecond) {
  stands_still_at = 2;
  const ConfirmedCircles confirmed = ConfirmCircles(Probe(), MonotonicNs() + kNsPerSecond);
  EXPECT_THAT(confirmed.unconfirmed_tids, IsEmpty());
  EXPECT_EQ(readings, 2);
}

// Threads 1 and 2 wait for each other when they are asked. `later`: what the helper sees of thread 2 afterwards.
class ConfirmedWaitsTest : public WaitsTest {
 protected:
  std::shared_ptr<Capture> CaptureOfCircle(const stackd_syscall& later) {
    return CaptureOf({FutexWait(&of_2_), FutexWait(&of_1_)}, [&] {
      const uint32_t seq = agent_->AwaitCommand();
      EXPECT_EQ(agent_->ring.header->command, static_cast<uint32_t>(STACKD_COMMAND_SAMPLE));
      agent_->Begin(seq, 2);
      agent_->WriteWaits(seq, {{.tid = 1, .syscall = FutexWait(&of_2_)}, {.tid = 2, .syscall = later}});
      agent_->Finish(seq);
    });
  }

  const Mutex of_1_{.owner = 1}, of_2_{.owner = 2};
};

TEST_F(ConfirmedWaitsTest, ACircleOfThreadsThatSleepOnStays) {
  Connect();
  auto capture = CaptureOfCircle(FutexWait(&of_1_));
  EXPECT_TRUE(capture->threads[0].call.has_value());
  EXPECT_TRUE(capture->threads[1].call.has_value());
  EXPECT_THAT(capture->futexes, SizeIs(2));
}

TEST_F(ConfirmedWaitsTest, WhoHasGoneOnWhenLocksAreReadDoesNotWait) {
  Connect();
  auto capture = CaptureOfCircle(Call(SYS_clock_nanosleep, {0, 0}));
  EXPECT_TRUE(capture->threads[0].call.has_value());
  EXPECT_FALSE(capture->threads[1].call.has_value());
}

// --- Dumps: fds ---

TEST_F(WaitsTest, FdsThatThreadsPollAreReadAndNamed) {
  Connect();
  pollfd polled[] = {{.fd = 40, .events = POLLIN}, {.fd = -1}, {.fd = 12, .events = POLLOUT}, {.fd = 40}};
  fd_set read_set, write_set;
  FD_ZERO(&read_set);
  FD_ZERO(&write_set);
  FD_SET(3, &read_set);
  FD_SET(70, &write_set);
  FD_SET(200, &write_set);
  const auto address = [](const void* memory) { return reinterpret_cast<uint64_t>(memory); };
  auto capture =
      CaptureOf({Call(SYS_poll, {address(polled), 4}), Call(SYS_select, {71, address(&read_set), address(&write_set)}),
                 Call(SYS_epoll_wait, {5}), Call(SYS_splice, {8, 0, 9})},
                [&] { agent_->AnswerFds(7); });
  EXPECT_THAT(capture->threads[0].waited_fds, ElementsAre(12, 40));
  EXPECT_THAT(capture->threads[1].waited_fds, ElementsAre(3, 70)) << "below its count";
  EXPECT_THAT(capture->threads[2].waited_fds, ElementsAre(5));
  EXPECT_THAT(capture->threads[3].waited_fds, ElementsAre(8, 9));
  ASSERT_EQ(capture->fds.size(), 7u);
  EXPECT_EQ(capture->fds[0], (WaitedFd{.fd = 3, .name = "fd 3"}));
  EXPECT_EQ(capture->fds[6], (WaitedFd{.fd = 70, .name = "fd 70"}));
}

TEST_F(WaitsTest, OfAPollOfThousandsTheFirstAreRead) {
  Connect();
  std::vector<pollfd> polled;
  for (int fd = 0; fd < 5000; fd++) polled.push_back({.fd = fd});
  auto capture = CaptureOf({Call(SYS_ppoll, {reinterpret_cast<uint64_t>(polled.data()), polled.size()})},
                           [&] { agent_->AnswerFds(64); });
  EXPECT_EQ(capture->threads[0].waited_fds.size(), 64u);
  EXPECT_EQ(capture->fds.size(), 64u);
  EXPECT_EQ(capture->fds[63].name, "fd 63") << "asked for in several messages";
}

TEST_F(WaitsTest, NoMoreFdsAreAskedForThanTheLimit) {
  Connect();
  std::vector<stackd_syscall> calls;
  for (uint64_t fd = 0; fd < 300; fd++) calls.push_back(Call(SYS_read, {fd}));
  auto capture = CaptureOf(calls, [&] { agent_->AnswerFds(256); });
  EXPECT_EQ(capture->fds.size(), 256u);
  EXPECT_EQ(capture->threads[299].waited_fds, std::vector<int32_t>{299});
}

TEST_F(WaitsTest, WhatAnEpollInstanceWatchesIsKept) {
  Connect();
  auto capture = CaptureOf({Call(SYS_epoll_wait, {5})}, [&] {
    // Once what it is, once what it watches.
    agent_->AnswerFds(2, [](stackd_fd_names* answer) {
      strcpy(answer->fds[0].name, STACKD_EPOLL_NAME);
      answer->fds[0].watched_count = 1000;
      for (int i = 0; i < 16; i++) answer->fds[0].watched[i] = i == 3 ? -1 : 100 + i;
    });
  });
  ASSERT_EQ(capture->fds.size(), 1u);
  EXPECT_EQ(capture->fds[0].name, STACKD_EPOLL_NAME);
  EXPECT_EQ(capture->fds[0].watched_count, 1000u);
  EXPECT_EQ(capture->fds[0].watched.size(), 15u);
}

TEST_F(WaitsTest, AnEpollInstanceThatTheProcessNeverGetsThroughCostsNoOtherFdItsName) {
  Connect();
  auto capture = CaptureOf({Call(SYS_epoll_wait, {5}), Call(SYS_read, {7})}, [&] {
    agent_->AnswerFds(2, [](stackd_fd_names* answer) { strcpy(answer->fds[0].name, STACKD_EPOLL_NAME); });
    auto last = agent_->Receive();
    ASSERT_TRUE(last.has_value());
    EXPECT_EQ(last->type(), static_cast<uint32_t>(STACKD_MSG_DESCRIBE_EPOLLS));
    EXPECT_EQ(last->As<stackd_describe_fds>().fd_count, 1u);
    EXPECT_EQ(last->As<stackd_describe_fds>().fds[0], 5);
  });
  EXPECT_LT(took_ns_, kLongNs / 4);
  EXPECT_THAT(capture->fds, ElementsAre(WaitedFd{.fd = 5, .name = STACKD_EPOLL_NAME}, WaitedFd{.fd = 7, .name = "fd 7"}));
}

TEST_F(WaitsTest, ANameOfAnFdIsMadePrintable) {
  Connect();
  auto capture = CaptureOf({Call(SYS_read, {5})}, [&] {
    agent_->AnswerFds(1, [](stackd_fd_names* answer) {
      answer->fds[0].other_end = -7;
      memset(answer->fds[0].name, 0xff, sizeof(answer->fds[0].name));
    });
  });
  ASSERT_EQ(capture->fds.size(), 1u);
  EXPECT_EQ(capture->fds[0].other_end, -1);
  EXPECT_EQ(capture->fds[0].name, std::string(160, '?')) << "not terminated, and no UTF-8";
}

TEST_F(WaitsTest, AProcessThatNeverNamesItsFdsCostsAMomentAndNothingElse) {
  Connect();
  auto capture = CaptureOf({Call(SYS_read, {7})});
  EXPECT_LT(took_ns_, kLongNs / 4);
  EXPECT_THAT(capture->fds, ElementsAre(WaitedFd{.fd = 7}));
  EXPECT_FALSE(capture->partial);
}

TEST_F(WaitsTest, AnswersThatMakeNoSenseAreNone) {
  Connect();
  const std::vector<std::function<void(stackd_fd_names*)>> changes = {
      [](stackd_fd_names* answer) { answer->request_id += 1; },
      [](stackd_fd_names* answer) { answer->fd_count = 33; },
      [](stackd_fd_names* answer) { answer->fd_count = 0; },
      [](stackd_fd_names* answer) { answer->fds[0].fd = 8; },
      [](stackd_fd_names* answer) { answer->fds[0].error = -EBADF; },
      [](stackd_fd_names* answer) { answer->header.type = STACKD_MSG_NAME; },
  };
  for (const auto& change : changes) {
    auto capture = CaptureOf({Call(SYS_read, {7})}, [&] { agent_->AnswerFds(1, change); });
    EXPECT_THAT(capture->fds, ElementsAre(WaitedFd{.fd = 7}));
    EXPECT_EQ(capture->threads.size(), 1u);
  }
  auto capture = CaptureOf({Call(SYS_read, {7})}, [&] {
    stackd_message_header too_short{STACKD_MSG_FD_NAMES, sizeof(too_short)};
    agent_->Send(too_short);
    agent_->AnswerFds(1);
  });
  EXPECT_THAT(capture->fds, ElementsAre(WaitedFd{.fd = 7, .name = "fd 7"})) << "and the connection still stands";
}

TEST_F(WaitsTest, AProcessThatEndsBeforeItNamesItsFdsIsWholeWithoutNames) {
  Connect();
  auto capture = CaptureOf({Call(SYS_read, {7})}, [&] { agent_->Close(); });
  EXPECT_EQ(capture->threads.size(), 1u);
  EXPECT_LT(took_ns_, kLongNs / 4);
}

// --- Dumps of hangs ---

TEST_F(WaitsTest, AHangSaysWhatItWasAndForHowLongNobodyHadMoved) {
  Connect();
  request_.trigger = Trigger::kHang;
  request_.hang = HangCapture{.cause = HangCause::kDeadlock, .explanation = "two threads", .tid = 2};
  request_.unmoved_since_ns = {{1, MonotonicNs() - 60 * kNsPerSecond}, {2, MonotonicNs() + kLongNs}, {4, 0}};
  auto capture = CaptureOf({{}, {}, {}});
  EXPECT_EQ(capture->trigger, Trigger::kHang);
  ASSERT_TRUE(capture->hang.has_value());
  EXPECT_EQ(capture->hang->cause, HangCause::kDeadlock);
  EXPECT_EQ(capture->hang->explanation, "two threads");
  EXPECT_GE(capture->threads[0].unmoved_ns, 60 * kNsPerSecond);
  EXPECT_LT(capture->threads[0].unmoved_ns, 60 * kNsPerSecond + kLongNs);
  EXPECT_EQ(capture->threads[1].unmoved_ns, 0) << "not less than nothing";
  EXPECT_EQ(capture->threads[2].unmoved_ns, -1);
}

TEST_F(WaitsTest, OneThreadCanBeCapturedAlone) {
  Connect();
  CaptureOf({{}, {}, {}});
  EXPECT_EQ(agent_->ring.header->only_tid, 0u);
  request_.only_tid = 1;
  auto capture = CaptureOf({{}});
  EXPECT_EQ(agent_->ring.header->only_tid, 1u);
  EXPECT_EQ(capture->threads.size(), 1u);
  EXPECT_EQ(collector_->Processes()[0].thread_count, 3) << "the process has no fewer threads for that";
  request_.only_tid = 0;
  CaptureOf({{}, {}});
  EXPECT_EQ(agent_->ring.header->only_tid, 0u);
}

TEST_F(WaitsTest, OfOneThreadThatDoesNotAnswerNoOtherIsAccountedFor) {
  Connect();
  request_.only_tid = gettid();
  request_.deadline_ns = MonotonicNs() + 20 * kNsPerMs;
  auto capture = collector_->CaptureProcess(kId, request_);
  ASSERT_TRUE(capture.has_value());
  ASSERT_EQ((*capture)->threads.size(), 1u);
  EXPECT_EQ((*capture)->threads[0].tid, gettid());
  EXPECT_EQ((*capture)->threads[0].status, ThreadStatus::kTimedOut);
}

// --- Samples ---

TEST_F(WaitsTest, ASampleGivesWhatEachThreadSleepsIn) {
  Connect();
  std::thread helper([&] {
    const uint32_t seq = agent_->AwaitCommand();
    EXPECT_EQ(agent_->ring.header->command, static_cast<uint32_t>(STACKD_COMMAND_SAMPLE));
    EXPECT_EQ(agent_->ring.header->only_tid, 0u);
    agent_->Begin(seq, 3);
    agent_->WriteWaits(seq + 1, {{.tid = 9}});
    agent_->WriteWaits(seq, {{.tid = 1, .rsp = 0x7000, .rip = 0x4000, .syscall = Call(SYS_read, {7})}, {.tid = 2}});
    agent_->WriteWaits(seq, {{.tid = 3}});
    agent_->Finish(seq);
  });
  auto waits = collector_->SampleWaits(kId, MonotonicNs() + kLongNs);
  helper.join();
  ASSERT_TRUE(waits.has_value()) << waits.error().message;
  ASSERT_EQ(waits->size(), 3u) << "those of another sample are not taken";
  EXPECT_EQ((*waits)[0].tid, 1);
  EXPECT_EQ((*waits)[0].rsp_avma, 0x7000u);
  EXPECT_EQ((*waits)[0].rip_avma, 0x4000u);
  EXPECT_EQ((*waits)[0].call->number, static_cast<uint32_t>(SYS_read));
  EXPECT_FALSE((*waits)[1].call.has_value());
  EXPECT_EQ(collector_->Counters()["captures"], 0);
}

TEST_F(WaitsTest, AProcessThatMayNotLookAtItsThreadsSaysSoAmongItsLimits) {
  Connect();
  const auto limits = [&] { return collector_->Processes()[0].limits; };
  const auto sample = [&](int32_t failure) {
    std::thread helper([&] {
      const uint32_t seq = agent_->AwaitCommand();
      agent_->ring.header->failure = failure;
      agent_->Begin(seq, 3);
      agent_->WriteWaits(seq, {{.tid = 1}});
      agent_->Finish(seq);
    });
    auto waits = collector_->SampleWaits(kId, MonotonicNs() + kLongNs);
    helper.join();
    return waits;
  };
  const std::vector<std::string> before = limits();
  for (int32_t failure : {-EACCES, INT32_MIN, -EACCES}) {
    auto waits = sample(failure);
    ASSERT_FALSE(waits.has_value());
    EXPECT_EQ(waits.error().code, Code::kFailedPrecondition);
    EXPECT_EQ(limits().size(), before.size() + 1);
  }
  EXPECT_EQ(
      limits().back(),
      "what its threads sleep in cannot be read (Permission denied): deadlocks and standstills of it are not noticed");
  EXPECT_TRUE(sample(0).has_value());
  EXPECT_EQ(limits(), before);
}

TEST_F(WaitsTest, ADumpOfAProcessThatCannotListItsThreadsEndsAtOnceAndSaysWhy) {
  Connect();
  std::thread helper([&] {
    const uint32_t seq = agent_->AwaitCommand();
    agent_->ring.header->failure = -EMFILE;
    agent_->Finish(seq);
  });
  const int64_t begin_ns = MonotonicNs();
  auto capture = collector_->CaptureProcess(kId, {.deadline_ns = MonotonicNs() + kLongNs});
  helper.join();
  EXPECT_LT(MonotonicNs() - begin_ns, kLongNs / 4);
  ASSERT_TRUE(capture.has_value());
  EXPECT_TRUE((*capture)->partial);
  EXPECT_THAT((*capture)->notes, Contains("its agent could not list its threads: Too many open files"));
}

TEST_F(WaitsTest, ASampleGivesWayToADump) {
  Connect();
  std::promise<void> sampling;
  std::thread helper([&] {
    const uint32_t sample_seq = agent_->AwaitCommand();
    sampling.set_value();
    const uint32_t seq = agent_->AwaitCommand();
    EXPECT_EQ(agent_->ring.header->command, static_cast<uint32_t>(STACKD_COMMAND_DUMP));
    EXPECT_EQ(__atomic_load_n(&agent_->ring.header->cancel_seq, __ATOMIC_SEQ_CST), sample_seq);
    agent_->AnswerDump(seq, 2);
  });
  Result<std::vector<ThreadWait>> waits;
  std::thread detector([&] { waits = collector_->SampleWaits(kId, MonotonicNs() + kLongNs); });
  sampling.get_future().wait();
  const int64_t begin_ns = MonotonicNs();
  auto capture = collector_->CaptureProcess(kId, {.deadline_ns = MonotonicNs() + kLongNs});
  EXPECT_LT(MonotonicNs() - begin_ns, kLongNs / 4);
  helper.join();
  detector.join();
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ((*capture)->threads.size(), 2u);
  ASSERT_FALSE(waits.has_value());
  EXPECT_EQ(waits.error().code, Code::kAborted);
}

TEST_F(WaitsTest, ASampleWaitsForADumpThatRuns) {
  Connect();
  std::promise<void> dumping;
  std::promise<void> finish;
  std::thread helper([&] {
    const uint32_t seq = agent_->AwaitCommand();
    dumping.set_value();
    finish.get_future().wait();
    agent_->AnswerDump(seq, 2);
  });
  std::thread dump([&] { collector_->CaptureProcess(kId, {.deadline_ns = MonotonicNs() + kLongNs}); });
  dumping.get_future().wait();
  auto waits = collector_->SampleWaits(kId, MonotonicNs() + 10 * kNsPerMs);
  finish.set_value();
  helper.join();
  dump.join();
  ASSERT_FALSE(waits.has_value());
  EXPECT_EQ(waits.error().code, Code::kDeadlineExceeded);
}

TEST_F(WaitsTest, ASampleOfAProcessThatDoesNotAnswerEndsByItsDeadline) {
  Connect();
  auto waits = collector_->SampleWaits(kId, MonotonicNs() + 10 * kNsPerMs);
  ASSERT_FALSE(waits.has_value());
  EXPECT_EQ(waits.error().code, Code::kDeadlineExceeded);
}

TEST_F(WaitsTest, ASampleOfAProcessThatEndsIsNotFound) {
  Connect();
  std::thread helper([&] {
    agent_->AwaitCommand();
    agent_->Close();
  });
  auto waits = collector_->SampleWaits(kId, MonotonicNs() + kLongNs);
  helper.join();
  ASSERT_FALSE(waits.has_value());
  EXPECT_EQ(waits.error().code, Code::kNotFound);
}

TEST_F(WaitsTest, OfAProcessThatIsNotThereNothingIsKnown) {
  EXPECT_EQ(collector_->ReadMotion("9-9").error().code, Code::kNotFound);
  EXPECT_EQ(collector_->SampleWaits("9-9", MonotonicNs()).error().code, Code::kNotFound);
  EXPECT_EQ(collector_->ReadFutexes("9-9", {}).error().code, Code::kNotFound);
  EXPECT_EQ(collector_->Heartbeats("9-9").error().code, Code::kNotFound);
  EXPECT_EQ(collector_->StateOf("9-9", 0), 0);
}

// --- Where the memory may not be read ---

stackd_wait_answer LockAnswer(const Mutex& mutex) {
  stackd_wait_answer answer{};
  answer.count = sizeof(mutex);
  memcpy(answer.lock, &mutex, sizeof(mutex));
  return answer;
}

class AskedWaitsTest : public WaitsTest {
 protected:
  AskedWaitsTest() {
    stackd_hello hello = Hello(5);
    hello.flags = STACKD_HELLO_HAS_MAPS | STACKD_HELLO_HAS_PROC;
    hello.share = STACKD_SHARE_STACKS;
    std::vector<Fd> files;
    files.push_back(OpenProc("maps"));
    files.push_back(OpenProc(""));
    Connect(hello, files);
  }

  const Mutex mutex_{.owner = 3};
};

TEST_F(AskedWaitsTest, TheProcessTellsWhoHasItsLocks) {
  std::vector<stackd_wait_question> asked;
  agent_->answer_wait = [&](const stackd_wait_question& question) {
    asked.push_back(question);
    return LockAnswer(mutex_);
  };
  const auto capture = CaptureOf({FutexWait(&mutex_), FutexWait(&mutex_)});
  ASSERT_THAT(capture->futexes, SizeIs(1));
  EXPECT_EQ(capture->futexes[0].avma, reinterpret_cast<uint64_t>(&mutex_));
  EXPECT_EQ(capture->futexes[0].mutex->owner_tid, 3);
  ASSERT_THAT(asked, SizeIs(1)) << "each futex once";
  EXPECT_EQ(asked[0].kind, STACKD_ASK_LOCK);
  EXPECT_EQ(capture->process.share, Share::kStacks);
  EXPECT_EQ(capture->memory_read_bytes, static_cast<int64_t>(sizeof(mutex_)));
  EXPECT_EQ(capture->memory, nullptr);
  EXPECT_THAT(capture->notes, Contains(HasSubstr("STACKD_SHARE=stacks")));
}

class LateMemoryTest : public WaitsTest {
 protected:
  void ConnectWith(uint32_t more_flags) {
    stackd_hello hello = Hello(5);
    hello.flags = STACKD_HELLO_HAS_MAPS | more_flags;
    hello.share = STACKD_SHARE_NAMES;
    std::vector<Fd> maps;
    maps.push_back(OpenProc("maps"));
    Connect(hello, maps);
  }

  void PassMemory() {
    std::vector<Fd> memory;
    memory.push_back(OpenProc("mem"));
    agent_->Send(stackd_message_header{STACKD_MSG_MEMORY, sizeof(stackd_message_header)}, memory);
    agent_->ring.header->memory_passed = 1;
  }

  const Mutex mutex_{.owner = 3};
};

TEST_F(LateMemoryTest, WhoChoseNoLevelMaySendItWhenARuntimeIsFound) {
  ConnectWith(STACKD_HELLO_SHARES_AS_NEEDED);
  const auto before = CaptureOf({FutexWait(&mutex_)});
  EXPECT_EQ(before->process.share, Share::kNames);
  EXPECT_EQ(before->memory, nullptr);
  EXPECT_THAT(before->notes, Not(Contains(HasSubstr("STACKD_SHARE"))));
  PassMemory();
  const auto capture = CaptureOf({FutexWait(&mutex_)});
  EXPECT_EQ(capture->process.share, Share::kMemory);
  EXPECT_NE(capture->memory, nullptr);
  ASSERT_THAT(capture->futexes, SizeIs(1));
  EXPECT_EQ(capture->futexes[0].mutex->owner_tid, 3);
}

TEST_F(LateMemoryTest, WhoChoseALevelKeepsIt) {
  ConnectWith(0);
  PassMemory();
  const auto capture = CaptureOf({FutexWait(&mutex_)});
  EXPECT_EQ(capture->process.share, Share::kNames);
  EXPECT_EQ(capture->memory, nullptr);
}

TEST_F(AskedWaitsTest, AThreadThatIsNotBackInItsCallIsAskedForAgain) {
  std::vector<int32_t> asked;
  agent_->answer_wait = [&](const stackd_wait_question& question) {
    asked.push_back(question.tid);
    return asked.size() < 3 ? stackd_wait_answer{.error = -EAGAIN} : LockAnswer(mutex_);
  };
  const auto capture = CaptureOf({FutexWait(&mutex_), FutexWait(&mutex_)});
  EXPECT_THAT(capture->futexes, SizeIs(1));
  EXPECT_THAT(asked, ElementsAre(1, 2, 1)) << "any of those that wait";
}

TEST_F(AskedWaitsTest, AFutexThatNobodyWaitsOnAnyMoreIsMissing) {
  agent_->answer_wait = [](const stackd_wait_question&) { return stackd_wait_answer{.error = -EAGAIN}; };
  EXPECT_THAT(CaptureOf({FutexWait(&mutex_)})->futexes, IsEmpty());
}

TEST_F(AskedWaitsTest, AnAnswerWithoutSenseIsNone) {
  for (const auto& [count, offset] : {std::pair{9999u, 0u}, {64u, 60u}, {64u, 4000u}, {3u, 0u}, {0u, 0u}}) {
    agent_->answer_wait = [=](const stackd_wait_question&) {
      return stackd_wait_answer{.count = count, .word_offset = offset};
    };
    EXPECT_THAT(CaptureOf({FutexWait(&mutex_)})->futexes, IsEmpty()) << count << " " << offset;
  }
}

TEST_F(AskedWaitsTest, TheProcessTellsWhichFdsItPolls) {
  agent_->answer_wait = [](const stackd_wait_question& question) {
    stackd_wait_answer answer{.count = question.kind == STACKD_ASK_FD_TABLE ? 3u : 0u};
    answer.fds[0] = 4;
    answer.fds[1] = -7;
    answer.fds[2] = 9;
    return answer;
  };
  const auto capture = CaptureOf({Call(SYS_poll, {4096, 3, 0})});
  EXPECT_THAT(capture->threads[0].waited_fds, ElementsAre(4, 9));
}

TEST_F(AskedWaitsTest, LocksAreAskedForBetweenDumps) {
  std::atomic<bool> is_over = false;
  agent_->answer_wait = [&](const stackd_wait_question&) { return LockAnswer(mutex_); };
  std::thread helper([&] { agent_->AnswerFilesUntil(is_over); });
  const stackd::FutexWait waits[] = {{1, reinterpret_cast<uint64_t>(&mutex_)}};
  auto words = collector_->ReadFutexes(kId, waits);
  // It waits for no longer than the detector may.
  for (int64_t until_ns = MonotonicNs() + kLongNs; words && words->empty() && MonotonicNs() < until_ns;) {
    words = collector_->ReadFutexes(kId, waits);
  }
  is_over = true;
  helper.join();
  ASSERT_TRUE(words.has_value());
  ASSERT_THAT(*words, SizeIs(1));
  EXPECT_EQ((*words)[0].mutex->owner_tid, 3);
}

TEST_F(AskedWaitsTest, AProcessThatDoesNotAnswerHasNoLocksAndItsDumpEnds) {
  EXPECT_THAT(CaptureOf({FutexWait(&mutex_)})->futexes, IsEmpty());
  EXPECT_LT(took_ns_, kLongNs);
}

// --- Motion, futexes, states ---

TEST_F(WaitsTest, MotionTellsAThreadThatRunsFromOneThatSleeps) {
  Connect();
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  std::promise<int32_t> sleeper_tid;
  std::thread sleeper([&] {
    std::unique_lock lock(mutex);
    sleeper_tid.set_value(gettid());
    changed.wait(lock, [&] { return stop; });
  });
  const int32_t sleeping = sleeper_tid.get_future().get();
  while (collector_->StateOf(kId, sleeping) != 'S') sched_yield();
  const auto motion_of = [&](int32_t tid) {
    auto motions = collector_->ReadMotion(kId);
    EXPECT_TRUE(motions.has_value());
    auto motion = std::ranges::find(*motions, tid, &ThreadMotion::tid);
    EXPECT_NE(motion, motions->end());
    return *motion;
  };
  const ThreadMotion asleep = motion_of(sleeping), awake = motion_of(gettid());
  for (int64_t until_ns = MonotonicNs() + 20 * kNsPerMs; MonotonicNs() < until_ns;) sched_yield();
  EXPECT_EQ(motion_of(sleeping).run_count, asleep.run_count);
  EXPECT_EQ(motion_of(sleeping).run_ns, asleep.run_ns);
  EXPECT_GT(motion_of(gettid()).run_ns, awake.run_ns);
  EXPECT_GT(asleep.run_count, 0u);
  {
    std::lock_guard lock(mutex);
    stop = true;
    changed.notify_all();
  }
  sleeper.join();
}

TEST_F(WaitsTest, MotionOfAProcessThatPassedNoFolderIsUnavailable) {
  stackd_hello hello = Hello(5);
  hello.flags = STACKD_HELLO_HAS_MEM;
  std::vector<Fd> files;
  files.push_back(OpenProc("mem"));
  Connect(hello, files);
  EXPECT_EQ(collector_->ReadMotion(kId).error().code, Code::kUnavailable);
  EXPECT_EQ(collector_->StateOf(kId, 0), 0);
}

TEST_F(WaitsTest, FutexesCanBeReadBetweenDumps) {
  Connect();
  const Mutex mutex{.owner = 3};
  const stackd::FutexWait waits[] = {
      {1, reinterpret_cast<uint64_t>(&mutex)}, {2, 8}, {3, reinterpret_cast<uint64_t>(&mutex)}};
  auto words = collector_->ReadFutexes(kId, waits);
  ASSERT_TRUE(words.has_value());
  ASSERT_EQ(words->size(), 1u);
  EXPECT_EQ((*words)[0].mutex->owner_tid, 3);
}

TEST_F(WaitsTest, FutexesOfAProcessWhoseMemoryCannotBeReadAreUnavailable) {
  stackd_hello hello = Hello(5);
  hello.flags = 0;
  Connect(hello, {});
  EXPECT_EQ(collector_->ReadFutexes(kId, {}).error().code, Code::kUnavailable);
}

TEST(MemoryReader, GivesUpReadsThatHangAndLaterAllOfThem) {
  MemoryReader reader(OwnProcess());
  auto gate = std::make_shared<std::promise<void>>();
  auto open = std::make_shared<std::shared_future<void>>(gate->get_future());
  int gave_up = 0;
  for (int i = 0; i < 4; i++) {
    gave_up += !reader.Run(MonotonicNs() + kNsPerMs, [open](const ProcessFiles&) { open->wait(); });
  }
  EXPECT_EQ(gave_up, 4);
  EXPECT_FALSE(reader.Run(MonotonicNs() + kLongNs, [](const ProcessFiles&) {})) << "at once";
  gate->set_value();
  bool works = false;
  for (int64_t until_ns = MonotonicNs() + kLongNs; !works && MonotonicNs() < until_ns; sched_yield()) {
    works = reader.Run(MonotonicNs() + kLongNs, [](const ProcessFiles&) {});
  }
  EXPECT_TRUE(works);
}

// --- Heartbeats ---

TEST_F(WaitsTest, HeartbeatsAreThoseRegisteredNow) {
  Connect();
  EXPECT_THAT(*collector_->Heartbeats(kId), IsEmpty());
  stackd_heartbeat_cell& loop = agent_->heartbeat(3);
  loop.beats = 17;
  loop.tid = 12;
  strcpy(loop.name, "event-loop");
  EXPECT_THAT(*collector_->Heartbeats(kId), IsEmpty()) << "without a limit it is free";
  loop.limit_ms = 5000;
  agent_->heartbeat(63).limit_ms = 1;
  memset(agent_->heartbeat(63).name, 0xff, 48);
  agent_->heartbeat(63).name[0] = '\n';
  auto heartbeats = collector_->Heartbeats(kId);
  ASSERT_TRUE(heartbeats.has_value());
  ASSERT_EQ(heartbeats->size(), 2u);
  EXPECT_EQ((*heartbeats)[0].name, "event-loop");
  EXPECT_EQ((*heartbeats)[0].tid, 12);
  EXPECT_EQ((*heartbeats)[0].limit_ns, 5 * kNsPerSecond);
  EXPECT_EQ((*heartbeats)[0].beats, 17u);
  EXPECT_EQ((*heartbeats)[0].cell, 3u);
  EXPECT_EQ((*heartbeats)[1].name, std::string(48, '?'));
  EXPECT_EQ((*heartbeats)[1].limit_ns, 10 * kNsPerMs) << "no limit is shorter";
  EXPECT_EQ((*heartbeats)[1].beats, 0u);
  EXPECT_EQ((*heartbeats)[1].cell, 63u);
  loop.limit_ms = 0;
  EXPECT_THAT(*collector_->Heartbeats(kId), SizeIs(1));
}

}  // namespace
}  // namespace stackd
