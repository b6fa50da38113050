// The functions and variables of one ELF file, found by address as gdb finds them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "daemon/symbolize/elf_file.h"

namespace stackd {

class SymbolTable {
 public:
  struct Match {
    std::string_view name;  // mangled; valid as long as the ElfFile
    uint64_t svma;
  };

  // Reads .symtab, or .dynsym where there is no .symtab. `file` must outlive the table.
  static SymbolTable Read(const ElfFile& file);

  // Chooses as gdb does. Of aliases it takes the last in the alphabet. A symbol with a size counts only for addresses
  // inside it, one without a size (assembly) up to the next symbol, if it is code. Never takes a symbol of another section.
  // Unlike gdb, takes a symbol without a size in .dynsym for short: functions that are not exported may follow it.
  std::optional<Match> Find(uint64_t svma) const;

  // No functions: variables that a stripped program shares with its libraries name no code.
  bool empty() const { return !has_functions_; }
  bool is_dynamic() const { return is_dynamic_; }

 private:
  struct Symbol {
    uint64_t svma;
    uint32_t size_bytes;
    uint32_t name_offset;
  };
  struct Section {
    uint64_t begin_svma;
    uint64_t end_svma;
    bool is_code;  // else variables
  };

  void ReadSymbols(const ElfFile& file, const ElfSection& section);
  std::string_view NameOf(const Symbol& symbol) const;
  const Section* SectionOf(uint64_t svma) const;

  std::vector<Symbol> symbols_;    // by svma, aliases by name
  std::vector<Section> sections_;  // by begin
  std::string_view names_;
  bool has_functions_ = false;
  bool is_dynamic_ = false;
};

}  // namespace stackd
