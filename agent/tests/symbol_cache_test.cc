extern "C" {
#include "agent/runtimes/symbol_cache.h"
}

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace stackd {
namespace {

constexpr uint64_t kSecond = 1000000000;
constexpr uint64_t kSource[] = {7, 8, 9};

class SymbolCopiesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { stackd_symbol_copies_prepare(); }

  // Long after whatever the tests before did.
  SymbolCopiesTest() { LetTimePass(); }
  ~SymbolCopiesTest() override { stackd_symbol_copies_reset_after_fork(); }

  static void LetTimePass() { now_ns_ += kSecond; }

  stackd_symbol_copy* Take(uint64_t key) const { return stackd_symbol_copy_take(key, now_ns_); }

  bool IsOf(const stackd_symbol_copy* copy, uint64_t key, const uint64_t* source = kSource, uint32_t words = 3) const {
    return stackd_symbol_copy_is_of(copy, key, source, words, now_ns_);
  }

  bool Put(uint64_t key) const {
    stackd_symbol_copy* copy = Take(key);
    if (copy == nullptr) return false;
    stackd_symbol_copy_begin(copy, key, kSource, 3, now_ns_);
    copy->words[0] = key;
    copy->word_count = 1;
    stackd_symbol_copy_give_back(copy);
    return true;
  }

  bool Has(uint64_t key) const {
    stackd_symbol_copy* copy = Take(key);
    if (copy == nullptr) return false;
    const bool has = IsOf(copy, key) && copy->words[0] == key;
    stackd_symbol_copy_give_back(copy);
    return has;
  }

  inline static uint64_t now_ns_ = kSecond;
};

TEST_F(SymbolCopiesTest, ACopyIsThereForAMomentAndNoLonger) {
  EXPECT_FALSE(Has(0x1000));
  ASSERT_TRUE(Put(0x1000));
  EXPECT_TRUE(Has(0x1000));
  now_ns_ += 40000000;
  EXPECT_TRUE(Has(0x1000));
  now_ns_ -= 45000000;
  EXPECT_TRUE(Has(0x1000)) << "by a thread that began before the one that made it";
  now_ns_ += 65000000;
  EXPECT_FALSE(Has(0x1000));
}

TEST_F(SymbolCopiesTest, ACopyIsBelievedOnlyWhileTheFunctionIsTheSameWordForWord) {
  ASSERT_TRUE(Put(0x1000));
  stackd_symbol_copy* copy = Take(0x1000);
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(IsOf(copy, 0x1000));
  EXPECT_FALSE(IsOf(copy, 0x2000));
  for (int i = 0; i < 3; ++i) {
    uint64_t other[] = {7, 8, 9};
    other[i]++;
    EXPECT_FALSE(IsOf(copy, 0x1000, other));
  }
  EXPECT_FALSE(IsOf(copy, 0x1000, kSource, 2));
  stackd_symbol_copy_begin(copy, 0x1000, kSource, 3, now_ns_);
  EXPECT_FALSE(IsOf(copy, 0x1000)) << "its words are yet to come";
}

TEST_F(SymbolCopiesTest, OneThatIsInUseIsNobodyElses) {
  ASSERT_TRUE(Put(0x1000));
  stackd_symbol_copy* copy = Take(0x1000);
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(Take(0x1000), nullptr);
  stackd_symbol_copy_give_back(copy);
  EXPECT_TRUE(Has(0x1000));
}

TEST_F(SymbolCopiesTest, WhatIsYoungMakesNoRoomForOthers) {
  std::vector<uint64_t> kept;
  for (uint64_t key = 0x1000; key < 0x1000 + 1000 * 48; key += 48) {
    if (Put(key)) kept.push_back(key);
  }
  EXPECT_EQ(kept.size(), 64u);
  for (uint64_t key : kept) EXPECT_TRUE(Has(key));
  LetTimePass();
  for (uint64_t key = 0x101000; key < 0x101000 + 1000 * 48; key += 48) Put(key);
  for (uint64_t key : kept) EXPECT_FALSE(Has(key));
}

TEST_F(SymbolCopiesTest, OneThatWasNotFilledMakesRoom) {
  for (uint64_t key = 0x1000; key < 0x1000 + 1000 * 48; key += 48) {
    stackd_symbol_copy* copy = Take(key);
    ASSERT_NE(copy, nullptr);
    stackd_symbol_copy_begin(copy, key, kSource, 3, now_ns_);
    stackd_symbol_copy_give_back(copy);
  }
}

TEST_F(SymbolCopiesTest, ThreadsThatUseTheSameOnesNeverSeeHalfOfOne) {
  const auto work = [&](uint64_t first) {
    for (uint64_t i = 0; i < 200000; ++i) {
      const uint64_t key = 0x1000 + 16 * ((first + i) % 8);
      // Each is made anew again and again: what it was has become old.
      const uint64_t now_ns = now_ns_ + i * 10000;
      stackd_symbol_copy* copy = stackd_symbol_copy_take(key, now_ns);
      if (copy == nullptr) continue;
      if (stackd_symbol_copy_is_of(copy, key, kSource, 3, now_ns)) {
        for (uint32_t word = 0; word < copy->word_count; ++word) ASSERT_EQ(copy->words[word], key);
      } else {
        stackd_symbol_copy_begin(copy, key, kSource, 3, now_ns);
        for (uint32_t word = 0; word < STACKD_SYMBOL_WORDS; ++word) copy->words[word] = key;
        copy->word_count = STACKD_SYMBOL_WORDS;
      }
      stackd_symbol_copy_give_back(copy);
    }
  };
  std::thread other(work, 3);
  work(0);
  other.join();
}

TEST_F(SymbolCopiesTest, AChildHasThoseTooThatItsParentsHandlersHad) {
  ASSERT_TRUE(Put(0x1000));
  ASSERT_NE(Take(0x1000), nullptr);
  const pid_t child = fork();
  if (child == 0) {
    stackd_symbol_copies_reset_after_fork();
    _exit(!Has(0x1000) && Put(0x1000) && Has(0x1000) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Take(0x1000), nullptr) << "the parent's is taken still";
}

}  // namespace
}  // namespace stackd
