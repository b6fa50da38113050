#include "daemon/core/core_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "daemon/core/core_layout.h"
#include "daemon/core/mapped_copies.h"
#include "daemon/core/testing/made_up_core.h"

namespace stackd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kStart = 0x400000, kPage = 4096;

// This program itself, as a file that was mapped.
std::string OwnPath() {
  char path[4096];
  return {path, static_cast<size_t>(readlink("/proc/self/exe", path, sizeof(path)))};
}

std::string OwnBytes(size_t size_bytes) {
  std::string bytes(size_bytes, '\0');
  std::ifstream(OwnPath()).read(bytes.data(), static_cast<std::streamsize>(size_bytes));
  return bytes;
}

// A core of which the first page, or what is given in its place, is there and the code is not.
class CoreMemoryTest : public ::testing::Test {
 protected:
  void Load(const std::string& first_page, const std::string& path = OwnPath()) {
    MadeUpCore made;
    made.AddThread(7);
    made.AddNote(NT_AUXV, BytesOf(Elf64_auxv_t{AT_ENTRY, {kStart + kPage}}));
    made.AddFiles({{kStart, kStart + kPage, 0, path}, {kStart + kPage, kStart + 2 * kPage, 1, path}});
    made.AddSegment(kStart, kPage, PF_R, first_page);
    made.AddSegment(kStart + kPage, kPage, PF_R | PF_X);
    made.AddSegment(kStart + 2 * kPage, 2 * kPage, PF_R | PF_W, std::string(2 * kPage, 'd'));
    core_.emplace(*CoreFile::Open(FileOf(made.Bytes()), "core.7"));
    layout_ = LayOut(*core_);
  }

  Result<MappedCopies> OpenCopies(const std::string& executable = {}) {
    return MappedCopies::Open(*core_, layout_, executable);
  }

  std::string Read(const MappedCopies& copies, uint64_t avma, size_t size_bytes) {
    std::string bytes(size_bytes, '\0');
    const int64_t got =
        CoreMemory(*core_, layout_, copies).Read(avma, {reinterpret_cast<uint8_t*>(bytes.data()), size_bytes});
    return got < 0 ? "" : bytes.substr(0, static_cast<size_t>(got));
  }

  std::optional<CoreFile> core_;
  CoreLayout layout_;
};

TEST_F(CoreMemoryTest, HasWhatTheCoreLeavesToAFileThatIsTheSame) {
  Load(OwnBytes(kPage));
  const auto copies = OpenCopies();
  ASSERT_TRUE(copies);
  EXPECT_EQ(copies->problem(0), "");
  EXPECT_EQ(Read(*copies, kStart + kPage - 4, 8), OwnBytes(kPage + 4).substr(kPage - 4)) << "across both";
  EXPECT_EQ(Read(*copies, kStart + 2 * kPage - 1, 2), OwnBytes(2 * kPage).substr(2 * kPage - 1) + "d");
  EXPECT_EQ(Read(*copies, kStart + 4 * kPage - 2, 8), "dd") << "up to the end";
  EXPECT_EQ(Read(*copies, kStart + 4 * kPage, 8), "");
  EXPECT_EQ(Read(*copies, 0, 8), "");
  EXPECT_TRUE(copies->Duplicate(OwnPath()).valid());
}

TEST_F(CoreMemoryTest, RefusesAFileWithAnotherFirstPage) {
  std::string page = OwnBytes(kPage);
  page[kPage - 1] ^= 1;
  Load(page);
  const auto copies = OpenCopies();
  EXPECT_THAT(copies->problem(0), HasSubstr("is another build than the one that ran"));
  EXPECT_THAT(copies->problem(0), HasSubstr("--exe FILE"));
  EXPECT_EQ(Read(*copies, kStart + kPage, 8), "");
  EXPECT_EQ(OpenCopies(OwnPath()).error().code, Code::kInvalidArgument);
}

TEST_F(CoreMemoryTest, RefusesAFileThatCannotBeCompared) {
  Load("");
  EXPECT_THAT(OpenCopies()->problem(0), HasSubstr("bit 4 of coredump_filter"));
}

TEST_F(CoreMemoryTest, SaysWhichFileIsMissing) {
  Load(OwnBytes(kPage), "/nowhere/app (deleted)");
  EXPECT_THAT(OpenCopies()->problem(0), HasSubstr("/nowhere/app (deleted) is not here"));
  const auto copies = OpenCopies(OwnPath());
  EXPECT_EQ(copies->problem(0), "") << "the program by another path";
  EXPECT_TRUE(copies->Duplicate("/proc/self/exe").valid());
  EXPECT_EQ(OpenCopies("/nowhere/else").error().code, Code::kNotFound);
}

