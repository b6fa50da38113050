#include "daemon/crashes/spool.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

namespace stackd {
namespace {

class SpoolTest : public testing::Test {
 protected:
  SpoolTest() {
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
    auto spool = Spool::Open(dir_);
    EXPECT_TRUE(spool.has_value()) << spool.error().message;
    spool_ = std::move(*spool);
  }
  ~SpoolTest() override { std::filesystem::remove_all(dir_); }

  // As if it had been made, and written to, an hour ago.
  Spool::NewFile CreateOldFile() {
    auto file = spool_->Create({.process_id = "7-1", .uid = 7});
    EXPECT_TRUE(file.has_value()) << file.error().message;
    const timespec then = {.tv_sec = time(nullptr) - 3600, .tv_nsec = 0};
    const timespec times[] = {then, then};
    EXPECT_EQ(futimens(file->fd.get(), times), 0);
    return std::move(*file);
  }

  std::string dir_ = "/tmp/spool-XXXXXX";
  std::unique_ptr<Spool> spool_;
};

// A race, so many times that it was lost each time when the size was asked before the writers were.
TEST_F(SpoolTest, AllIsReadOfAFileThatNobodyWritesToAnyMore) {
  constexpr int kRounds = 20'000;
  int empty = 0;
  for (int i = 0; i < kRounds; i++) {
    auto file = CreateOldFile();
    std::jthread writer([fd = std::move(file.fd)]() mutable {
      EXPECT_EQ(write(fd.get(), "x", 1), 1);
      fd.Reset();
    });
    auto read = spool_->Read(file.name);
    while (read && read->in_use) {
      std::this_thread::yield();  // the writer may wait for this CPU
      read = spool_->Read(file.name);
    }
    ASSERT_TRUE(read.has_value()) << read.error().message;
    empty += read->bytes.empty();
    spool_->Remove(file.name);
  }
  EXPECT_EQ(empty, 0);
}

TEST_F(SpoolTest, AnEmptyFileIsInUseAsLongAsSomebodyMayWriteToItOrIsAboutToOpenIt) {
  auto old = CreateOldFile();
  EXPECT_TRUE(spool_->Read(old.name)->in_use);
  old.fd.Reset();
  EXPECT_FALSE(spool_->Read(old.name)->in_use);
  auto just_made = spool_->Create({.process_id = "7-1", .uid = 7});
  ASSERT_TRUE(just_made.has_value()) << just_made.error().message;
  just_made->fd.Reset();
  EXPECT_TRUE(spool_->Read(just_made->name)->in_use);
}

}  // namespace
}  // namespace stackd
