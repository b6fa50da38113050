#include "daemon/modules/module.h"

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "daemon/modules/byte_reader.h"

namespace stackd {
namespace {

Fd MemoryFile(const void* bytes, size_t size_bytes) {
  Fd fd(memfd_create("test", 0));
  EXPECT_EQ(write(fd.get(), bytes, size_bytes), static_cast<ssize_t>(size_bytes));
  return fd;
}

Fd MemoryFile(const std::vector<uint8_t>& bytes) { return MemoryFile(bytes.data(), bytes.size()); }

std::vector<uint8_t> FileBytes(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY));
  std::vector<uint8_t> bytes(lseek(fd.get(), 0, SEEK_END));
  EXPECT_EQ(pread(fd.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return bytes;
}

std::shared_ptr<const Module> OpenOrFail(Fd fd) {
  auto module = Module::Open(std::move(fd), "test");
  EXPECT_TRUE(module) << module.error().message;
  return module ? *module : nullptr;
}

std::vector<uint8_t> SectionBytes(const Module& module, const char* name) {
  const Section* section = module.FindSection(name);
  if (section == nullptr) return {};
  return module.Read(section->file_offset, section->size_bytes).value();
}

// Path of the C++ library that this test runs with.
std::string CxxLibraryPath() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        if (strstr(info->dlpi_name, "libstdc++") == nullptr) return 0;
        *static_cast<std::string*>(result) = info->dlpi_name;
        return 1;
      },
      &path);
  EXPECT_FALSE(path.empty());
  return path;
}

std::vector<uint8_t> WithoutSectionHeaders(std::vector<uint8_t> bytes) {
  Elf64_Ehdr elf;
  memcpy(&elf, bytes.data(), sizeof(elf));
  elf.e_shoff = 0;
  elf.e_shnum = 0;
  elf.e_shstrndx = 0;
  memcpy(bytes.data(), &elf, sizeof(elf));
  return bytes;
}

bool StartsWith(const std::vector<uint8_t>& bytes, const std::vector<uint8_t>& start) {
  return bytes.size() >= start.size() && std::equal(start.begin(), start.end(), bytes.begin());
}

TEST(Module, ReadsALibrary) {
  std::string path = CxxLibraryPath();
  auto module = OpenOrFail(Fd(open(path.c_str(), O_RDONLY)));
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->build_id().size(), 20u);
  EXPECT_FALSE(module->is_memory_image());
  EXPECT_GE(module->segments().size(), 2u);
  for (const char* name : {".text", ".eh_frame", ".eh_frame_hdr"}) {
    ASSERT_NE(module->FindSection(name), nullptr) << name;
    EXPECT_GT(module->FindSection(name)->size_bytes, 0u) << name;
  }
  EXPECT_EQ(module->FindSection(".debug_frame"), nullptr);
  const Section* text = module->FindSection(".text");
  EXPECT_EQ(module->FileOffsetToSvma(text->file_offset), text->svma);
  EXPECT_EQ(module->FileOffsetToSvma(module->identity().size_bytes), std::nullopt);
}

TEST(Module, FindsUnwindTablesWithoutSectionHeaders) {
  std::string path = CxxLibraryPath();
  auto whole = OpenOrFail(Fd(open(path.c_str(), O_RDONLY)));
  auto stripped = OpenOrFail(MemoryFile(WithoutSectionHeaders(FileBytes(path))));
  ASSERT_TRUE(whole && stripped);
  EXPECT_FALSE(stripped->is_memory_image());
  EXPECT_EQ(stripped->build_id(), whole->build_id());
  EXPECT_EQ(SectionBytes(*stripped, ".eh_frame_hdr"), SectionBytes(*whole, ".eh_frame_hdr"));
  EXPECT_EQ(stripped->FindSection(".eh_frame")->svma, whole->FindSection(".eh_frame")->svma);
  EXPECT_TRUE(StartsWith(SectionBytes(*stripped, ".eh_frame"), SectionBytes(*whole, ".eh_frame")));
}

