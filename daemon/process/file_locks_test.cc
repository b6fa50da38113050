#include "daemon/process/file_locks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace stackd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr FileLockKind kFlock = FileLockKind::kFlock, kRecord = FileLockKind::kRecord, kOpenFile = FileLockKind::kOpenFile;
constexpr LockedFile kFile{0xfe, 0x1a, 9977882};

// As Linux 6.18 writes it.
constexpr char kText[] =
    "1: POSIX  ADVISORY  WRITE 14604 fe:1a:9977882 0 EOF\n"
    "1: -> POSIX  ADVISORY  WRITE 14605 fe:1a:9977882 0 10\n"
    "1:  -> OFDLCK ADVISORY  WRITE -1 fe:1a:9977882 0 EOF\n"
    "2: FLOCK  ADVISORY  READ 14546 fe:1a:9977882 0 EOF\n"
    "2: -> FLOCK  ADVISORY  WRITE 14596 fe:1a:9977882 0 EOF\n"
    "2:  -> FLOCK  ADVISORY  READ 14598 fe:1a:9977882 0 EOF\n"
    "3: LEASE  ACTIVE    WRITE 13100 fe:1a:9988335 0 EOF\n";

TEST(FileLocks, HoldersHaveThoseThatWaitForThem) {
  EXPECT_THAT(
      ParseFileLocks(kText),
      ElementsAre(
          HeldFileLock{{kRecord, false, 14604, kFile}, {{kRecord, false, 14605, kFile}, {kOpenFile, false, -1, kFile}}},
          HeldFileLock{{kFlock, true, 14546, kFile}, {{kFlock, false, 14596, kFile}, {kFlock, true, 14598, kFile}}}));
}

TEST(FileLocks, NoWaiterIsGivenToAHolderThatIsNotItsOwn) {
  // Its holder is a lease, cut, of another number or file, or missing.
  EXPECT_THAT(ParseFileLocks("1: FLOCK ADVISORY WRITE 5 00:01:7 0 EOF\n"
                             "2: LEASE ACTIVE WRITE 6 00:01:8 0 EOF\n"
                             "2: -> FLOCK ADVISORY WRITE 7 00:01:8 0 EOF\n"),
              ElementsAre(HeldFileLock{{kFlock, false, 5, {0, 1, 7}}, {}}));
  EXPECT_THAT(ParseFileLocks("1: FLOCK ADVISORY WRITE 5 00:01:7 0 EOF\n"
                             "2: -> FLOCK ADVISORY WRITE 7 00:01:7 0 EOF\n"
                             "1: -> FLOCK ADVISORY WRITE 7 00:01:8 0 EOF\n"),
              ElementsAre(HeldFileLock{{kFlock, false, 5, {0, 1, 7}}, {}}));
  EXPECT_THAT(ParseFileLocks("1: FLOCK ADVISORY\n1: -> FLOCK ADVISORY WRITE 7 00:01:8 0 EOF\n"), IsEmpty());
  EXPECT_THAT(ParseFileLocks("1: -> FLOCK ADVISORY WRITE 7 00:01:8 0 EOF\n"), IsEmpty());
}

TEST(FileLocks, LinesThatMakeNoSenseAreLeftOut) {
  for (const char* line : {"", "\n", "1:", "1: FLOCK ADVISORY WRITE 5", "1: FLOCK ADVISORY WRITE x 00:01:7 0 EOF",
                           "1: FLOCK ADVISORY WRITE 99999999999 00:01:7 0 EOF", "1: FLOCK ADVISORY UNLCK 5 00:01:7 0 EOF",
                           "1: FLOCK ADVISORY WRITE 5 <none>:0 0 EOF", "1: FLOCK ADVISORY WRITE 5 00:01 0 EOF",
                           "1: FLOCK ADVISORY WRITE 5 00:01:18446744073709551616 0 EOF",
                           "1: FLOCK ADVISORY WRITE 5 00:zz:7 0 EOF", "1: FLOCK ADVISORY WRITE 5 :: 0 EOF"}) {
    EXPECT_THAT(ParseFileLocks(line), IsEmpty()) << line;
  }
  EXPECT_THAT(ParseFileLocks("1: FLOCK ADVISORY WRITE 5 00:01:18446744073709551615 0 EOF"), SizeIs(1));
}

TEST(FileLocks, TextWithErrorsGivesNoMoreThanItsLines) {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = kText;
    for (int changes = 0; changes < 3; ++changes) text[random() % text.size()] = static_cast<char>(random());
    text.resize(random() % (text.size() + 1));
    size_t lines = 0;
    for (const HeldFileLock& lock : ParseFileLocks(text)) lines += 1 + lock.waiters.size();
    ASSERT_LE(lines, 10u) << text;
  }
}

}  // namespace
}  // namespace stackd
