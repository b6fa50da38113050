// What a capture says of the waits of its threads.
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>

#include <functional>
#include <string>

#include "daemon/collect/testing/waits_fixture.h"
#include "daemon/process/futex_words.h"

namespace stackd {
namespace {

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
  auto capture = CaptureOf({FutexCall(&mutex), FutexCall(&mutex), FutexCall(&other), Call(SYS_read, {7})},
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

TEST_F(WaitsTest, AFutexIsSharedWhereItsMemoryIsWhateverItsLockSays) {
  Connect();
  constexpr int32_t kSharedKind = 128;
  const Mutex own{.owner = 3, .kind = kSharedKind};
  void* pages = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const auto* shared = new (pages) Mutex{.owner = 3};
  const auto capture = CaptureOf({FutexCall(&own), FutexCall(shared)});
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
  EXPECT_EQ(CaptureOf({FutexCall(lock)})->futexes.at(0).stdio_owner_tid, 0) << "nobody waits";
  lock[0] = 2;
  // As older versions of glibc count, and as newer ones do.
  const int count = lock[1];
  for (const int held : {1, 0}) {
    lock[1] = held;
    const auto capture = CaptureOf({FutexCall(lock)});
    ASSERT_EQ(capture->futexes.size(), 1u);
    EXPECT_EQ(capture->futexes[0].stdio_owner_tid, gettid()) << held;
  }
  lock[0] = 1;
  lock[1] = count;
  funlockfile(stream);
  fclose(stream);
}

TEST_F(WaitsTest, AFutexInTheControlBlockOfAThreadIsThatThreads) {
  Connect();
  // Where glibc 2.43 has the word that joining waits on, and its last words.
  const auto block = reinterpret_cast<uint64_t>(pthread_self());
  const auto capture = CaptureOf({FutexCall(reinterpret_cast<const void*>(block + 0x628))});
  ASSERT_EQ(capture->futexes.size(), 1u);
  EXPECT_EQ(capture->futexes[0].thread_tid, gettid());
}

TEST_F(WaitsTest, AFutexThatCannotBeReadIsMissingAndTheOthersAreNot) {
  Connect();
  const Mutex mutex{.owner = 3};
  auto capture =
      CaptureOf({FutexCall(reinterpret_cast<uint32_t*>(16)), FutexCall(&mutex),
                 FutexCall(reinterpret_cast<uint32_t*>(~7ull)), FutexCall(reinterpret_cast<const char*>(&mutex) + 1)});
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
  auto capture = CaptureOf({FutexCall(first), FutexCall(last)});
  ASSERT_EQ(capture->futexes.size(), 2u);
  EXPECT_TRUE(capture->futexes[0].mutex.has_value());
  EXPECT_TRUE(capture->futexes[1].mutex.has_value());
  munmap(pages, 3 * page);
}

TEST_F(WaitsTest, MoreFutexesThanTheLimitAreLeftOut) {
  Connect();
  std::vector<uint32_t> words(kMaxFutexWords + 100, 1);
  std::vector<stackd_syscall> calls;
  for (uint32_t& word : words) calls.push_back(FutexCall(&word));
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
  auto capture = CaptureOf({FutexCall(&mutex)});
  EXPECT_THAT(capture->futexes, IsEmpty());
  EXPECT_THAT(capture->notes, Contains(HasSubstr("not dumpable")));
  EXPECT_EQ(capture->threads.size(), 1u);
}

// --- Dumps: cycles ---

// Threads 1 and 2 wait for each other when they are asked. `later`: what the helper sees of thread 2 afterwards.
class ConfirmedWaitsTest : public WaitsTest {
 protected:
  std::shared_ptr<Capture> CaptureOfCycle(const stackd_syscall& later) {
    return CaptureOf({FutexCall(&of_2_), FutexCall(&of_1_)}, [&] {
      const uint32_t seq = agent_->AwaitCommand();
      EXPECT_EQ(agent_->ring.header->command, static_cast<uint32_t>(STACKD_COMMAND_SAMPLE));
      agent_->Begin(seq, 2);
      agent_->WriteWaits(seq, {{.tid = 1, .syscall = FutexCall(&of_2_)}, {.tid = 2, .syscall = later}});
      agent_->Finish(seq);
    });
  }

  const Mutex of_1_{.owner = 1}, of_2_{.owner = 2};
};

TEST_F(ConfirmedWaitsTest, ACycleOfThreadsThatSleepOnStays) {
  Connect();
  auto capture = CaptureOfCycle(FutexCall(&of_1_));
  EXPECT_TRUE(capture->threads[0].call.has_value());
  EXPECT_TRUE(capture->threads[1].call.has_value());
  EXPECT_THAT(capture->futexes, SizeIs(2));
}

TEST_F(ConfirmedWaitsTest, WhoHasGoneOnWhenLocksAreReadDoesNotWait) {
  Connect();
  auto capture = CaptureOfCycle(Call(SYS_clock_nanosleep, {0, 0}));
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
  capture = CaptureOf({Call(SYS_read, {7})}, [&] {
    agent_->AnswerFds(1, [&](stackd_fd_names* answer) { agent_->SendFile(answer->request_id, 0, {}); });
  });
  EXPECT_THAT(capture->fds, ElementsAre(WaitedFd{.fd = 7, .name = "fd 7"})) << "the number of another kind of question";
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
  request_.past = {{1, {.unmoved_since_ns = MonotonicNs() - 60 * kNsPerSecond}},
                   {2, {.unmoved_since_ns = MonotonicNs() + kLongNs, .absent_at_ns = MonotonicNs() - 9 * kNsPerSecond}},
                   {4, {.unmoved_since_ns = 0}}};
  auto capture = CaptureOf({{}, {}, {}});
  EXPECT_EQ(capture->trigger, Trigger::kHang);
  ASSERT_TRUE(capture->hang.has_value());
  EXPECT_EQ(capture->hang->cause, HangCause::kDeadlock);
  EXPECT_EQ(capture->hang->explanation, "two threads");
  EXPECT_GE(capture->threads[0].unmoved_ns, 60 * kNsPerSecond);
  EXPECT_LT(capture->threads[0].unmoved_ns, 60 * kNsPerSecond + kLongNs);
  EXPECT_EQ(capture->threads[1].unmoved_ns, 0) << "not less than nothing";
  EXPECT_EQ(capture->threads[2].unmoved_ns, -1);
  EXPECT_EQ(capture->threads[0].absent_ns, -1);
  EXPECT_GE(capture->threads[1].absent_ns, 9 * kNsPerSecond);
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

}  // namespace
}  // namespace stackd
