// All that is known of the names in one module: its symbol tables, its debug data, and those of its separate debug file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/symbolize/debug_files.h"
#include "daemon/symbolize/dwarf_index.h"
#include "daemon/symbolize/elf_file.h"
#include "daemon/symbolize/symbol_table.h"
#include "daemon/symbolize/symbolizer.h"

namespace stackd {

// One thread at a time; in the worker only.
class ModuleSymbols {
 public:
  // `path` is as the watched process named it. `debug_files` must outlive this. `image_limit_bytes` bounds what is
  // decompressed.
  ModuleSymbols(Fd fd, std::string path, const DebugFiles* debug_files, uint64_t image_limit_bytes);

  // Uses symbol tables: fast.
  SourceLocation Name(uint64_t svma);
  // Uses debug data where there is some: slow on first use, and on the first use of each part.
  SourceLocation Locate(uint64_t svma);

  // Best source of the names given until now.
  SymbolQuality quality() const { return quality_; }
  // Gives the memory of the debug data back; it is read again when needed.
  void DropDwarf();
  // As ElfFile::ReleasePages, for all files.
  void ReleasePages() const;

 private:
  struct Source {
    std::shared_ptr<const ElfFile> file;
    SymbolTable table;
    SymbolQuality quality;
  };

  void AddSource(std::shared_ptr<const ElfFile> file, SymbolQuality quality);
  void OpenMiniDebugInfo();
  void OpenDwarf();
  SymbolTable::Match FindSymbol(uint64_t svma) const;
  std::string WhereSearched() const;

  const std::string path_;
  const DebugFiles* const debug_files_;
  const uint64_t image_limit_bytes_;
  std::shared_ptr<const ElfFile> module_;
  std::shared_ptr<const ElfFile> debug_file_;
  std::vector<Source> sources_;
  std::unique_ptr<DwarfIndex> dwarf_;
  bool dwarf_opened_ = false;
  std::string no_names_reason_;
  std::string no_lines_reason_;
  SymbolQuality quality_ = SymbolQuality::kNone;
};

}  // namespace stackd