// A file whose second segment is one page further on in memory than in the file, and holds the unwind tables and the notes.
std::vector<uint8_t> FileOrImage(bool image) {
  constexpr uint64_t kBase = 0x400000, kSvma = kBase + 0x3000, kFileOffset = 0x1000;
  std::vector<uint8_t> bytes(0x3200);
  Elf64_Ehdr elf{};
  memcpy(elf.e_ident, ELFMAG, SELFMAG);
  elf.e_ident[EI_CLASS] = ELFCLASS64;
  elf.e_ident[EI_DATA] = ELFDATA2LSB;
  elf.e_type = ET_EXEC;
  elf.e_machine = EM_X86_64;
  elf.e_phoff = sizeof(elf);
  elf.e_phentsize = sizeof(Elf64_Phdr);
  elf.e_phnum = 4;
  memcpy(bytes.data(), &elf, sizeof(elf));
  Elf64_Phdr headers[4] = {
      {PT_LOAD, PF_R | PF_X, 0, kBase, kBase, 0x800, 0x800, 4096},
      {PT_LOAD, PF_R, kFileOffset, kSvma, kSvma, 0x200, 0x200, 4096},
      {PT_GNU_EH_FRAME, PF_R, kFileOffset, kSvma, kSvma, 12, 12, 4},
      {PT_NOTE, PF_R, kFileOffset + 0x100, kSvma + 0x100, kSvma + 0x100, 20, 20, 4},
  };
  memcpy(bytes.data() + sizeof(elf), headers, sizeof(headers));
  uint8_t* second = bytes.data() + (image ? 0x3000 : kFileOffset);
  // .eh_frame stands 0x10 into the segment, 12 bytes after the pointer to it.
  const uint8_t eh_frame_hdr[] = {1, 0x1b, 0xff, 0xff, 12, 0, 0, 0};
  memcpy(second, eh_frame_hdr, sizeof(eh_frame_hdr));
  memcpy(second + 0x10, "eh_frame", 8);
  const uint8_t note[] = {4, 0, 0, 0, 4, 0, 0, 0, NT_GNU_BUILD_ID, 0, 0, 0, 'G', 'N', 'U', 0, 0xca, 0xfe, 0xba, 0xbe};
  memcpy(second + 0x100, note, sizeof(note));
  return bytes;
}

TEST(Module, ReadsAnImageCopiedFromMemoryAsTheFileItWas) {
  for (bool image : {false, true}) {
    auto module = OpenOrFail(MemoryFile(FileOrImage(image)));
    ASSERT_NE(module, nullptr);
    EXPECT_EQ(module->is_memory_image(), image);
    EXPECT_EQ(module->lowest_svma(), 0x400000u);
    EXPECT_EQ(module->build_id(), "\xca\xfe\xba\xbe");
    ASSERT_NE(module->FindSection(".eh_frame"), nullptr);
    EXPECT_EQ(module->FindSection(".eh_frame")->svma, 0x403010u);
    EXPECT_EQ(module->FindSection(".eh_frame")->size_bytes, 0x1f0u);
    EXPECT_EQ(module->FindSection(".eh_frame_hdr")->svma, 0x403000u);
    EXPECT_TRUE(StartsWith(SectionBytes(*module, ".eh_frame"), {'e', 'h', '_', 'f', 'r', 'a', 'm', 'e'}));
  }
}

TEST(Module, ReadsTheVdsoWithAndWithoutItsSectionHeaders) {
  auto* vdso = reinterpret_cast<const uint8_t*>(getauxval(AT_SYSINFO_EHDR));
  if (vdso == nullptr) GTEST_SKIP() << "this kernel has no vDSO";
  std::vector<uint8_t> bytes(vdso, vdso + 2 * 4096);
  for (auto& image : {bytes, WithoutSectionHeaders(bytes)}) {
    auto module = OpenOrFail(MemoryFile(image));
    ASSERT_NE(module, nullptr);
    const Section* eh_frame = module->FindSection(".eh_frame");
    ASSERT_NE(eh_frame, nullptr);
    EXPECT_EQ(eh_frame->file_offset, eh_frame->svma - module->lowest_svma());
    EXPECT_FALSE(module->build_id().empty());
  }
}

TEST(Module, IdentityChangesWhenTheFileDoes) {
  auto bytes = FileBytes("/proc/self/exe");
  Fd fd = MemoryFile(bytes);
  Fd same(dup(fd.get()));
  auto before = OpenOrFail(Fd(dup(fd.get())));
  auto again = OpenOrFail(Fd(dup(fd.get())));
  ASSERT_EQ(write(fd.get(), "x", 1), 1);
  auto after = OpenOrFail(std::move(fd));
  ASSERT_TRUE(before && again && after);
  EXPECT_EQ(before->identity(), again->identity());
  EXPECT_NE(before->identity(), after->identity());
}

