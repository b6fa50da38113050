// An ELF file open for reading through libelf: a module, its separate debug file, or an image in memory.
#pragma once

#include <libelf.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "daemon/base/fd.h"

namespace stackd {

struct ElfSection {
  Elf_Scn* handle;
  uint32_t index;
  Elf64_Shdr header;
  std::string_view name;
};

// One thread at a time. nullptr results mean "not a 64-bit little-endian x86-64 ELF file".
class ElfFile {
 public:
  // `fd` must be a regular file. It is mapped, then closed: a file cut short meanwhile raises SIGBUS, so this is for the
  // worker only.
  static std::unique_ptr<ElfFile> OpenFd(Fd fd);
  static std::unique_ptr<ElfFile> OpenImage(std::unique_ptr<uint8_t[]> image, size_t size_bytes);
  ~ElfFile();

  Elf* elf() const { return elf_; }
  const Elf64_Ehdr& header() const { return header_; }
  // Raw bytes; empty if there is none.
  const std::string& build_id() const { return build_id_; }

  // Calls `visit(const ElfSection&)` until it returns false.
  template <typename Visitor>
  void ForEachSection(Visitor visit) const {
    Elf_Scn* handle = nullptr;
    while ((handle = elf_nextscn(elf_, handle)) != nullptr) {
      std::optional<ElfSection> section = Describe(handle);
      if (section && !visit(*section)) return;
    }
  }
  std::optional<ElfSection> FindSection(std::string_view name) const;
  // The section as the file holds it, compressed or not; empty for SHT_NOBITS and for what lies outside the file.
  static std::span<const uint8_t> RawBytes(const ElfSection& section);

  // Unmaps what was read of the file so far; it comes back from the page cache when it is used. The kernel can reclaim such
  // pages, but it maps far more of them than were touched, and they count as resident.
  void ReleasePages() const;

  // Lowest svma of code. What debug data places below it was discarded by the linker.
  uint64_t first_code_svma() const { return first_code_svma_; }
  // True if it has DWARF, compressed or not.
  bool has_debug_info() const;

 private:
  ElfFile() = default;
  static std::unique_ptr<ElfFile> Finish(std::unique_ptr<ElfFile> file);
  std::optional<ElfSection> Describe(Elf_Scn* handle) const;
  std::string ReadBuildId() const;
  uint64_t FindFirstCode() const;

  std::span<uint8_t> mapping_;  // of a file, else empty
  std::unique_ptr<uint8_t[]> image_;
  Elf* elf_ = nullptr;
  Elf64_Ehdr header_{};
  size_t name_table_index_ = 0;
  std::string build_id_;
  uint64_t first_code_svma_ = 0;
};

}  // namespace stackd
