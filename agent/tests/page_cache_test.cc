extern "C" {
#include "agent/runtimes/page_cache.h"

#include "agent/runtimes/runtimes.h"
}

#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

namespace stackd {
namespace {

constexpr size_t kPage = STACKD_PAGE_BYTES;

class PageCopiesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { stackd_page_copies_prepare(); }

  PageCopiesTest()
      : memory_(static_cast<char*>(mmap(nullptr, 64 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
  }
  ~PageCopiesTest() override {
    for (stackd_page_copies* copies : taken_) stackd_page_copies_give_back(copies);
    munmap(memory_, 64 * kPage);
  }

  stackd_page_copies* Take() {
    stackd_page_copies* copies = stackd_page_copies_take();
    if (copies != nullptr) taken_.push_back(copies);
    return copies;
  }

  size_t TakeAll() {
    size_t count = 0;
    while (Take() != nullptr) ++count;
    return count;
  }

  uint64_t Address(size_t page, size_t offset = 0) const {
    return reinterpret_cast<uint64_t>(memory_) + page * kPage + offset;
  }

  // The first byte of the page; -1: cannot be read.
  int Look(stackd_page_copies* copies, size_t page) const {
    const unsigned char* copy = stackd_page_copy_of(copies, Address(page));
    if (copy == nullptr) copy = stackd_page_copy(copies, getpid(), Address(page));
    return copy != nullptr ? copy[0] : -1;
  }

  void PutInPage(size_t page, char value) { memory_[page * kPage] = value; }

  char* memory_;
  std::vector<stackd_page_copies*> taken_;
};

TEST_F(PageCopiesTest, ACopyStaysAsThePageWasWhenItWasAskedForFirst) {
  stackd_page_copies* copies = Take();
  ASSERT_NE(copies, nullptr);
  PutInPage(1, 'a');
  EXPECT_EQ(Look(copies, 1), 'a');
  PutInPage(1, 'b');
  EXPECT_EQ(Look(copies, 1), 'a');
}

TEST_F(PageCopiesTest, ThePageThatWasUsedLeastOfLateMakesRoom) {
  stackd_page_copies* copies = Take();
  ASSERT_NE(copies, nullptr);
  for (size_t page = 0; page < 64; ++page) PutInPage(page, 'a');
  for (size_t page = 0; page < 8; ++page) EXPECT_EQ(Look(copies, page), 'a');
  for (size_t page = 0; page < 64; ++page) PutInPage(page, 'b');
  EXPECT_EQ(Look(copies, 0), 'a');
  EXPECT_EQ(Look(copies, 8), 'b');
  EXPECT_EQ(Look(copies, 0), 'a');
  EXPECT_EQ(Look(copies, 1), 'b') << "was copied anew";
}

TEST_F(PageCopiesTest, APageThatCannotBeReadHasNoCopyAndLosesNoOther) {
  stackd_page_copies* copies = Take();
  ASSERT_NE(copies, nullptr);
  PutInPage(0, 'a');
  ASSERT_EQ(mprotect(memory_ + kPage, kPage, PROT_NONE), 0);
  EXPECT_EQ(Look(copies, 0), 'a');
  EXPECT_EQ(Look(copies, 1), -1);
  EXPECT_EQ(Look(copies, 1), -1);
  PutInPage(0, 'b');
  EXPECT_EQ(Look(copies, 0), 'a');
  ASSERT_EQ(mprotect(memory_ + kPage, kPage, PROT_READ), 0);
  EXPECT_EQ(Look(copies, 1), 0);
}

TEST_F(PageCopiesTest, WhoTakesASetHasItAloneAndFindsItEmpty) {
  const size_t count = TakeAll();
  EXPECT_GT(count, 1u);
  EXPECT_EQ(std::set<stackd_page_copies*>(taken_.begin(), taken_.end()).size(), count);
  stackd_page_copies* last = taken_.back();
  PutInPage(0, 'a');
  EXPECT_EQ(Look(last, 0), 'a');
  PutInPage(0, 'b');
  stackd_page_copies_give_back(last);
  EXPECT_EQ(stackd_page_copies_take(), last);
  EXPECT_EQ(Look(last, 0), 'b');
}

TEST_F(PageCopiesTest, AChildHasThoseTooThatItsParentsHandlersHad) {
  const size_t count = TakeAll();
  const pid_t child = fork();
  if (child == 0) {
    taken_.clear();
    stackd_page_copies_reset_after_fork();
    _exit(TakeAll() == count ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Take(), nullptr) << "the parent's are taken still";
}

TEST_F(PageCopiesTest, WhatLiesInSeveralPagesIsReadAsOne) {
  std::string text(2 * kPage + 100, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 23);
  memcpy(memory_ + kPage - 13, text.data(), text.size());
  ASSERT_EQ(mprotect(memory_ + 40 * kPage, kPage, PROT_NONE), 0);
  for (stackd_page_copies* copies : {Take(), static_cast<stackd_page_copies*>(nullptr)}) {
    stackd_managed_thread thread = {};
    thread.pid = getpid();
    thread.pages = copies;
    std::string read(text.size(), '\0');
    EXPECT_TRUE(
        stackd_managed_read_still(&thread, Address(0, kPage - 13), read.data(), static_cast<uint32_t>(read.size())));
    EXPECT_EQ(read, text);
    EXPECT_FALSE(stackd_managed_read_still(&thread, Address(39, kPage - 8), read.data(), 16)) << "half of it";
    EXPECT_FALSE(stackd_managed_read_still(&thread, ~7ull, read.data(), 16)) << "around the end of all addresses";
  }
}

}  // namespace
}  // namespace stackd
