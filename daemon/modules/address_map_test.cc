#include "daemon/modules/address_map.h"

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace stackd {
namespace {

std::string OwnMaps() {
  std::ifstream file("/proc/self/maps");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Mapping MappingAt(uint64_t start_avma, uint64_t end_avma) {
  Mapping mapping{};
  mapping.start_avma = start_avma;
  mapping.end_avma = end_avma;
  return mapping;
}

// An ELF file of nothing but headers.
std::shared_ptr<const Module> ModuleWithSegments(const std::vector<Elf64_Phdr>& segments) {
  Elf64_Ehdr elf{};
  memcpy(elf.e_ident, ELFMAG, SELFMAG);
  elf.e_ident[EI_CLASS] = ELFCLASS64;
  elf.e_ident[EI_DATA] = ELFDATA2LSB;
  elf.e_type = ET_DYN;
  elf.e_machine = EM_X86_64;
  elf.e_phoff = sizeof(elf);
  elf.e_phentsize = sizeof(Elf64_Phdr);
  elf.e_phnum = segments.size();
  int fd = memfd_create("segments", 0);
  EXPECT_EQ(write(fd, &elf, sizeof(elf)), ssize_t{sizeof(elf)});
  EXPECT_EQ(write(fd, segments.data(), segments.size() * sizeof(Elf64_Phdr)),
            static_cast<ssize_t>(segments.size() * sizeof(Elf64_Phdr)));
  auto module = Module::Open(Fd(fd), "segments");
  EXPECT_TRUE(module) << module.error().message;
  return *module;
}

Elf64_Phdr Load(uint32_t flags, uint64_t offset, uint64_t svma, uint64_t size) {
  return {PT_LOAD, flags, offset, svma, svma, size, size, 4096};
}

TEST(AddressMap, FindsTheMappingThatHoldsAnAddress) {
  AddressMap map({MappingAt(0x1000, 0x2000), MappingAt(0x2000, 0x3000), MappingAt(0x5000, 0x6000)});
  EXPECT_EQ(map.Find(0xfff), nullptr);
  EXPECT_EQ(map.Find(0x1000), &map.mappings()[0]);
  EXPECT_EQ(map.Find(0x1fff), &map.mappings()[0]);
  EXPECT_EQ(map.Find(0x2000), &map.mappings()[1]);
  EXPECT_EQ(map.Find(0x3000), nullptr);
  EXPECT_EQ(map.Find(0x5fff), &map.mappings()[2]);
  EXPECT_EQ(map.Find(0x6000), nullptr);
  EXPECT_EQ(AddressMap({}).Find(0x1000), nullptr);
}

TEST(ParseMaps, ReadsEveryFieldOfALine) {
  auto mappings = ParseMaps("7f01c000-7f01d000 r-xp 00002000 fe:10 1234                       /usr/lib/a b.so (deleted)\n");
  ASSERT_EQ(mappings.size(), 1u);
  EXPECT_EQ(mappings[0].start_avma, 0x7f01c000u);
  EXPECT_EQ(mappings[0].end_avma, 0x7f01d000u);
  EXPECT_TRUE(mappings[0].readable);
  EXPECT_FALSE(mappings[0].writable);
  EXPECT_TRUE(mappings[0].executable);
  EXPECT_EQ(mappings[0].file_offset, 0x2000u);
  EXPECT_EQ(mappings[0].device, makedev(0xfe, 0x10));
  EXPECT_EQ(mappings[0].inode, 1234u);
  EXPECT_EQ(mappings[0].path, "/usr/lib/a b.so (deleted)");
}

TEST(ParseMaps, SkipsLinesThatMakeNoSense) {
  auto mappings = ParseMaps(
      "\n"
      "nonsense\n"
      "2000-1000 r-xp 0 0:0 0 \n"
      "1000-2000 r-x\n"
      "1000-2000 r-xp 0 0 0 \n"
      "1000-20000000000000000 r-xp 0 0:0 0 \n"
      "1000-2000 r-xp 00000000 00:00 0 \n"
      "1800-2800 r-xp 00000000 00:00 0 \n"
      "3000-4000 rw-p 00000000 00:00 0");
  ASSERT_EQ(mappings.size(), 2u);
  EXPECT_EQ(mappings[0].start_avma, 0x1000u);
  EXPECT_EQ(mappings[0].path, "");
  EXPECT_EQ(mappings[1].start_avma, 0x3000u);
}

TEST(ParseMaps, ReadsWhatTheKernelWrites) {
  std::string text = OwnMaps();
  AddressMap map(ParseMaps(text));
  EXPECT_EQ(map.mappings().size(), static_cast<size_t>(std::ranges::count(text, '\n')));
  const Mapping* code = map.Find(reinterpret_cast<uint64_t>(&OwnMaps));
  ASSERT_NE(code, nullptr);
  EXPECT_TRUE(code->executable);
  struct stat st;
  ASSERT_EQ(stat("/proc/self/exe", &st), 0);
  EXPECT_EQ(code->inode, st.st_ino);
}

TEST(MappingBias, IsWhatTheLoaderChoseForThisProgram) {
  AddressMap map(ParseMaps(OwnMaps()));
  auto module = Module::Open(Fd(open("/proc/self/exe", O_RDONLY)), "self");
  ASSERT_TRUE(module);
  auto* headers = reinterpret_cast<const Elf64_Phdr*>(getauxval(AT_PHDR));
  uint64_t loader_bias = 0;
  for (unsigned long i = 0; i < getauxval(AT_PHNUM); ++i) {
    if (headers[i].p_type == PT_PHDR) loader_bias = reinterpret_cast<uint64_t>(headers) - headers[i].p_vaddr;
  }
  int checked = 0;
  struct stat st;
  ASSERT_EQ(stat("/proc/self/exe", &st), 0);
  for (const Mapping& mapping : map.mappings()) {
    if (mapping.inode != st.st_ino) continue;
    EXPECT_EQ(MappingBias(mapping, **module), loader_bias);
    ++checked;
  }
  EXPECT_GE(checked, 3);
}

TEST(MappingBias, DoesNotAssumeThatFileOffsetsEqualAddresses) {
  // As lld lays out: each segment one page further in memory than in the file, adjacent ones sharing a page of the file.
  auto module = ModuleWithSegments(
      {Load(PF_R, 0, 0, 0x1230), Load(PF_R | PF_X, 0x1230, 0x2230, 0x1000), Load(PF_R | PF_W, 0x2230, 0x4230, 0x100)});
  Mapping read_only = MappingAt(0x10000, 0x12000);
  EXPECT_EQ(MappingBias(read_only, *module), 0x10000u);
  Mapping code = MappingAt(0x12000, 0x14000);
  code.file_offset = 0x1000;
  code.executable = true;
  EXPECT_EQ(MappingBias(code, *module), 0x10000u);
  Mapping data = MappingAt(0x14000, 0x15000);
  data.file_offset = 0x2000;
  data.writable = true;
  EXPECT_EQ(MappingBias(data, *module), 0x10000u);
}

TEST(MappingBias, TakesTheSegmentThatBeginsInThePageWhereTwoShareIt) {
  // Neither is executable, so that does not tell them apart.
  auto module = ModuleWithSegments({Load(PF_R, 0, 0, 0x1230), Load(PF_R | PF_W, 0x1230, 0x3230, 0x100)});
  EXPECT_EQ(MappingBias(MappingAt(0x10000, 0x12000), *module), 0x10000u);
  Mapping data = MappingAt(0x13000, 0x14000);
  data.file_offset = 0x1000;
  data.writable = true;
  EXPECT_EQ(MappingBias(data, *module), 0x10000u);
}

TEST(MappingBias, BelongsToTheMappingWhenAFileIsMappedTwice) {
  auto module = ModuleWithSegments({Load(PF_R | PF_X, 0, 0x400000, 0x4000)});
  Mapping first = MappingAt(0x400000, 0x404000);
  first.executable = true;
  Mapping second = MappingAt(0x7f0000002000, 0x7f0000003000);
  second.file_offset = 0x2000;
  second.executable = true;
  EXPECT_EQ(MappingBias(first, *module), 0u);
  EXPECT_EQ(MappingBias(second, *module), 0x7f0000000000u - 0x400000u);
}

TEST(MappingBias, IsUnknownForAPartOfTheFileThatIsNotLoaded) {
  auto module = ModuleWithSegments({Load(PF_R | PF_X, 0x1000, 0x1000, 0x1000)});
  Mapping mapping = MappingAt(0x10000, 0x11000);
  mapping.file_offset = 0x5000;
  EXPECT_EQ(MappingBias(mapping, *module), std::nullopt);
}

}  // namespace
}  // namespace stackd
