#include "daemon/symbolize/imported_calls.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/modules/loaded_sections.h"

namespace stackd {
namespace {

constexpr size_t kMaxFiles = 256;
constexpr uint64_t kMaxTableBytes = 4 << 20;
constexpr size_t kMaxImports = 1 << 16;
// Limit for all files: 16 MiB.
constexpr size_t kMaxKeptImports = 1 << 20;
constexpr size_t kMaxNameBytes = 256;

std::optional<std::vector<uint8_t>> ReadCode(const Module& module, uint64_t svma, uint64_t size_bytes) {
  const std::optional<uint64_t> position = module.SvmaToPosition(svma);
  if (!position) return std::nullopt;
  auto bytes = module.Read(*position, size_bytes);
  if (!bytes) return std::nullopt;
  return std::move(*bytes);
}

uint64_t Displaced(uint64_t svma, const uint8_t* displacement) {
  int32_t value;
  memcpy(&value, displacement, sizeof(value));
  return svma + static_cast<uint64_t>(int64_t{value});
}

// The slot that a piece of the procedure linkage table jumps through: [endbr64] [bnd] jmp *slot(%rip).
std::optional<uint64_t> SlotOfStub(const Module& module, uint64_t svma) {
  constexpr size_t kStubBytes = 11;
  constexpr uint8_t kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
  const auto code = ReadCode(module, svma, kStubBytes);
  if (!code) return std::nullopt;
  size_t at = std::equal(std::begin(kEndbr64), std::end(kEndbr64), code->begin()) ? sizeof(kEndbr64) : 0;
  if ((*code)[at] == 0xf2) ++at;
  if ((*code)[at] != 0xff || (*code)[at + 1] != 0x25 || at + 6 > kStubBytes) return std::nullopt;
  return Displaced(svma + at + 6, code->data() + at + 2);
}

// call stub, or call *slot(%rip).
std::optional<uint64_t> SlotOfCall(const Module& module, uint64_t return_svma) {
  constexpr uint64_t kCallBytes = 6;
  const auto code = ReadCode(module, return_svma - kCallBytes, kCallBytes);
  if (!code) return std::nullopt;
  if ((*code)[0] == 0xff && (*code)[1] == 0x15) return Displaced(return_svma, code->data() + 2);
  if ((*code)[1] == 0xe8) return SlotOfStub(module, Displaced(return_svma, code->data() + 2));
  return std::nullopt;
}

template <typename T>
std::vector<T> ReadTable(const Module& module, const std::vector<NamedSection>& sections, std::string_view name) {
  std::vector<T> table;
  for (const NamedSection& section : sections) {
    if (section.name != name) continue;
    const uint64_t count = std::min(section.size_bytes, kMaxTableBytes) / sizeof(T);
    const auto bytes = module.Read(section.file_offset, count * sizeof(T));
    if (!bytes) break;
    table.resize(count);
    memcpy(table.data(), bytes->data(), bytes->size());
    break;
  }
  return table;
}

}  // namespace

std::shared_ptr<const ImportedCalls::Imports> ImportedCalls::Read(const Module& module) {
  auto imports = std::make_shared<Imports>();
  const std::vector<NamedSection> sections = LoadedSections(module);
  const auto names = std::ranges::find(sections, ".dynstr", &NamedSection::name);
  if (names == sections.end()) return imports;
  imports->names_offset = names->file_offset;
  imports->names_bytes = names->size_bytes;
  const auto symbols = ReadTable<Elf64_Sym>(module, sections, ".dynsym");
  for (const char* table : {".rela.plt", ".rela.dyn"}) {
    for (const Elf64_Rela& relocation : ReadTable<Elf64_Rela>(module, sections, table)) {
      const uint64_t symbol = ELF64_R_SYM(relocation.r_info);
      const uint64_t type = ELF64_R_TYPE(relocation.r_info);
      if ((type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) || symbol >= symbols.size()) continue;
      if (imports->imports.size() < kMaxImports) imports->imports.push_back({relocation.r_offset, symbols[symbol].st_name});
    }
  }
  std::ranges::stable_sort(imports->imports, {}, &Import::slot_svma);
  imports->imports.shrink_to_fit();
  return imports;
}

std::shared_ptr<const ImportedCalls::Imports> ImportedCalls::ImportsOf(const Module& module) {
  {
    std::lock_guard lock(mutex_);
    const auto known = files_.find(module.identity());
    if (known != files_.end()) return known->second;
  }
  auto imports = Read(module);
  std::lock_guard lock(mutex_);
  if (!files_.emplace(module.identity(), imports).second) return imports;
  by_age_.push_back(module.identity());
  import_count_ += imports->imports.size();
  while (files_.size() > kMaxFiles || import_count_ > kMaxKeptImports) {
    const auto oldest = files_.find(by_age_.front());
    import_count_ -= oldest->second->imports.size();
    files_.erase(oldest);
    by_age_.pop_front();
  }
  return imports;
}

std::string ImportedCalls::Name(const std::shared_ptr<const Module>& module, uint64_t return_svma) {
  const std::optional<uint64_t> slot = SlotOfCall(*module, return_svma);
  if (!slot) return "";
  const auto imports = ImportsOf(*module);
  const auto found = std::ranges::lower_bound(imports->imports, *slot, {}, &Import::slot_svma);
  if (found == imports->imports.end() || found->slot_svma != *slot || found->name_offset >= imports->names_bytes) return "";
  const uint64_t size_bytes = std::min<uint64_t>(kMaxNameBytes, imports->names_bytes - found->name_offset);
  const auto bytes = module->Read(imports->names_offset + found->name_offset, size_bytes);
  if (!bytes) return "";
  const auto end = std::ranges::find(*bytes, 0);
  // A name that does not end in time is none.
  return end == bytes->end() ? "" : std::string(bytes->begin(), end);
}

}  // namespace stackd
