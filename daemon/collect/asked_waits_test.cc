// Waits of a process that tells them, since its memory may not be read.
#include <string.h>

#include <atomic>
#include <thread>
#include <utility>

#include "daemon/collect/testing/waits_fixture.h"

namespace stackd {
namespace {

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
  const auto capture = CaptureOf({FutexCall(&mutex_), FutexCall(&mutex_)});
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
  const auto before = CaptureOf({FutexCall(&mutex_)});
  EXPECT_EQ(before->process.share, Share::kNames);
  EXPECT_EQ(before->memory, nullptr);
  EXPECT_THAT(before->notes, Not(Contains(HasSubstr("STACKD_SHARE"))));
  PassMemory();
  const auto capture = CaptureOf({FutexCall(&mutex_)});
  EXPECT_EQ(capture->process.share, Share::kMemory);
  EXPECT_NE(capture->memory, nullptr);
  ASSERT_THAT(capture->futexes, SizeIs(1));
  EXPECT_EQ(capture->futexes[0].mutex->owner_tid, 3);
}

TEST_F(LateMemoryTest, WhoChoseALevelKeepsIt) {
  ConnectWith(0);
  PassMemory();
  const auto capture = CaptureOf({FutexCall(&mutex_)});
  EXPECT_EQ(capture->process.share, Share::kNames);
  EXPECT_EQ(capture->memory, nullptr);
}

TEST_F(AskedWaitsTest, AThreadThatIsNotBackInItsCallIsAskedForAgain) {
  std::vector<int32_t> asked;
  agent_->answer_wait = [&](const stackd_wait_question& question) {
    asked.push_back(question.tid);
    return asked.size() < 3 ? stackd_wait_answer{.error = -EAGAIN} : LockAnswer(mutex_);
  };
  const auto capture = CaptureOf({FutexCall(&mutex_), FutexCall(&mutex_)});
  EXPECT_THAT(capture->futexes, SizeIs(1));
  EXPECT_THAT(asked, ElementsAre(1, 2, 1)) << "any of those that wait";
}

TEST_F(AskedWaitsTest, AFutexThatNobodyWaitsOnAnyMoreIsMissing) {
  agent_->answer_wait = [](const stackd_wait_question&) { return stackd_wait_answer{.error = -EAGAIN}; };
  EXPECT_THAT(CaptureOf({FutexCall(&mutex_)})->futexes, IsEmpty());
}

TEST_F(AskedWaitsTest, AnAnswerWithoutSenseIsNone) {
  for (const auto& [count, offset] : {std::pair{9999u, 0u}, {64u, 60u}, {64u, 4000u}, {3u, 0u}, {0u, 0u}}) {
    agent_->answer_wait = [=](const stackd_wait_question&) {
      return stackd_wait_answer{.count = count, .word_offset = offset};
    };
    EXPECT_THAT(CaptureOf({FutexCall(&mutex_)})->futexes, IsEmpty()) << count << " " << offset;
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
  const FutexWait waits[] = {{1, reinterpret_cast<uint64_t>(&mutex_)}};
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
  EXPECT_THAT(CaptureOf({FutexCall(&mutex_)})->futexes, IsEmpty());
  EXPECT_LT(took_ns_, kLongNs);
}

}  // namespace
}  // namespace stackd
