extern "C" {
#include "agent/maps/code_ranges.h"
}

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace {

// Refreshes from `text`, as if that were /proc/self/maps.
int RefreshFrom(const std::string& text) {
  int fd = memfd_create("maps", MFD_CLOEXEC);
  EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  int result = stackd_code_ranges_refresh(fd);
  close(fd);
  return result;
}

std::string Line(uint64_t start, uint64_t end, const char* perms, const std::string& path = "") {
  char text[128];
  snprintf(text, sizeof(text), "%" PRIx64 "-%" PRIx64 " %s 00000000 fe:00 1234                       ", start, end, perms);
  return text + path + "\n";
}

bool IsCode(uint64_t address) {
  for (const auto& interval : stackd_code_ranges_current()->code) {
    if (address - interval.start < interval.end - interval.start) return true;
  }
  return false;
}

TEST(CodeRanges, KnowTheMappingsOfThisProcess) {
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(stackd_code_ranges_refresh(fd), 0);
  close(fd);
  const auto* ranges = stackd_code_ranges_current();
  int on_stack = 0;
  auto here = reinterpret_cast<uint64_t>(&on_stack);
  EXPECT_LE(ranges->main_stack.start, here);
  EXPECT_GT(ranges->main_stack.end, here);
  EXPECT_TRUE(IsCode(reinterpret_cast<uint64_t>(&memfd_create)));
  EXPECT_TRUE(IsCode(reinterpret_cast<uint64_t>(&IsCode)));
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t start;
    uint64_t end;
    char perms[5];
    ASSERT_EQ(sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s", &start, &end, perms), 3);
    if (perms[2] == 'x') {
      EXPECT_TRUE(IsCode(start) && IsCode(end - 1)) << line;
    }
    if (perms[1] == 'w' && line.find("[heap]") != std::string::npos) {
      EXPECT_LE(stackd_writable_mapping(ranges, start).start, start);
    }
  }
}

TEST(CodeRanges, FindTheWritableMappingOfAnAddress) {
  ASSERT_GE(RefreshFrom(Line(0x1000, 0x2000, "r-xp") + Line(0x2000, 0x3000, "rw-p") + Line(0x3000, 0x5000, "rw-p") +
                        Line(0x5000, 0x6000, "---p") + Line(0x6000, 0x8000, "rwxp") + Line(0x9000, 0xa000, "-w-p")),
            0);
  const auto* ranges = stackd_code_ranges_current();
  EXPECT_EQ(stackd_writable_mapping(ranges, 0x1fff).end, 0u);
  EXPECT_EQ(stackd_writable_mapping(ranges, 0x2000).start, 0x2000u);
  EXPECT_EQ(stackd_writable_mapping(ranges, 0x2000).end, 0x5000u) << "neighbours are one";
  EXPECT_EQ(stackd_writable_mapping(ranges, 0x4fff).end, 0x5000u);
  EXPECT_EQ(stackd_writable_mapping(ranges, 0x5000).end, 0u);
  EXPECT_EQ(stackd_writable_mapping(ranges, 0x7fff).start, 0x6000u);
  EXPECT_EQ(stackd_writable_mapping(ranges, 0x9000).end, 0u) << "not readable";
  EXPECT_EQ(stackd_writable_mapping(ranges, ~0ull).end, 0u);
  EXPECT_EQ(stackd_writable_mapping(ranges, 0).end, 0u);
}

TEST(CodeRanges, MergeTheSmallestGapsFirst) {
  std::string text;
  // Gaps between: 0x1000, 0x100000, 0x10, 0x1000000, 0x20000.
  const uint64_t kStarts[] = {0x10000, 0x12000, 0x113000, 0x114010, 0x1115010, 0x1136010};
  for (uint64_t start : kStarts) text += Line(start, start + 0x1000, "r-xp");
  ASSERT_GE(RefreshFrom(text), 0);
  const auto* code = stackd_code_ranges_current()->code;
  EXPECT_EQ(code[0].start, 0x10000u);
  EXPECT_EQ(code[0].end, 0x13000u);
  EXPECT_EQ(code[1].start, 0x113000u);
  EXPECT_EQ(code[1].end, 0x115010u);
  EXPECT_EQ(code[2].start, 0x1115010u);
  EXPECT_EQ(code[2].end, 0x1116010u);
  EXPECT_EQ(code[3].start, 0x1136010u);
  EXPECT_EQ(code[3].end, 0x1137010u);
}

TEST(CodeRanges, SayWhetherCodeChanged) {
  std::string text = Line(0x10000, 0x12000, "r-xp") + Line(0x20000, 0x21000, "rw-p");
  RefreshFrom(text);
  EXPECT_EQ(RefreshFrom(text + Line(0x30000, 0x31000, "rw-p")), 0) << "data does not count";
  EXPECT_EQ(RefreshFrom(text + Line(0x30000, 0x31000, "r-xp")), 1);
  EXPECT_EQ(RefreshFrom(text), 1);
}

TEST(CodeRanges, CopeWithThousandsOfMappings) {
  std::string text;
  for (uint64_t i = 0; i < 5000; i++) {
    text += Line(0x100000 + i * 0x10000, 0x100000 + i * 0x10000 + 0x4000, "r-xp", "/lib/" + std::string(i % 300, 'x'));
    text += Line(0x100000 + i * 0x10000 + 0x8000, 0x100000 + i * 0x10000 + 0xc000, "rw-p");
  }
  ASSERT_GE(RefreshFrom(text), 0);
  const auto* ranges = stackd_code_ranges_current();
  EXPECT_EQ(ranges->writable_count, 5000u);
  for (uint64_t i : {0, 1, 1023, 1024, 1025, 2500, 4999}) {
    uint64_t start = 0x100000 + i * 0x10000;
    EXPECT_TRUE(IsCode(start)) << i;
    EXPECT_EQ(stackd_writable_mapping(ranges, start + 0x9000).start, start + 0x8000) << i;
    EXPECT_EQ(stackd_writable_mapping(ranges, start + 0x9000).end, start + 0xc000) << i;
  }
}

TEST(CodeRanges, ReadALineLongerThanTheBuffer) {
  // The line begins at different places of the buffer of 4 KiB.
  for (size_t before : {0, 10, 40, 41, 42, 43, 44, 45}) {
    std::string text;
    for (size_t i = 0; i < before; i++) text += Line(0x1000 + i * 0x2000, 0x2000 + i * 0x2000, "rw-p", std::string(i, 'p'));
    text += Line(0x1000000, 0x1001000, "r-xp", "/" + std::string(9000, 'y'));
    text += Line(0x2000000, 0x2001000, "rw-p", "/" + std::string(4000, 'z'));
    text += Line(0x3000000, 0x3001000, "r-xp");
    ASSERT_GE(RefreshFrom(text), 0);
    EXPECT_TRUE(IsCode(0x1000800)) << before;
    EXPECT_TRUE(IsCode(0x3000800)) << before;
    EXPECT_EQ(stackd_writable_mapping(stackd_code_ranges_current(), 0x2000000).end, 0x2001000u) << before;
    EXPECT_EQ(stackd_code_ranges_current()->writable_count, before + 1);
  }
}

TEST(CodeRanges, TheRangesBeforeTheLastOnesStayAsTheyWere) {
  RefreshFrom(Line(0x10000, 0x12000, "r-xp"));
  const auto* older = stackd_code_ranges_current();
  std::string many;
  for (uint64_t i = 0; i < 3000; i++) many += Line(0x100000 + i * 0x2000, 0x101000 + i * 0x2000, "rw-p");
  RefreshFrom(many);
  EXPECT_NE(stackd_code_ranges_current(), older);
  EXPECT_EQ(older->code[0].start, 0x10000u);
  EXPECT_EQ(older->writable_count, 0u);
}

TEST(CodeRanges, KeepTheFormerOnesWhenMapsCannotBeRead) {
  RefreshFrom(Line(0x10000, 0x12000, "r-xp"));
  EXPECT_EQ(stackd_code_ranges_refresh(-1), -EBADF);
  EXPECT_TRUE(IsCode(0x10000));
}

}  // namespace
