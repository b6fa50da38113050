#include <errno.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <string>

#include "stackd/agent.h"

namespace stackd {
namespace {

std::string NameOfThisThread() {
  char name[16] = {};
  prctl(PR_GET_NAME, name, 0, 0, 0);
  return name;
}

TEST(Names, OfThreadsAreCutBetweenCharacters) {
  EXPECT_EQ(stackd_name_thread("importer"), 0);
  EXPECT_EQ(NameOfThisThread(), "importer");
  EXPECT_EQ(stackd_name_thread("123456789012345678"), 0);
  EXPECT_EQ(NameOfThisThread(), "123456789012345");
  EXPECT_EQ(stackd_name_thread("12345678901234\xc3\xa9"), 0);
  EXPECT_EQ(NameOfThisThread(), "12345678901234");
}

TEST(Names, WithControlCharactersAreRefused) {
  ASSERT_EQ(stackd_name_thread("before"), 0);
  for (const char* name : {"two\nlines", "\x1b[2J", "\x7f"}) {
    EXPECT_EQ(stackd_name_thread(name), -EINVAL);
    EXPECT_EQ(stackd_set_process_name(name), -EINVAL);
  }
  EXPECT_EQ(NameOfThisThread(), "before");
  EXPECT_EQ(stackd_set_process_name("orders"), 0);
}

}  // namespace
}  // namespace stackd
