extern "C" {
#include "agent/helper/wait_words.h"

#include "agent/dump/procfs_task.h"
#include "agent/signals/sigterm.h"
#include "agent/sys/private_fd.h"
}

#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace {

using testing::ElementsAre;
using testing::SizeIs;

// A thread that sleeps in `wait`; `wake` ends that.
class Waiter {
 public:
  Waiter(uint32_t number, std::function<void()> wait, std::function<void()> wake)
      : wake_(std::move(wake)), thread_([this, wait = std::move(wait)] {
          tid_ = gettid();
          wait();
        }) {
    const int tasks = stackd_task_open();
    stackd_task_sleep sleep{};
    while (tid_ == 0 || stackd_task_read_sleep(tasks, static_cast<uint32_t>(tid_), &sleep) != 0 ||
           sleep.call.number != number) {
      std::this_thread::yield();
    }
    stackd_own_fd_drop(tasks);
  }
  ~Waiter() {
    wake_();
    thread_.join();
  }
  int32_t tid() const { return tid_; }

 private:
  const std::function<void()> wake_;
  std::atomic<int32_t> tid_ = 0;
  std::thread thread_;
};

uint64_t Address(const void* at) { return reinterpret_cast<uint64_t>(at); }

stackd_wait_answer Ask(uint32_t kind, int32_t tid, uint64_t avma) {
  stackd_ask_waits request{};
  request.question_count = 1;
  request.questions[0] = {kind, tid, avma};
  static struct stackd_wait_words words;
  stackd_wait_words(&request, &words);
  EXPECT_EQ(words.answer_count, 1u);
  return words.answers[0];
}

std::vector<int32_t> FdsOf(const Waiter& waiter) {
  const stackd_wait_answer answer = Ask(STACKD_ASK_FD_TABLE, waiter.tid(), 0);
  EXPECT_EQ(answer.error, 0);
  return {answer.fds, answer.fds + answer.count};
}

struct HeldMutex {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  const int error = pthread_mutex_lock(&mutex);  // before the other comes
  Waiter waiter{SYS_futex,
                [this] {
                  pthread_mutex_lock(&mutex);
                  pthread_mutex_unlock(&mutex);
                },
                [this] { pthread_mutex_unlock(&mutex); }};
};

TEST(WaitWords, TellsWhatLiesAroundTheFutexThatAThreadWaitsOn) {
  HeldMutex held;
  const stackd_wait_answer answer = Ask(STACKD_ASK_LOCK, held.waiter.tid(), Address(&held.mutex));
  ASSERT_EQ(answer.error, 0);
  ASSERT_EQ(answer.count, answer.word_offset + STACKD_LOCK_BYTES_FROM);
  EXPECT_EQ(memcmp(answer.lock + answer.word_offset, &held.mutex, sizeof(held.mutex)), 0);
  EXPECT_EQ(answer.thread_tid, 0);
  EXPECT_EQ(answer.stdio_owner_tid, 0);
}

TEST(WaitWords, TellsNothingOfAnAddressThatNoThreadWaitsOn) {
  HeldMutex held;
  const char secret[128] = "a secret";
  for (const uint64_t avma : {Address(secret), Address(&held.mutex) + 4, Address(&held.mutex) - 4, uint64_t{0}}) {
    const stackd_wait_answer answer = Ask(STACKD_ASK_LOCK, held.waiter.tid(), avma);
    EXPECT_EQ(answer.error, -EAGAIN);
    const stackd_wait_answer nothing{.error = -EAGAIN};
    EXPECT_EQ(memcmp(&answer, &nothing, sizeof(answer)), 0);
  }
  EXPECT_EQ(Ask(STACKD_ASK_LOCK, gettid(), Address(&held.mutex)).error, -EAGAIN) << "another thread";
  EXPECT_LT(Ask(STACKD_ASK_LOCK, 1 << 30, Address(&held.mutex)).error, 0) << "no thread";
  EXPECT_EQ(Ask(99, held.waiter.tid(), Address(&held.mutex)).error, -EINVAL);
}

TEST(WaitWords, TellsWhomAThreadJoins) {
  HeldMutex held;
  std::atomic<bool> is_over = false;
  std::atomic<int32_t> joined_tid = 0;
  Waiter joining(
      SYS_futex,
      [&] {
        std::thread sleeper([&] {
          joined_tid = gettid();
          while (!is_over) usleep(1000);
        });
        sleeper.join();
      },
      [&] { is_over = true; });
  while (joined_tid == 0) std::this_thread::yield();
  const int tasks = stackd_task_open();
  stackd_task_sleep sleep{};
  ASSERT_EQ(stackd_task_read_sleep(tasks, static_cast<uint32_t>(joining.tid()), &sleep), 0);
  stackd_own_fd_drop(tasks);
  EXPECT_EQ(Ask(STACKD_ASK_LOCK, joining.tid(), sleep.call.arguments[0]).thread_tid, joined_tid);
}

