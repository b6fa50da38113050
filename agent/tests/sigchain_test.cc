extern "C" {
#include "agent/signals/sigchain.h"

#include "agent/sys/process_id.h"
}

#include <gtest/gtest.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace stackd {
namespace {

struct sigaction ActionOf(uint64_t value, int flags = SA_SIGINFO) {
  struct sigaction action{};
  action.sa_sigaction = reinterpret_cast<void (*)(int, siginfo_t*, void*)>(value);
  action.sa_flags = flags;
  memcpy(&action.sa_mask, &value, sizeof(value));
  return action;
}

TEST(Chain, IsTheDefaultActionUntilSomethingIsSet) {
  struct sigaction found = ActionOf(1);
  stackd_chain_get(11, &found);
  EXPECT_EQ(found.sa_handler, SIG_DFL);
  EXPECT_TRUE(stackd_chain_is_default(11));
}

TEST(Chain, GivesBackWhatWasSetForThatSignal) {
  struct sigaction set = ActionOf(0x1230, SA_SIGINFO | SA_ONSTACK | SA_RESTART);
  stackd_chain_set(12, &set);
  struct sigaction found{};
  stackd_chain_get(12, &found);
  EXPECT_EQ(found.sa_sigaction, set.sa_sigaction);
  EXPECT_EQ(found.sa_flags, set.sa_flags);
  EXPECT_EQ(memcmp(&found.sa_mask, &set.sa_mask, 8), 0);
  EXPECT_FALSE(stackd_chain_is_default(12));
  EXPECT_TRUE(stackd_chain_is_default(13));
}

TEST(Chain, AOneShotHandlerIsDeliveredOnce) {
  stackd_keep_pid();
  struct sigaction set = ActionOf(0x4000, static_cast<int>(SA_RESETHAND));
  stackd_chain_set(14, &set);
  EXPECT_EQ(stackd_chain_deliver(14).handler, 0x4000u);
  EXPECT_EQ(stackd_chain_deliver(14).handler, STACKD_ACTION_DEFAULT);
  struct sigaction found{};
  stackd_chain_get(14, &found);
  EXPECT_EQ(found.sa_handler, SIG_DFL);
  EXPECT_EQ(found.sa_flags, set.sa_flags) << "the kernel resets the handler alone";
}

TEST(Chain, AOneShotHandlerThatAVforkChildUsedUpIsStillThereForItsParent) {
  stackd_keep_pid();
  struct sigaction set = ActionOf(0x5000, static_cast<int>(SA_RESETHAND));
  stackd_chain_set(SIGUSR1, &set);
  signal(SIGUSR1, SIG_IGN);
  static volatile bool childs_is_default;
  // A child that shares this memory.
  pid_t child = vfork();
  if (child == 0) {
    struct sigaction now{};
    childs_is_default = stackd_chain_deliver(SIGUSR1).handler == 0x5000 && sigaction(SIGUSR1, nullptr, &now) == 0 &&
                        now.sa_handler == SIG_DFL;
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(childs_is_default) << "the next signal ends it";
  struct sigaction found{};
  EXPECT_EQ(sigaction(SIGUSR1, nullptr, &found), 0);
  EXPECT_EQ(found.sa_handler, SIG_IGN);
  EXPECT_EQ(stackd_chain_deliver(SIGUSR1).handler, 0x5000u);
  EXPECT_EQ(stackd_chain_deliver(SIGUSR1).handler, STACKD_ACTION_DEFAULT);
}

TEST(Chain, NoReaderSeesHalfOfAnAction) {
  std::atomic<bool> over{false};
  std::vector<std::thread> writers;
  for (uint64_t writer = 1; writer <= 2; writer++) {
    writers.emplace_back([writer, &over] {
      for (uint64_t i = 0; !over; i += 16) {
        struct sigaction action = ActionOf(writer << 32 | i << 8 | 2);
        stackd_chain_set(15, &action);
      }
    });
  }
  for (int i = 0; i < 2'000'000; i++) {
    stackd_action action = stackd_chain_deliver(15);
    if (action.handler == STACKD_ACTION_DEFAULT) continue;
    // SIGKILL and SIGSTOP cannot be blocked.
    ASSERT_EQ(action.mask, action.handler & ~(1ull << 8 | 1ull << 18));
  }
  over = true;
  for (auto& writer : writers) writer.join();
}

}  // namespace
}  // namespace stackd
