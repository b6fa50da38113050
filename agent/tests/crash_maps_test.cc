extern "C" {
#include "agent/maps/crash_maps.h"

#include "agent/maps/maps_line.h"
}

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <optional>
#include <string>

namespace stackd {
namespace {

stackd_maps_line Parse(const std::string& text) {
  stackd_maps_line line;
  stackd_maps_line_clear(&line);
  for (size_t i = 0; i < text.size(); i++) EXPECT_EQ(stackd_maps_line_take(&line, text[i]), text[i] == '\n') << i;
  return line;
}

TEST(MapsLine, IsReadFieldByField) {
  stackd_maps_line line =
      Parse("7f12ab000-7f12ac000 r-xp 0001f000 fd:01 1234567                    /lib/a-b [stack] c.so\n");
  EXPECT_EQ(line.range.start, 0x7f12ab000u);
  EXPECT_EQ(line.range.end, 0x7f12ac000u);
  EXPECT_TRUE(line.readable && line.executable && !line.writable && !line.is_main_stack);
  EXPECT_EQ(line.file_offset, 0x1f000u);
  EXPECT_EQ(line.inode, 1234567u);
}

TEST(MapsLine, KnowsTheMainStackFromAFileOfThatName) {
  EXPECT_TRUE(Parse("7ff0-8000 rw-p 00000000 00:00 0                          [stack]\n").is_main_stack);
  EXPECT_FALSE(Parse("7ff0-8000 rw-p 00000000 00:00 0                          [stack]x\n").is_main_stack);
  EXPECT_FALSE(Parse("7ff0-8000 rw-p 00000000 00:00 9                          /[stack]\n").is_main_stack);
  EXPECT_FALSE(Parse("7ff0-8000 rw-p 00000000 00:00 0                          [stac\n").is_main_stack);
  EXPECT_FALSE(Parse("7ff0-8000 rw-p 00000000 00:00 0 \n").is_main_stack);
}

// A maps file of our own making.
std::optional<stackd_memory_map> Read(const std::string& text, uint64_t rsp, uint64_t thread_self = 0) {
  int fd = memfd_create("maps", MFD_CLOEXEC);
  EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  stackd_memory_map map;
  bool read = stackd_memory_map_read(&map, fd, rsp, thread_self);
  close(fd);
  return read ? std::optional(map) : std::nullopt;
}

stackd_code_ranges* Ranges(stackd_memory_map* map) { return stackd_memory_map_ranges(map); }

std::string Line(uint64_t start, uint64_t end, const char* perms, const char* path = "") {
  char text[300];
  snprintf(text, sizeof(text), "%lx-%lx %s 00000000 00:00 0      %s\n", start, end, perms, path);
  return text;
}

const std::string kMaps = Line(0x1000, 0x2000, "r-xp", "/program") + Line(0x2000, 0x3000, "rw-p", "/program") +
                          Line(0x10000, 0x11000, "---p") + Line(0x11000, 0x20000, "rw-p") + Line(0x20000, 0x28000, "rw-p") +
                          Line(0x400000, 0x500000, "rw-p", "[stack]");

TEST(MemoryMap, FindsTheMappingOfTheStackAndOfTheThread) {
  auto map = Read(kMaps, 0x12000, 0x2800);
  ASSERT_TRUE(map);
  EXPECT_EQ(map->stack.start, 0x11000u);
  EXPECT_EQ(map->stack.end, 0x28000u) << "of a stack that the kernel shows in two";
  EXPECT_EQ(Ranges(&*map)->writable_count, 2u);
  EXPECT_EQ(stackd_writable_mapping(Ranges(&*map), 0x2800).start, 0x2000u);
  EXPECT_EQ(Ranges(&*map)->main_stack.end, 0x500000u);
  EXPECT_EQ(Ranges(&*map)->code[0].end, 0x2000u);
}

TEST(MemoryMap, AStackThatHasOverflowedIsTheOneAboveItsGuard) {
  for (uint64_t rsp : {0x10ff8u, 0x10000u, 0x11000u}) EXPECT_EQ(Read(kMaps, rsp)->stack.start, 0x11000u) << rsp;
  // The main stack has a gap that maps do not show.
  for (uint64_t rsp : {0x3ffff8u, 0x3f0000u}) EXPECT_EQ(Read(kMaps, rsp)->stack.start, 0x400000u) << rsp;
}

TEST(MemoryMap, ARegisterThatPointsNowhereHasNoStack) {
  for (uint64_t rsp : {0x1234567890ull, ~0ull, 0x1500ull}) EXPECT_EQ(Read(kMaps, rsp)->stack.end, 0u) << rsp;
  EXPECT_EQ(Read(Line(0x40000000, 0x40001000, "rw-p"), 0x1234)->stack.end, 0u) << "far below any";
}

// Two stacks of four pages, each with a guard page below it, that the kernel shows as one mapping.
TEST(MemoryMap, AGuardThatIsNoMappingOfItsOwnIsSeen) {
  constexpr uint64_t kPage = 4096, kPages = 10;
  constexpr int kGuardInstall = 102;  // MADV_GUARD_INSTALL, from Linux 6.13 on
  void* memory = mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto low = reinterpret_cast<uint64_t>(memory), high = low + 5 * kPage, end = low + kPages * kPage;
  for (uint64_t guard : {low, high}) {
    if (madvise(reinterpret_cast<void*>(guard), kPage, kGuardInstall) != 0) GTEST_SKIP() << "the kernel has no such guards";
  }
  const auto read = [&](uint64_t rsp, uint64_t thread_self) {
    return Read(Line(low, end, "rw-p"), rsp, thread_self)->stack;
  };
  for (uint64_t rsp : {high + 8, high + kPage, high + kPage + 8}) {
    EXPECT_EQ(read(rsp, end - 0x900).start, high + kPage) << "in the guard, or in the page above it";
    EXPECT_EQ(read(rsp, end - 0x900).end, end);
  }
  for (uint64_t rsp : {low + 8, low + kPage, low + 2 * kPage}) {
    EXPECT_EQ(read(rsp, high - 0x900).end, high) << "the top is where the thread's descriptor ends";
  }
  EXPECT_EQ(read(low + 8, high - 0x900).start, low + kPage);
  EXPECT_EQ(read(low + 8, 0).end, end) << "whose stack it is is not known";
  munmap(memory, kPages * kPage);
}

TEST(MemoryMap, ManyPiecesOfCodeAreJoinedAcrossTheSmallestGaps) {
  std::string text;
  for (uint64_t start : {0x10000, 0x12000, 0x90000, 0x94000, 0x200000, 0x300000, 0x302000}) {
    text += Line(start, start + 0x1000, "r-xp");
  }
  auto map = Read(text, 0);
  EXPECT_EQ(Ranges(&*map)->code[0].start, 0x10000u);
  EXPECT_EQ(Ranges(&*map)->code[0].end, 0x13000u);
  EXPECT_EQ(Ranges(&*map)->code[1].end, 0x95000u);
  EXPECT_EQ(Ranges(&*map)->code[2].start, 0x200000u);
  EXPECT_EQ(Ranges(&*map)->code[3].end, 0x303000u);
}

TEST(MemoryMap, OfThisProcessIsWhatItIs) {
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  stackd_memory_map map;
  ASSERT_TRUE(stackd_memory_map_read(&map, fd, here, 0));
  close(fd);
  EXPECT_LT(map.stack.start, here);
  EXPECT_EQ(map.stack.end, Ranges(&map)->main_stack.end);
  bool found = false;
  auto code = reinterpret_cast<uint64_t>(&stackd_memory_map_read);
  for (const auto& range : Ranges(&map)->code) found |= code >= range.start && code < range.end;
  EXPECT_TRUE(found);
  EXPECT_FALSE(stackd_memory_map_read(&map, -1, here, 0));
}

}  // namespace
}  // namespace stackd
