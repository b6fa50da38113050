#include "daemon/base/text.h"

#include <gtest/gtest.h>

namespace stackd {
namespace {

TEST(ToValidUtf8, KeepsWhatIsValid) {
  EXPECT_EQ(ToValidUtf8("plain"), "plain");
  EXPECT_EQ(ToValidUtf8("g\xc3\xbcnstig \xe2\x82\xac \xf0\x9f\x98\x80"), "g\xc3\xbcnstig \xe2\x82\xac \xf0\x9f\x98\x80");
}

TEST(ToValidUtf8, KeepsTheFirstAndTheLastCharacterOfEachLength) {
  for (const char* text :
       {"\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(ToValidUtf8(text), text);
  }
  EXPECT_EQ(ToValidUtf8("\xe0\x9f\xbf"), "???");       // overlong
  EXPECT_EQ(ToValidUtf8("\xf0\x8f\xbf\xbf"), "????");  // overlong
}

TEST(ToValidUtf8, ReplacesEachBadByte) {
  EXPECT_EQ(ToValidUtf8("a\xff\xfe z"), "a?? z");
  EXPECT_EQ(ToValidUtf8("cut\xe2\x82"), "cut??");
  EXPECT_EQ(ToValidUtf8("\xed\xa0\x80"), "???");       // a surrogate
  EXPECT_EQ(ToValidUtf8("\xc0\x80"), "??");            // overlong
  EXPECT_EQ(ToValidUtf8("\xf4\x90\x80\x80"), "????");  // beyond U+10FFFF
}

TEST(FieldText, EndsAtTheFirstNulOrAtTheEndOfTheField) {
  char full[4] = {'a', 'b', 'c', 'd'};
  char ended[4] = {'a', '\0', 'c', 'd'};
  EXPECT_EQ(FieldText(full), "abcd");
  EXPECT_EQ(FieldText(ended), "a");
}

}  // namespace
}  // namespace stackd
