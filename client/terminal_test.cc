#include "client/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace stackd {
namespace {

using testing::ElementsAre;

std::vector<Key> KeysOf(std::string bytes) {
  std::vector<Key> keys;
  while (!bytes.empty()) keys.push_back(TakeKey(&bytes));
  return keys;
}

TEST(Terminal, KnowsKeysThatCameTogether) {
  EXPECT_THAT(KeysOf("j\x1b[A\x1bOB\r"), ElementsAre(Key::kDown, Key::kUp, Key::kDown, Key::kEnter));
  EXPECT_THAT(KeysOf("\x1b"), ElementsAre(Key::kBack));
  EXPECT_THAT(KeysOf("\x1b[D\x1bOD"), ElementsAre(Key::kBack, Key::kBack));
  EXPECT_THAT(KeysOf("\x1b[5~\x1b[6~gG"), ElementsAre(Key::kPageUp, Key::kPageDown, Key::kHome, Key::kEnd));
  EXPECT_THAT(KeysOf("q\x03"), ElementsAre(Key::kQuit, Key::kQuit));
}

TEST(Terminal, LeavesOutWhatIsNoKeyHere) {
  EXPECT_THAT(KeysOf("\x1b[24~q"), ElementsAre(Key::kNone, Key::kQuit)) << "F12";
  EXPECT_THAT(KeysOf("\x1b[1;5Bq"), ElementsAre(Key::kNone, Key::kQuit)) << "Ctrl and down";
  EXPECT_THAT(KeysOf("\x1b[12"), ElementsAre(Key::kNone));
  EXPECT_THAT(KeysOf("\xc3\xa4"), ElementsAre(Key::kNone, Key::kNone));
}

TEST(Terminal, ClipsCharactersAndNotBytes) {
  EXPECT_EQ(Clipped("abc", 2), "ab");
  EXPECT_EQ(Clipped("abc", 9), "abc");
  EXPECT_EQ(Clipped("\xc3\xa4\xc3\xb6z", 2), "\xc3\xa4\xc3\xb6");
  EXPECT_EQ(Clipped("abc", 0), "");
}

}  // namespace
}  // namespace stackd