TEST_F(CoreMemoryTest, DoesNotTakeFromAFileWhatWasWrittenAndIsCutOff) {
  MadeUpCore made;
  made.AddThread(7);
  made.AddFiles({{kStart, kStart + 3 * kPage, 0, OwnPath()}});
  made.AddSegment(kStart, kPage, PF_R | PF_X, OwnBytes(kPage));
  made.AddSegment(kStart + kPage, 2 * kPage, PF_R | PF_W, std::string(2 * kPage, 'd'));
  const std::string bytes = made.Bytes();
  core_.emplace(*CoreFile::Open(FileOf(bytes.substr(0, bytes.size() - kPage)), "core.7"));
  layout_ = LayOut(*core_);
  const auto copies = OpenCopies();
  EXPECT_EQ(copies->problem(0), "");
  EXPECT_EQ(Read(*copies, kStart + 2 * kPage - 1, 8), "d");
}

TEST_F(CoreMemoryTest, AddsCodeThatADebuggerHasLeftOut) {
  const std::string page = OwnBytes(kPage);
  Elf64_Ehdr header;
  memcpy(&header, page.data(), sizeof(header));
  uint64_t code_svma = 0, code_offset = 0;
  for (int i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    memcpy(&segment, page.data() + header.e_phoff + static_cast<size_t>(i) * sizeof(segment), sizeof(segment));
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    // Some linkers have code in the first segment, behind the headers.
    const uint64_t behind = segment.p_offset < kPage ? kPage : 0;
    code_svma = segment.p_vaddr / kPage * kPage + behind;
    code_offset = (segment.p_offset + behind) / kPage;
  }
  ASSERT_GT(code_svma, 0u);
  MadeUpCore made;
  made.AddThread(7);
  made.AddFiles({{kStart, kStart + kPage, 0, OwnPath()},
                 {kStart + code_svma, kStart + code_svma + kPage, code_offset, OwnPath()},
                 {1ull << 40, (1ull << 40) + kPage, 0, "/usr/lib/locale/of/nothing"}});
  made.AddSegment(kStart, kPage, PF_R, page);
  core_.emplace(*CoreFile::Open(FileOf(made.Bytes()), "core.7"));
  layout_ = LayOut(*core_);
  ASSERT_EQ(layout_.parts.size(), 2u);
  EXPECT_TRUE(layout_.parts[1].executable && !layout_.parts[1].writable);
  EXPECT_EQ(Read(*OpenCopies(), kStart + code_svma, 8), OwnBytes((code_offset + 1) * kPage).substr(code_offset * kPage, 8));
  EXPECT_THAT(MapsText(*core_, layout_), HasSubstr("r-xp"));
}

TEST(MapsText, KeepsEachFileOnItsLine) {
  MadeUpCore made;
  made.AddThread(7);
  made.AddNote(NT_AUXV, BytesOf(Elf64_auxv_t{AT_RANDOM, {0x30008}}));
  made.AddFiles({{0x10000, 0x11000, 2, "/srv/a\nb"}, {0x20000, 0x21000, 0, "/dev/shm/x"}});
  made.AddSegment(0x10000, 0x2000, PF_R);
  made.AddSegment(0x20000, 0x1000, PF_R | PF_W);
  made.AddSegment(0x30000, 0x1000, PF_R | PF_W);
  const auto core = CoreFile::Open(FileOf(made.Bytes()), "core.7");
  EXPECT_EQ(MapsText(*core, LayOut(*core)),
            "10000-11000 r--p 00002000 00:00 1 /srv/a\\012b\n"
            "11000-12000 r--p 00000000 00:00 0 \n"
            "20000-21000 rw-s 00000000 00:00 2 /dev/shm/x\n"
            "30000-31000 rw-p 00000000 00:00 0 [stack]\n");
}

TEST(MapsText, NamesTheHeapAboveTheProgram) {
  constexpr uint64_t kFar = 1ull << 40;
  const auto maps_with_heap_at = [](uint64_t heap_avma) {
    MadeUpCore made;
    made.AddThread(7);
    made.AddNote(NT_AUXV, BytesOf(Elf64_auxv_t{AT_ENTRY, {kFar + 8}}));
    made.AddFiles({{kFar, kFar + 0x1000, 0, "/srv/app"}});
    made.AddSegment(kFar, 0x1000, PF_R | PF_X);
    made.AddSegment(kFar + 0x1000, 0x1000, PF_R | PF_W);
    made.AddSegment(heap_avma, 0x1000, PF_R | PF_W);
    made.AddSegment(heap_avma + 0x2000, 0x1000, PF_R | PF_W);
    const auto core = CoreFile::Open(FileOf(made.Bytes()), "core.7");
    return MapsText(*core, LayOut(*core));
  };
  EXPECT_THAT(maps_with_heap_at(kFar + 0x5000), HasSubstr("10000005000-10000006000 rw-p 00000000 00:00 0 [heap]\n"));
  EXPECT_THAT(maps_with_heap_at(kFar + (2ull << 30)), Not(HasSubstr("[heap]"))) << "too far away";
}

}  // namespace
}  // namespace stackd
