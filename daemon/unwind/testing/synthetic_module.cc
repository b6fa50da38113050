#include "daemon/unwind/testing/synthetic_module.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace stackd {
namespace {

void Append(std::vector<uint8_t>& bytes, uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

// One at a time: g++ 12 takes an insertion of several into a short vector for an overflow.
void AppendAll(std::vector<uint8_t>& bytes, const auto& more) {
  for (auto byte : more) bytes.push_back(static_cast<uint8_t>(byte));
}

}  // namespace

uint32_t CfiBuilder::Cie(const std::string& augmentation, const Bytes& augmentation_data) {
  Bytes body = {0, 0, 0, 0, 1};
  AppendAll(body, augmentation);
  AppendAll(body, Bytes{0, 1, 0x78, 16, static_cast<uint8_t>(augmentation_data.size())});
  AppendAll(body, augmentation_data);
  AppendAll(body, Bytes{0x0c, 7, 8, 0x90, 1});
  return Add(body);
}

uint32_t CfiBuilder::Fde(uint32_t cie_offset, uint64_t begin_svma, uint32_t size_bytes, const Bytes& instructions) {
  auto offset = static_cast<uint32_t>(bytes_.size());
  Bytes body;
  Append(body, offset + 4 - cie_offset);
  Append(body, static_cast<uint32_t>(begin_svma - (kSyntheticCfiSvma + offset + 8)));
  Append(body, size_bytes);
  body.push_back(0);
  AppendAll(body, instructions);
  return Add(body);
}

uint32_t CfiBuilder::Add(const Bytes& body) {
  auto offset = static_cast<uint32_t>(bytes_.size());
  Append(bytes_, static_cast<uint32_t>(body.size()));
  AppendAll(bytes_, body);
  return offset;
}

std::shared_ptr<const Module> SyntheticModule(const std::vector<SyntheticSection>& sections,
                                              const std::vector<uint8_t>& code) {
  const Segment& segment = kSyntheticCode[0];
  std::vector<Elf64_Shdr> headers(1);
  std::string names(1, '\0');
  uint64_t content_offset = segment.file_offset + segment.file_bytes;
  for (const SyntheticSection& section : sections) {
    uint64_t svma = (section.flags & SHF_ALLOC) != 0 ? kSyntheticCfiSvma : 0;
    headers.push_back({static_cast<uint32_t>(names.size()), SHT_PROGBITS, section.flags, svma, content_offset,
                       section.content.size(), 0, 0, 1, 0});
    names += section.name + std::string(1, '\0');
    content_offset += section.content.size();
  }
  const uint64_t names_offset = content_offset;
  const auto names_name = static_cast<uint32_t>(names.size());
  names += ".shstrtab" + std::string(1, '\0');
  headers.push_back({names_name, SHT_STRTAB, 0, 0, names_offset, names.size(), 0, 0, 1, 0});

  Elf64_Ehdr elf{};
  memcpy(elf.e_ident, ELFMAG, SELFMAG);
  elf.e_ident[EI_CLASS] = ELFCLASS64;
  elf.e_ident[EI_DATA] = ELFDATA2LSB;
  elf.e_type = ET_DYN;
  elf.e_machine = EM_X86_64;
  elf.e_phoff = sizeof(elf);
  elf.e_phentsize = sizeof(Elf64_Phdr);
  elf.e_phnum = 1;
  elf.e_shoff = sizeof(elf) + sizeof(Elf64_Phdr);
  elf.e_shentsize = sizeof(Elf64_Shdr);
  elf.e_shnum = static_cast<uint16_t>(headers.size());
  elf.e_shstrndx = static_cast<uint16_t>(headers.size() - 1);
  Elf64_Phdr load{PT_LOAD,      PF_R | PF_X,        segment.file_offset,  segment.svma,
                  segment.svma, segment.file_bytes, segment.memory_bytes, 4096};

  Fd fd(memfd_create("synthetic", MFD_CLOEXEC));
  auto put = [&fd](const void* bytes, size_t size_bytes, uint64_t file_offset) {
    EXPECT_EQ(pwrite(fd.get(), bytes, size_bytes, static_cast<off_t>(file_offset)), static_cast<ssize_t>(size_bytes));
  };
  put(&elf, sizeof(elf), 0);
  put(&load, sizeof(load), elf.e_phoff);
  put(headers.data(), headers.size() * sizeof(headers[0]), elf.e_shoff);
  put(code.data(), code.size(), segment.file_offset);
  for (size_t i = 0; i < sections.size(); ++i) {
    put(sections[i].content.data(), sections[i].content.size(), headers[i + 1].sh_offset);
  }
  put(names.data(), names.size(), names_offset);
  auto module = Module::Open(std::move(fd), "synthetic");
  EXPECT_TRUE(module) << module.error().message;
  return module.value_or(nullptr);
}

std::shared_ptr<const Module> SyntheticModule(const std::string& section_name, uint32_t section_flags,
                                              const std::vector<uint8_t>& section_content,
                                              const std::vector<uint8_t>& code) {
  return SyntheticModule({{section_name, section_flags, section_content}}, code);
}

}  // namespace stackd