TEST(Module, RefusesWhatIsNoElfFileForThisProcessor) {
  auto refused = [](Fd fd) {
    auto module = Module::Open(std::move(fd), "test");
    return !module && module.error().code == Code::kInvalidArgument && module.error().message.starts_with("test: ");
  };
  EXPECT_TRUE(refused(Fd()));
  EXPECT_TRUE(refused(Fd(open("/", O_RDONLY))));
  EXPECT_TRUE(refused(Fd(open("/dev/zero", O_RDONLY))));
  EXPECT_TRUE(refused(MemoryFile("", 0)));
  EXPECT_TRUE(refused(MemoryFile("#!/bin/sh", 9)));
  auto with = [](size_t offset, uint8_t value) {
    auto bytes = FileBytes("/proc/self/exe");
    bytes[offset] = value;
    return MemoryFile(bytes);
  };
  EXPECT_FALSE(refused(with(EI_MAG0, 0x7f)));
  EXPECT_TRUE(refused(with(EI_MAG0, 0)));
  EXPECT_TRUE(refused(with(EI_CLASS, ELFCLASS32)));
  EXPECT_TRUE(refused(with(EI_DATA, ELFDATA2MSB)));
  EXPECT_TRUE(refused(with(offsetof(Elf64_Ehdr, e_machine), EM_386)));
  EXPECT_TRUE(refused(with(offsetof(Elf64_Ehdr, e_type), ET_CORE)));
  EXPECT_TRUE(refused(with(offsetof(Elf64_Ehdr, e_phoff) + 7, 0xff)));
  EXPECT_TRUE(refused(with(offsetof(Elf64_Ehdr, e_phnum) + 1, 0xff)));
}

TEST(Module, LeavesOutSectionsThatReachBeyondTheFile) {
  auto bytes = FileBytes("/proc/self/exe");
  Elf64_Ehdr elf;
  memcpy(&elf, bytes.data(), sizeof(elf));
  for (uint64_t i = 0; i < elf.e_phnum; ++i) {
    auto* header = reinterpret_cast<Elf64_Phdr*>(bytes.data() + elf.e_phoff) + i;
    if (header->p_type == PT_GNU_EH_FRAME) header->p_type = PT_NULL;
  }
  for (uint64_t i = 0; i < elf.e_shnum; ++i) {
    auto* header = reinterpret_cast<Elf64_Shdr*>(bytes.data() + elf.e_shoff) + i;
    if (header->sh_type != SHT_NULL && header->sh_type != SHT_STRTAB) header->sh_size = ~uint64_t{0} - 4;
  }
  auto module = OpenOrFail(MemoryFile(bytes));
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->FindSection(".text"), nullptr);
  EXPECT_EQ(module->FindSection(".eh_frame"), nullptr);
}

TEST(Module, ReadsNothingBeyondTheFileOrTheLimit) {
  auto bytes = FileBytes("/proc/self/exe");
  Fd fd = MemoryFile(bytes);
  Fd writer(dup(fd.get()));
  auto module = OpenOrFail(std::move(fd));
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->Read(0, 4).value(), (std::vector<uint8_t>{0x7f, 'E', 'L', 'F'}));
  EXPECT_EQ(module->Read(0, 5, 4).error().code, Code::kResourceExhausted);
  EXPECT_EQ(module->Read(bytes.size() - 1, 2).error().code, Code::kOutOfRange);
  EXPECT_EQ(module->Read(~uint64_t{0}, 2).error().code, Code::kOutOfRange);
  ASSERT_EQ(ftruncate(writer.get(), 100), 0);
  EXPECT_EQ(module->Read(0, 200).error().code, Code::kDataLoss);
}

TEST(ByteReader, ReadsLeb128) {
  std::vector<uint8_t> bytes = {0xe5, 0x8e, 0x26, 0xc0, 0xbb, 0x78, 0x7f, 0xff, 0xff,
                                0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
  ByteReader reader(bytes);
  EXPECT_EQ(reader.Uleb(), 624485u);
  EXPECT_EQ(reader.Sleb(), -123456);
  EXPECT_EQ(reader.Sleb(), -1);
  EXPECT_EQ(reader.Uleb(), ~uint64_t{0});
  EXPECT_TRUE(reader.ok());
  EXPECT_TRUE(reader.at_end());
}

TEST(ByteReader, GivesZeroBeyondTheEndForEver) {
  std::vector<uint8_t> bytes = {0xff, 0xff};
  ByteReader reader(bytes);
  EXPECT_EQ(reader.U32(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.U8(), 0u);
  ByteReader endless(bytes);
  endless.Uleb();
  EXPECT_FALSE(endless.ok());
  ByteReader unterminated(bytes);
  EXPECT_TRUE(unterminated.String().empty());
  EXPECT_FALSE(unterminated.ok());
}

}  // namespace
}  // namespace stackd
