#include "daemon/outside/stopped_thread.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <new>
#include <thread>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// What a child tells its parent.
struct Shared {
  std::atomic<uint64_t> rounds;
  std::atomic<int> taken;
};

constexpr int kMaxQueued = 100;

Shared* shared;

// A child that spins, and counts the signals that it takes.
class StoppedThreadTest : public testing::Test {
 protected:
  void SetUp() override {
    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared = new (memory) Shared{};
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (const int number : {SIGUSR1, SIGRTMIN + 5}) signal(number, [](int) { shared->taken++; });
      for (;;) shared->rounds++;
    }
    AwaitRounds();
  }
  void TearDown() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    munmap(shared, sizeof(Shared));
  }

  static void AwaitRounds() {
    const uint64_t before = shared->rounds;
    while (shared->rounds < before + 100) usleep(100);
  }
  static void OnThread(const std::function<void()>& work) { std::thread(work).join(); }
  static int64_t SoonNs() { return MonotonicNs() + 10 * kNsPerSecond; }

  pid_t child_ = 0;
};

TEST_F(StoppedThreadTest, StandsStillAsLongAsItIsHeld) {
  OnThread([&] {
    StoppedThread stopped(child_, SoonNs());
    ASSERT_EQ(stopped.outcome(), StopOutcome::kStopped);
    const auto registers = stopped.ReadRegisters();
    ASSERT_TRUE(registers);
    EXPECT_NE(registers->rip, 0u);
    const uint64_t before = shared->rounds;
    usleep(20'000);
    EXPECT_EQ(shared->rounds, before);
  });
  AwaitRounds();
}

TEST_F(StoppedThreadTest, TakesASignalThatCameWithIt) {
  for (int i = 1; i <= 200; i++) {
    OnThread([&] {
      kill(child_, SIGUSR1);
      StoppedThread stopped(child_, SoonNs());
      ASSERT_EQ(stopped.outcome(), StopOutcome::kStopped);
    });
    while (shared->taken < i) usleep(50);
  }
  AwaitRounds();
  EXPECT_EQ(shared->taken, 200);
}

// A tracer that is killed ends without letting go. Signals come all the time, so that many meet a thread that is stopped.
TEST_F(StoppedThreadTest, LosesNoSignalWhenItsTracerEnds) {
  std::atomic<bool> is_done = false;
  int sent = 0;
  std::thread sender([&] {
    // Queued: each counts, as long as the queue has room (RLIMIT_SIGPENDING).
    while (!is_done) {
      if (sent - shared->taken < kMaxQueued) sent += kill(child_, SIGRTMIN + 5) == 0 ? 1 : 0;
    }
  });
  for (int i = 0; i < 200; i++) {
    const pid_t tracer = fork();
    if (tracer == 0) {
      StoppedThread stopped(child_, SoonNs());
      _exit(stopped.outcome() == StopOutcome::kStopped ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(tracer, &status, 0), tracer);
    EXPECT_EQ(status, 0);
  }
  is_done = true;
  sender.join();
  const int64_t deadline_ns = SoonNs();
  while (shared->taken < sent && MonotonicNs() < deadline_ns) usleep(50);
  EXPECT_EQ(shared->taken, sent);
  AwaitRounds();
}

TEST_F(StoppedThreadTest, IsNotTakenFromAnotherTracer) {
  OnThread([&] {
    StoppedThread first(child_, SoonNs());
    OnThread([&] { EXPECT_EQ(StoppedThread(child_, SoonNs()).outcome(), StopOutcome::kTraced); });
  });
  AwaitRounds();
}

TEST_F(StoppedThreadTest, HasEnded) {
  kill(child_, SIGKILL);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOWAIT);
  OnThread([&] { EXPECT_NE(StoppedThread(child_, SoonNs()).outcome(), StopOutcome::kStopped); });
}

}  // namespace
}  // namespace stackd
