#include "daemon/core/core_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/testing/made_up_core.h"

namespace stackd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<CoreFile> Open(const std::string& bytes) { return CoreFile::Open(FileOf(bytes), "core.7"); }

MadeUpCore WithThread() {
  MadeUpCore made;
  made.AddThread(7);
  return made;
}

TEST(CoreFile, HasWhatItsNotesSay) {
  MadeUpCore made;
  made.AddThread(7, 0x1111, 0x2222);
  siginfo_t signal{};
  signal.si_signo = SIGSEGV;
  made.AddNote(NT_SIGINFO, BytesOf(signal));
  elf_prpsinfo process{};
  process.pr_pid = 7;
  strcpy(process.pr_fname, "app");
  strcpy(process.pr_psargs, "/srv/app --password hunter2");
  made.AddNote(NT_PRPSINFO, BytesOf(process));
  made.AddNote(NT_PRSTATUS, "a note of another kind has the same number", "LINUX");
  made.AddFiles({{0x10000, 0x12000, 3, "/srv/app"}});
  made.AddThread(8);
  made.AddSegment(0x10000, 0x1000, PF_R | PF_X, std::string(0x1000, 'x'));
  const auto core = Open(made.Bytes());
  ASSERT_TRUE(core) << core.error().message;
  ASSERT_EQ(core->threads().size(), 2u);
  EXPECT_EQ(core->threads()[0].tid, 7);
  EXPECT_EQ(core->threads()[0].registers.rip, 0x1111u);
  EXPECT_EQ(core->signal()->si_signo, SIGSEGV);
  EXPECT_EQ(core->argv0(), "/srv/app") << "and nothing of what it was told";
  EXPECT_EQ(core->name(), "app");
  ASSERT_EQ(core->mappings().size(), 1u);
  EXPECT_EQ(core->mappings()[0].file_offset, 3u * 4096);
  ASSERT_EQ(core->segments().size(), 1u);
  EXPECT_TRUE(core->segments()[0].executable && !core->segments()[0].writable);
  EXPECT_THAT(core->notes(), IsEmpty());
}

TEST(CoreFile, RefusesWhatIsNoCoreAndSaysWhy) {
  EXPECT_THAT(Open("").error().message, HasSubstr("is empty"));
  EXPECT_THAT(Open("#!/bin/sh\n").error().message, HasSubstr("is no core file"));
  EXPECT_THAT(Open("\x28\xb5\x2f\xfd compressed").error().message, HasSubstr("zstd -d"));
  std::string bytes = WithThread().Bytes();
  bytes[offsetof(Elf64_Ehdr, e_machine)] = EM_ARM;
  EXPECT_THAT(Open(bytes).error().message, HasSubstr("not for x86-64"));
  EXPECT_THAT(Open(MadeUpCore().Bytes()).error().message, HasSubstr("has no thread"));
}

TEST(CoreFile, ThatIsCutSaysHowMuchIsThere) {
  MadeUpCore made = WithThread();
  made.AddSegment(0x10000, 0x4000, PF_R | PF_W, std::string(0x4000, 'x'));
  const std::string bytes = made.Bytes();
  const auto core = Open(bytes.substr(0, bytes.size() - 0x3000));
  ASSERT_TRUE(core) << core.error().message;
  EXPECT_EQ(core->segments()[0].file_bytes, 0x1000u);
  EXPECT_TRUE(core->segments()[0].cut);
  EXPECT_THAT(core->notes()[0], HasSubstr("is cut: " + std::to_string(bytes.size() - 0x3000) + " of " +
                                          std::to_string(bytes.size()) + " bytes"));
  EXPECT_THAT(Open(bytes.substr(0, 200)).error().message, HasSubstr("is cut before its threads: 200 of"));
}

TEST(CoreFile, LeavesOutSegmentsThatOverlapOrEndNowhere) {
  MadeUpCore made = WithThread();
  made.AddSegment(0x20000, 0x4000, PF_R);
  made.AddSegment(0x10000, 0x4000, PF_R);
  made.AddSegment(0x11000, 0x4000, PF_R);
  made.AddSegment(~0ull - 0x1000, 0x4000, PF_R);
  const auto core = Open(made.Bytes());
  ASSERT_EQ(core->segments().size(), 2u);
  EXPECT_EQ(core->segments()[0].start_avma, 0x10000u);
  EXPECT_THAT(core->notes()[0], HasSubstr("2 segments"));
}

TEST(CoreFile, BelievesNoNumberOfSegments) {
  std::string bytes = WithThread().Bytes();
  Elf64_Ehdr header;
  memcpy(&header, bytes.data(), sizeof(header));
  header.e_phnum = PN_XNUM;
  header.e_shoff = bytes.size();
  memcpy(bytes.data(), &header, sizeof(header));
  Elf64_Shdr first{};
  first.sh_info = 4'000'000'000;
  const auto core = Open(bytes + BytesOf(first));
  ASSERT_TRUE(core) << core.error().message;
  EXPECT_THAT(core->notes()[0], HasSubstr("segments of the core make no sense, or are too many"));
}

TEST(CoreFile, TakesEachThreadOnce) {
  MadeUpCore made = WithThread();
  made.AddThread(7);
  made.AddThread(-1);
  made.AddNote(NT_PRSTATUS, "short");
  const auto core = Open(made.Bytes());
  EXPECT_EQ(core->threads().size(), 1u);
  EXPECT_THAT(core->notes()[0], HasSubstr("3 threads"));
}

TEST(CoreFile, ListsNoFilesWhereTheirNoteLies) {
  MadeUpCore made = WithThread();
  made.AddNote(NT_FILE, BytesOf(~uint64_t{0}) + BytesOf(uint64_t{4096}) + "/srv/app");
  EXPECT_THAT(Open(made.Bytes())->mappings(), IsEmpty());
}

}  // namespace
}  // namespace stackd
