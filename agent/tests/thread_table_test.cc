extern "C" {
#include "agent/dump/thread_table.h"
}

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace {

constexpr uint32_t kTid = 4711;

stackd_thread_entry* Ask(uint32_t index, uint32_t seq, uint32_t tid = kTid) {
  stackd_thread_table* table = stackd_thread_table_reserve(index + 1);
  stackd_thread_entry* entry = &table->entries[index];
  *entry = {};
  entry->tid = tid;
  __atomic_store_n(&entry->state, stackd_thread_word(seq, STACKD_THREAD_ASKED), __ATOMIC_RELEASE);
  return entry;
}

uint32_t StateOf(const stackd_thread_entry* entry) { return entry->state & 0xff; }

TEST(ThreadTable, AQuestionIsAnsweredOnce) {
  stackd_thread_entry* entry = Ask(3, 7);
  uint32_t before = stackd_thread_answers();
  ASSERT_EQ(stackd_thread_claim(3, 7, kTid), entry);
  EXPECT_EQ(StateOf(entry), STACKD_THREAD_BUSY);
  EXPECT_EQ(stackd_thread_claim(3, 7, kTid), nullptr) << "the same signal twice";
  EXPECT_FALSE(stackd_thread_give_up(entry, 7)) << "the handler was there first";
  stackd_thread_answer(entry, 7, STACKD_THREAD_DONE);
  EXPECT_EQ(StateOf(entry), STACKD_THREAD_DONE);
  EXPECT_EQ(stackd_thread_answers(), before + 1);
}

TEST(ThreadTable, ALateSignalFindsNothing) {
  stackd_thread_entry* entry = Ask(3, 8);
  ASSERT_TRUE(stackd_thread_give_up(entry, 8));
  EXPECT_EQ(stackd_thread_claim(3, 8, kTid), nullptr);
  Ask(3, 9);
  EXPECT_EQ(stackd_thread_claim(3, 8, kTid), nullptr) << "of the dump before";
  EXPECT_EQ(stackd_thread_claim(3, 9, kTid + 1), nullptr) << "the entry is another thread's";
  EXPECT_EQ(stackd_thread_claim(1u << 30, 9, kTid), nullptr) << "an index that never was";
  EXPECT_NE(stackd_thread_claim(3, 9, kTid), nullptr);
}

TEST(ThreadTable, ALateAnswerLeavesTheEntryOfTheNextDumpAlone) {
  stackd_thread_entry* entry = Ask(5, 20);
  ASSERT_NE(stackd_thread_claim(5, 20, kTid), nullptr);
  // The dump ends without this thread, which was stopped inside the handler.
  Ask(5, 21, kTid + 1);
  uint32_t before = stackd_thread_answers();
  stackd_thread_answer(entry, 20, STACKD_THREAD_DONE);
  EXPECT_EQ(entry->state, stackd_thread_word(21, STACKD_THREAD_ASKED));
  EXPECT_EQ(stackd_thread_answers(), before) << "nobody of this dump has answered";
}

TEST(ThreadTable, GrowsAndKeepsTheFormerTableMapped) {
  stackd_thread_entry* old_entry = Ask(0, 30);
  stackd_thread_table* old_table = stackd_thread_table_reserve(1);
  stackd_thread_table* grown = stackd_thread_table_reserve(old_table->capacity + 1);
  ASSERT_NE(grown, old_table);
  EXPECT_GT(grown->capacity, old_table->capacity);
  EXPECT_EQ(old_entry->state, stackd_thread_word(30, STACKD_THREAD_ASKED)) << "readable for a handler that holds it";
  EXPECT_EQ(stackd_thread_table_reserve(2), grown);
}

// The tids of `listed` that are not among the first entries of the table.
std::vector<uint32_t> Newcomers(const std::vector<uint32_t>& known, const std::vector<uint32_t>& listed) {
  stackd_thread_table* table = stackd_thread_table_reserve(static_cast<uint32_t>(known.size()) + 1);
  for (size_t i = 0; i < known.size(); i++) table->entries[i].tid = known[i];
  table->entries[known.size()].tid = 99;  // of a dump before
  std::vector<uint32_t> newcomers;
  uint32_t at = 0;
  for (uint32_t tid : listed) {
    if (!stackd_thread_is_known(table, static_cast<uint32_t>(known.size()), tid, &at)) newcomers.push_back(tid);
  }
  return newcomers;
}

TEST(ThreadTable, KnowsAThreadInWhateverOrderTheKernelListsIt) {
  using Tids = std::vector<uint32_t>;
  EXPECT_EQ(Newcomers({10, 20, 30, 40}, {10, 20, 30, 40}), Tids({}));
  EXPECT_EQ(Newcomers({10, 20, 30, 40}, {10, 20, 30, 40, 50}), Tids({50}));
  EXPECT_EQ(Newcomers({10, 20, 30, 40}, {20, 40}), Tids({})) << "two have ended";
  EXPECT_EQ(Newcomers({10, 40, 20, 30}, {10, 20, 30, 40}), Tids({})) << "one was listed out of order the first time";
  EXPECT_EQ(Newcomers({10, 20, 40}, {10, 20, 30, 40}), Tids({30})) << "one was passed over the first time";
  EXPECT_EQ(Newcomers({10, 20, 30}, {50, 30, 60, 10, 20, 99}), Tids({50, 60, 99}));
  EXPECT_EQ(Newcomers({}, {10, 20}), Tids({10, 20}));
}

TEST(ThreadTable, OneOfGiveUpAndClaimWins) {
  for (uint32_t seq = 100; seq < 1100; seq++) {
    stackd_thread_entry* entry = Ask(1, seq);
    std::atomic<int> ready{0};
    bool claimed = false;
    std::thread handler([&] {
      ready++;
      while (ready < 2) continue;
      claimed = stackd_thread_claim(1, seq, kTid) != nullptr;
    });
    ready++;
    while (ready < 2) continue;
    bool given_up = stackd_thread_give_up(entry, seq);
    handler.join();
    ASSERT_NE(claimed, given_up);
  }
}

TEST(ThreadTable, TheHelperWakesUpForTheLastAnswer) {
  for (uint32_t round = 0; round < 200; round++) {
    uint32_t target = stackd_thread_answers() + 4;
    std::thread handlers([round] {
      for (uint32_t i = 0; i < 4; i++) {
        stackd_thread_entry* entry = Ask(i, 10000 + round);
        ASSERT_NE(stackd_thread_claim(i, 10000 + round, kTid), nullptr);
        stackd_thread_answer(entry, 10000 + round, STACKD_THREAD_DONE);
      }
    });
    auto begin = std::chrono::steady_clock::now();
    while (static_cast<int32_t>(stackd_thread_answers() - target) < 0) {
      stackd_thread_wait_answers(target, 5'000'000'000);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4)) << "slept through the answer";
    handlers.join();
  }
}

TEST(ThreadTable, AWaitEndsWithItsTime) { stackd_thread_wait_answers(stackd_thread_answers() + 1, 1'000'000); }

}  // namespace
