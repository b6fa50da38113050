#include "daemon/symbolize/symbol_table.h"

#include <gelf.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

namespace stackd {
namespace {

// musl exports functions in assembly without sizes; each of them is shorter.
constexpr uint64_t kMaxAssemblyBytes = 256;

// Names that assemblers and compilers give to places inside functions.
bool IsLabel(std::string_view name, uint8_t binding) {
  return name.starts_with(".L") || (binding == STB_LOCAL && name.starts_with("$L"));
}

// "pthread_cond_wait@@GLIBC_2.3.2" -> "pthread_cond_wait": the version says nothing to a person who reads a stack.
std::string_view WithoutVersion(std::string_view name) {
  size_t version = name.find('@');
  return version != std::string_view::npos && version > 0 ? name.substr(0, version) : name;
}

}  // namespace

SymbolTable SymbolTable::Read(const ElfFile& file) {
  SymbolTable table;
  std::optional<ElfSection> symtab, dynsym;
  std::vector<bool> is_code_section;
  file.ForEachSection([&](const ElfSection& section) {
    if (section.header.sh_type == SHT_SYMTAB && !symtab) symtab = section;
    if (section.header.sh_type == SHT_DYNSYM && !dynsym) dynsym = section;
    const uint64_t flags = section.header.sh_flags;
    // Variables are looked up for the names of locks, and the other data holds no locks.
    const bool is_code = (flags & SHF_EXECINSTR) != 0, is_variable = (flags & SHF_WRITE) != 0 && (flags & SHF_TLS) == 0;
    const bool fits = section.header.sh_size <= UINT64_MAX - section.header.sh_addr;
    if ((flags & SHF_ALLOC) != 0 && (is_code || is_variable) && fits) {
      table.sections_.push_back({section.header.sh_addr, section.header.sh_addr + section.header.sh_size, is_code});
    }
    return true;
  });
  std::ranges::sort(table.sections_, {}, &Section::begin_svma);
  if (symtab) table.ReadSymbols(file, *symtab);
  if (table.symbols_.empty() && dynsym) {
    table.ReadSymbols(file, *dynsym);
    table.is_dynamic_ = true;
  }
  return table;
}

void SymbolTable::ReadSymbols(const ElfFile& file, const ElfSection& section) {
  Elf_Scn* names_handle = elf_getscn(file.elf(), section.header.sh_link);
  const Elf64_Shdr* names_header = names_handle != nullptr ? elf64_getshdr(names_handle) : nullptr;
  if (names_header == nullptr || names_header->sh_type != SHT_STRTAB) return;
  std::span<const uint8_t> names = ElfFile::RawBytes({names_handle, section.header.sh_link, *names_header, {}});
  std::span<const uint8_t> bytes = ElfFile::RawBytes(section);
  names_ = {reinterpret_cast<const char*>(names.data()), names.size()};

  size_t count = std::min<size_t>(bytes.size() / sizeof(Elf64_Sym), std::numeric_limits<uint32_t>::max());
  symbols_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    Elf64_Sym symbol;
    memcpy(&symbol, bytes.data() + i * sizeof(symbol), sizeof(symbol));
    uint8_t type = ELF64_ST_TYPE(symbol.st_info);
    bool is_defined = symbol.st_shndx != SHN_UNDEF && (symbol.st_shndx < SHN_LORESERVE || symbol.st_shndx == SHN_XINDEX);
    if (!is_defined || type == STT_SECTION || type == STT_FILE || type == STT_TLS) continue;
    Symbol entry{symbol.st_value, static_cast<uint32_t>(std::min<uint64_t>(symbol.st_size, UINT32_MAX)), symbol.st_name};
    std::string_view name = NameOf(entry);
    if (name.empty() || IsLabel(name, ELF64_ST_BIND(symbol.st_info))) continue;
    const Section* in = SectionOf(entry.svma);
    // "__bss_start" and "_edata" are no variables.
    if (in == nullptr || (!in->is_code && entry.size_bytes == 0)) continue;
    has_functions_ |= in->is_code;
    symbols_.push_back(entry);
  }
  symbols_.shrink_to_fit();
  std::sort(symbols_.begin(), symbols_.end(), [this](const Symbol& a, const Symbol& b) {
    return a.svma != b.svma ? a.svma < b.svma : NameOf(a) < NameOf(b);
  });
}

std::string_view SymbolTable::NameOf(const Symbol& symbol) const {
  if (symbol.name_offset >= names_.size()) return {};
  std::string_view rest = names_.substr(symbol.name_offset);
  size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

const SymbolTable::Section* SymbolTable::SectionOf(uint64_t svma) const {
  const auto after = std::ranges::upper_bound(sections_, svma, {}, &Section::begin_svma);
  if (after == sections_.begin() || svma >= std::prev(after)->end_svma) return nullptr;
  return &*std::prev(after);
}

std::optional<SymbolTable::Match> SymbolTable::Find(uint64_t svma) const {
  const Section* section = SectionOf(svma);
  if (section == nullptr) return std::nullopt;
  uint64_t section_begin_svma = section->begin_svma;

  auto after = std::upper_bound(symbols_.begin(), symbols_.end(), svma,
                                [](uint64_t value, const Symbol& s) { return value < s.svma; });
  // Where symbols overlap, an outer one may begin before many inner ones; a hostile file may have millions of those.
  constexpr int kMaxSteps = 1000;
  const Symbol* without_size = nullptr;
  const Symbol* best = nullptr;
  int steps = 0;
  for (auto it = after; it != symbols_.begin() && steps < kMaxSteps; ++steps) {
    --it;
    if (it->svma < section_begin_svma) break;
    if (it->size_bytes == 0) {
      if (without_size == nullptr) without_size = &*it;
      continue;
    }
    best = &*it;
    if (svma - it->svma < it->size_bytes || it == symbols_.begin()) break;
    // Past its end. gdb tries the one before only if that one covers the address.
    const Symbol& previous = *std::prev(it);
    if (svma - previous.svma >= previous.size_bytes) break;
  }
  if (best == nullptr || svma - best->svma >= best->size_bytes) best = without_size;
  if (best == nullptr) return std::nullopt;
  if (best == without_size && is_dynamic_ && svma - best->svma >= kMaxAssemblyBytes) return std::nullopt;
  std::string_view name = NameOf(*best);
  return Match{WithoutVersion(name), best->svma};
}

}  // namespace stackd
