#include "daemon/export/wording.h"

#include <gtest/gtest.h>

#include "daemon/export/printable.h"

namespace stackd {
namespace {

google::protobuf::Duration Ns(int64_t ns) {
  google::protobuf::Duration duration;
  duration.set_seconds(ns / 1'000'000'000);
  duration.set_nanos(static_cast<int32_t>(ns % 1'000'000'000));
  return duration;
}

TEST(Wording, GroupsDigits) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
  EXPECT_EQ(Grouped(-1000), "-1,000");
  EXPECT_EQ(Grouped(-100), "-100");
  EXPECT_EQ(Count(1, "thread"), "1 thread");
  EXPECT_EQ(Count(0, "thread"), "0 threads");
}

TEST(Wording, TellsTimesInUnitsThatFit) {
  EXPECT_EQ(InWords(Ns(0)), "0 ns");
  EXPECT_EQ(InWords(Ns(850)), "850 ns");
  EXPECT_EQ(InWords(Ns(1'500)), "1.5 us");
  EXPECT_EQ(InWords(Ns(41'000)), "41 us");
  EXPECT_EQ(InWords(Ns(9'800'000)), "9.8 ms");
  EXPECT_EQ(InWords(Ns(1'200'000'000)), "1.2 s");
  google::protobuf::Timestamp time;
  time.set_seconds(1795230902);
  EXPECT_EQ(InWords(time), "2026-11-21 03:15:02 UTC");
}

TEST(Wording, WritesRuns) {
  EXPECT_EQ(Ranges({}), "");
  EXPECT_EQ(Ranges({5}), "5");
  EXPECT_EQ(Ranges({6, 5}), "5, 6");
  EXPECT_EQ(Ranges({3, 1, 2, 9, 2147483647, 2147483646}), "1-3, 9, 2147483646, 2147483647");
}

TEST(Wording, CountsItemsOfAListOfSeveral) {
  EXPECT_EQ(CountedList({}), "");
  EXPECT_EQ(CountedList({{"main", 1}}), "main");
  EXPECT_EQ(CountedList({{"worker", 998}, {"io", 2}}), "worker (998), io (2)");
  EXPECT_EQ(CountedList({{"worker", 0}, {"io", 0}}), "worker, io") << "numbers that are not known";
}

TEST(Printable, KeepsText) {
  for (const char* text : {"", "f(int) at a.cc:3", "Grüße", "日本語", "😀"}) EXPECT_EQ(Printable(text), text);
}

TEST(Printable, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(Printable("a\nb\tc\r\x7f"), "a\\x0ab\\x09c\\x0d\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m")
      << "CSI in one character";
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b\xe2\x81\xa6"),
            "a\\u{202e}b\\u{2066}")
      << "changes the direction";
  EXPECT_EQ(Printable("a\xe2\x80\xa8"
                      "b"),
            "a\\u{2028}b")
      << "a line separator";
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Printable, ShowsBytesThatAreNoText) {
  EXPECT_EQ(Printable("a\xff"
                      "b"),
            "a\\xffb");
  EXPECT_EQ(Printable("\xc0\x80"), "\\xc0\\x80") << "an overlong NUL";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above U+10FFFF";
  EXPECT_EQ(Printable("Gr\xc3"), "Gr\\xc3") << "cut inside a character";
  EXPECT_EQ(Printable("\xf0\x9f\x98"), "\\xf0\\x9f\\x98");
}

}  // namespace
}  // namespace stackd