TEST(WaitWords, TellsWhoHasAStream) {
  FILE* stream = tmpfile();
  flockfile(stream);
  Waiter waiter(
      SYS_futex,
      [&] {
        flockfile(stream);
        funlockfile(stream);
      },
      [&] { funlockfile(stream); });
  const int tasks = stackd_task_open();
  stackd_task_sleep sleep{};
  ASSERT_EQ(stackd_task_read_sleep(tasks, static_cast<uint32_t>(waiter.tid()), &sleep), 0);
  stackd_own_fd_drop(tasks);
  EXPECT_EQ(Ask(STACKD_ASK_LOCK, waiter.tid(), sleep.call.arguments[0]).stdio_owner_tid, gettid());
}

// Readable for good from Ring() on.
class Event {
 public:
  ~Event() { close(fd); }
  void Ring() const {
    const uint64_t one = 1;
    EXPECT_EQ(write(fd, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }

  const int fd = eventfd(0, EFD_CLOEXEC);
};

TEST(WaitWords, TellsTheFdsOfAPoll) {
  const Event event, other;
  Waiter polling(
      SYS_poll,
      [&] {
        pollfd fds[] = {{other.fd, POLLIN, 0}, {-1, POLLIN, 0}, {event.fd, POLLIN, 0}, {other.fd, POLLIN, 0}};
        poll(fds, 4, -1);
      },
      [&] { event.Ring(); });
  EXPECT_THAT(FdsOf(polling), ElementsAre(event.fd, other.fd));
  EXPECT_EQ(Ask(STACKD_ASK_FD_TABLE, gettid(), 0).error, -EAGAIN);
}

TEST(WaitWords, TellsTheFdsOfASelect) {
  const Event event;
  Waiter selecting(
      SYS_pselect6,
      [&] {
        fd_set readers;
        FD_ZERO(&readers);
        FD_SET(event.fd, &readers);
        pselect(event.fd + 1, &readers, nullptr, nullptr, nullptr, nullptr);
      },
      [&] { event.Ring(); });
  EXPECT_THAT(FdsOf(selecting), ElementsAre(event.fd));
}

TEST(WaitWords, TellsNoMoreThan64OfManyFds) {
  const Event event;
  std::vector<pollfd> fds;
  for (int i = 0; i < 200; i++) fds.push_back({dup(event.fd), POLLIN, 0});
  {
    Waiter polling(SYS_poll, [&] { poll(fds.data(), fds.size(), -1); }, [&] { event.Ring(); });
    EXPECT_THAT(FdsOf(polling), SizeIs(STACKD_MAX_TABLE_FDS));
  }
  for (const pollfd& fd : fds) close(fd.fd);
}

TEST(WaitWords, TellsHowAThreadIs) {
  HeldMutex held;
  const stackd_wait_answer answer = Ask(STACKD_ASK_THREAD, held.waiter.tid(), 0);
  EXPECT_EQ(answer.error, 0);
  EXPECT_EQ(answer.count, static_cast<uint32_t>('S'));
  EXPECT_GT(answer.number, 0u);
  EXPECT_LT(Ask(STACKD_ASK_THREAD, 1 << 30, 0).error, 0) << "no thread";
}

TEST(WaitWords, TellsWhichFileAThreadWaitsToLockAndNoOther) {
  char path[] = "/tmp/locked.XXXXXX";
  const int held = mkstemp(path), wanted = open(path, O_RDWR);
  unlink(path);
  struct stat status;
  ASSERT_EQ(fstat(held, &status), 0);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  {
    Waiter locking(SYS_flock, [&] { flock(wanted, LOCK_EX); }, [&] { flock(held, LOCK_UN); });
    const auto fd = static_cast<uint64_t>(wanted);
    const stackd_wait_answer answer = Ask(STACKD_ASK_LOCKED_FILE, locking.tid(), fd);
    EXPECT_EQ(answer.error, 0);
    EXPECT_EQ(answer.number, status.st_ino);
    EXPECT_EQ(Ask(STACKD_ASK_LOCKED_FILE, locking.tid(), static_cast<uint64_t>(held)).error, -EAGAIN)
        << "not what it waits for";
    EXPECT_EQ(Ask(STACKD_ASK_LOCKED_FILE, locking.tid(), 0).error, -EAGAIN);
    EXPECT_EQ(Ask(STACKD_ASK_LOCKED_FILE, gettid(), fd).error, -EAGAIN) << "another thread";
  }
  close(held);
  close(wanted);
}

TEST(WaitWords, TellsHowManySigtermsWereTaken) {
  const uint64_t before = Ask(STACKD_ASK_SIGTERM, 0, 0).number;
  stackd_sigterm_add();
  EXPECT_EQ(Ask(STACKD_ASK_SIGTERM, 0, 0).number, before + 1);
}

}  // namespace
