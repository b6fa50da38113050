// A Go program for tests, made by no compiler: its file, and its memory, which is the test's own.
#pragma once

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/managed/go/go_binary.h"
#include "daemon/managed/go/testing/table_maker.h"

namespace stackd {

// A program of one segment, whose file is laid out as its memory is.
class GoProgramTest : public testing::Test {
 protected:
  static constexpr uint64_t kBase = 0x400000, kBuildInfo = 0x200, kFunctionData = 0x300, kText = 0x500, kOuter = 0x600,
                            kLeaf = 0x640, kTextEnd = 0x650, kData = 0x700, kModule = 0x708, kGoroutines = 0xa00,
                            kTable = 0x1000, kNames = 0x1800, kSections = 0x1900, kBytes = 0x2000;

  GoProgramTest() : image_(kBytes) {
    Fd mem(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(memory_.SetMemory(&mem));
    mapped_ = static_cast<uint8_t*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    PutBuildInfo("go1.26.8");
    PutInlinedCall(TableMaker::kInnerName, 0xc);
    PutCode();
    const std::vector<uint8_t> table = TableMaker("runtime.forEachG").Make();
    memcpy(&image_[kTable], table.data(), table.size());
    PutHeaders(table.size());
  }
  ~GoProgramTest() override { munmap(mapped_, kBytes); }

  uint64_t bias() const { return reinterpret_cast<uint64_t>(mapped_) - kBase; }

  template <typename T>
  void Put(uint64_t offset, const T& value) {
    memcpy(&image_[offset], &value, sizeof(value));
  }

  void PutBuildInfo(const std::string& version) {
    const std::string text =
        std::string("\xff Go buildinf:\x08\x02", 16) + std::string(16, '\0') + static_cast<char>(version.size()) + version;
    memcpy(&image_[kBuildInfo], text.data(), text.size());
  }

  // The fourth inlined call of main.outer, compiled in at `parent` bytes after its start.
  void PutInlinedCall(uint32_t name, uint32_t parent) {
    Put(kFunctionData + 0x40 + 3 * 16 + 4, name);
    Put(kFunctionData + 0x40 + 3 * 16 + 8, parent);
  }

  // runtime.forEachG: loads the length of the list, then its start, each by an address relative to what comes next.
  void PutCode() {
    const uint8_t load_rcx[] = {0x48, 0x8b, 0x0d}, load_rax[] = {0x48, 0x8b, 0x05};
    memcpy(&image_[kLeaf], load_rcx, 3);
    Put(kLeaf + 3, static_cast<int32_t>(kGoroutines + 8 - (kLeaf + 7)));
    memcpy(&image_[kLeaf + 7], load_rax, 3);
    Put(kLeaf + 10, static_cast<int32_t>(kGoroutines - (kLeaf + 14)));
  }

  void PutHeaders(uint64_t table_bytes) {
    Elf64_Ehdr header{};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_EXEC;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_phoff = sizeof(header);
    header.e_shoff = kSections;
    header.e_ehsize = sizeof(header);
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 5;
    header.e_shstrndx = 4;
    Put(0, header);
    Elf64_Phdr segment{};
    segment.p_type = PT_LOAD;
    segment.p_flags = PF_R | PF_W | PF_X;
    segment.p_vaddr = kBase;
    segment.p_filesz = segment.p_memsz = kBytes;
    segment.p_align = 4096;
    Put(sizeof(header), segment);
    const std::string names = std::string("\0.go.buildinfo\0.gopclntab\0.noptrdata\0", 37);
    memcpy(&image_[kNames], names.data(), names.size());
    PutSection(1, 1, kBuildInfo, kFunctionData - kBuildInfo);
    PutSection(2, 15, kTable, table_bytes);
    PutSection(3, 26, kData, kGoroutines - kData);
    PutSection(4, 0, kNames, names.size());
  }
  void PutSection(uint64_t number, uint32_t name, uint64_t offset, uint64_t size_bytes) {
    Elf64_Shdr section{};
    section.sh_name = name;
    section.sh_type = SHT_PROGBITS;
    section.sh_flags = number == 4 ? 0 : SHF_ALLOC;
    section.sh_addr = number == 4 ? 0 : kBase + offset;
    section.sh_offset = offset;
    section.sh_size = size_bytes;
    Put(kSections + number * sizeof(section), section);
  }
  // The program loads: its addresses are those that they have in memory.
  void Load() {
    Put(kModule, kBase + kTable + bias());
    Put(kModule + 160, kBase + kOuter + bias());  // the lowest address of code
    Put(kModule + 176, kBase + kText + bias());
    Put(kModule + 184, kBase + kTextEnd + bias());
    Put(kModule + 320, kBase + kFunctionData + bias());
    memcpy(mapped_, image_.data(), kBytes);
  }

  std::shared_ptr<const Module> File() {
    Fd file(memfd_create("go", MFD_CLOEXEC));
    EXPECT_EQ(write(file.get(), image_.data(), image_.size()), static_cast<ssize_t>(image_.size()));
    auto module = Module::Open(std::move(file), "/bin/program");
    EXPECT_TRUE(module.has_value()) << module.error().message;
    return module ? *module : nullptr;
  }
  auto Open() { return GoFile::Open(File(), INT64_MAX); }
  Result<GoBinary> Find() {
    auto file = Open();
    if (!file) return std::unexpected(file.error());
    return GoBinary::Find(*file, memory_, bias(), INT64_MAX);
  }

  std::vector<uint8_t> image_;
  uint8_t* mapped_;
  ProcessFiles memory_;
};

}  // namespace stackd
