#include "daemon/modules/loaded_sections.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace stackd {
namespace {

constexpr uint64_t kMaxSections = 4096;
constexpr uint64_t kMaxNamesBytes = 1 << 20;
// All sections may share one name.
constexpr size_t kMaxNameBytes = 64;

template <typename T>
bool ReadValue(const Module& module, uint64_t file_offset, T* value) {
  auto bytes = module.Read(file_offset, sizeof(T));
  if (!bytes) return false;
  memcpy(value, bytes->data(), sizeof(T));
  return true;
}

}  // namespace

std::vector<NamedSection> LoadedSections(const Module& module) {
  Elf64_Ehdr header;
  if (module.is_memory_image() || !ReadValue(module, 0, &header)) return {};
  if (header.e_shnum == 0 || header.e_shnum > kMaxSections || header.e_shentsize != sizeof(Elf64_Shdr) ||
      header.e_shstrndx >= header.e_shnum) {
    return {};
  }
  auto table = module.Read(header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr));
  if (!table) return {};
  std::vector<Elf64_Shdr> headers(header.e_shnum);
  memcpy(headers.data(), table->data(), table->size());
  const Elf64_Shdr& names_header = headers[header.e_shstrndx];
  auto names = module.Read(names_header.sh_offset, names_header.sh_size, kMaxNamesBytes);
  if (!names) return {};
  std::vector<NamedSection> sections;
  for (const Elf64_Shdr& section : headers) {
    if ((section.sh_flags & SHF_ALLOC) == 0 || section.sh_type == SHT_NOBITS || section.sh_name >= names->size()) continue;
    const char* name = reinterpret_cast<const char*>(names->data()) + section.sh_name;
    sections.push_back({std::string(name, strnlen(name, std::min(kMaxNameBytes, names->size() - section.sh_name))),
                        section.sh_addr, section.sh_offset, section.sh_size});
  }
  return sections;
}

}  // namespace stackd
