#include "daemon/symbolize/perf_map.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/symbolize/perf_map_file.h"

namespace stackd {
namespace {

TEST(PerfMap, NamesTheCodeBetweenStartAndEnd) {
  const PerfMap map("7f0000001000 20 int32 [app] Program::Add(int32,int32)[Tier0]\n7f0000002000 10 stub\n");
  EXPECT_EQ(map.NameOf(0x7f0000001000), "int32 [app] Program::Add(int32,int32)[Tier0]");
  EXPECT_EQ(map.NameOf(0x7f000000101f), "int32 [app] Program::Add(int32,int32)[Tier0]");
  EXPECT_EQ(map.NameOf(0x7f0000001020), "");
  EXPECT_EQ(map.NameOf(0x7f0000000fff), "");
  EXPECT_EQ(map.NameOf(0x7f0000002008), "stub");
}

TEST(PerfMap, CodeThatCameLaterHasTakenThePlaceOfWhatWasThere) {
  const PerfMap map("1000 100 first\n2000 100 second\n1080 1000 third\n");
  EXPECT_EQ(map.NameOf(0x1090), "third");
  EXPECT_EQ(map.NameOf(0x1010), "") << "the first is freed as a whole";
  EXPECT_EQ(map.NameOf(0x2010), "third");
  EXPECT_EQ(map.NameOf(0x2090), "");
  EXPECT_EQ(map.symbol_count(), 1u);
}

TEST(PerfMap, WhatIsNoLineIsCountedAndLeftOut) {
  const PerfMap map(
      "1000 10 good\n\nname\n1000\n1000 10\nxyz 10 bad\n2000 0 empty\nffffffffffffffff 10 around\n3000 10 half");
  EXPECT_EQ(map.symbol_count(), 1u);
  EXPECT_EQ(map.left_out(), 6u) << "the last line is being written";
  EXPECT_EQ(map.NameOf(0x3000), "");
}

TEST(PerfMap, IsBoundedAndItsNamesAreUtf8) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += std::to_string(i + 1) + "000 10 f\n";
  const PerfMap few(text, 10);
  EXPECT_EQ(few.symbol_count(), 10u);
  EXPECT_EQ(few.left_out(), 90u);
  const PerfMap map("1000 10 \xff\xfe" + std::string(10'000, 'n') + "\n");
  EXPECT_LE(map.NameOf(0x1000).size(), 5000u);
  EXPECT_EQ(map.NameOf(0x1000).find('\xff'), std::string::npos);
}

TEST(PerfMap, AFileIsReadAgainWhenItHasGrown) {
  Fd file(memfd_create("perf-1.map", MFD_CLOEXEC));
  const auto write_text = [&](std::string_view text) {
    ASSERT_EQ(write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  PerfMapFile map;
  map.Update(Fd());
  EXPECT_EQ(map.NameOf(0x1000), "");
  write_text("1000 10 one\n");
  map.Update(file);
  EXPECT_EQ(map.NameOf(0x1000), "one");
  write_text("2000 10 two\n");
  map.Update(file);
  EXPECT_EQ(map.NameOf(0x2000), "two");
  EXPECT_EQ(map.Problem(), "");
  write_text("not a line\n");
  map.Update(file);
  EXPECT_EQ(map.Problem(), "1 lines of its perf map name no code: they are no such lines, or there was no room");
  ASSERT_EQ(ftruncate(file.get(), (64 << 20) + 1), 0);
  map.Update(file);
  EXPECT_EQ(map.NameOf(0x2000), "two");
  EXPECT_EQ(map.Problem(),
            "its perf map has 67108865 bytes: the first 67108864 are read, and code that was made later has no name");
  map.Update(Fd());
  EXPECT_EQ(map.NameOf(0x1000), "") << "the file is gone";
  EXPECT_EQ(map.Problem(), "");
}

TEST(PerfMap, TakesNoMoreMemoryThanThereIs) {
  Fd file(memfd_create("perf-1.map", MFD_CLOEXEC));
  const std::string_view lines = "1000 10 one\n2000 10 two\n";
  ASSERT_EQ(write(file.get(), lines.data(), lines.size()), static_cast<ssize_t>(lines.size()));
  const auto size_bytes = static_cast<int64_t>(lines.size());
  for (const int64_t too_little : {size_bytes - 1, size_bytes + 2 * static_cast<int64_t>(PerfMap::kSymbolBytes) - 1}) {
    ByteBudget memory(too_little);
    PerfMapFile map({.memory = &memory});
    map.Update(file);
    EXPECT_EQ(map.NameOf(0x1000), "");
    EXPECT_EQ(map.Problem(),
              "its perf map has 24 bytes, for which there is no memory now: code that a runtime has made has no name");
    EXPECT_EQ(memory.held_bytes(), 0);
  }
  ByteBudget memory(1 << 20);
  PerfMapFile map({.max_bytes = 12, .max_symbols = 10, .memory = &memory});
  map.Update(file);
  EXPECT_EQ(map.NameOf(0x1000), "one");
  EXPECT_EQ(map.NameOf(0x2000), "") << "behind the limit";
  EXPECT_EQ(memory.held_bytes(), 12 + static_cast<int64_t>(PerfMap::kSymbolBytes));
  map.Update(Fd());
  EXPECT_EQ(memory.held_bytes(), 0);
}

}  // namespace
}  // namespace stackd
