// Functions, inlined frames, files and lines from the DWARF of one ELF file.
//
// libdw reads; this finds. libdw's own search costs milliseconds per address, also when warm. Here each unit (CU) is read
// whole on its first hit, into arrays that are then searched in microseconds. Units without a hit are never read.
#pragma once

#include <elfutils/libdw.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/capture/source_frame.h"
#include "daemon/symbolize/elf_file.h"

namespace stackd {

// One thread at a time.
class DwarfIndex {
 public:
  // Finds the name of the function at an address in a symbol table, mangled; empty if there is none.
  using SymbolLookup = std::function<std::string_view(uint64_t svma)>;

  // `dwarf` has debug sections that libdw can read; `dwz` (nullptr: none) those that it refers to. What lies below
  // `first_code_svma` is ignored: functions that the linker discarded are left there.
  static Result<std::unique_ptr<DwarfIndex>> Open(std::shared_ptr<const ElfFile> dwarf, std::unique_ptr<ElfFile> dwz,
                                                  uint64_t first_code_svma);
  ~DwarfIndex();

  // Innermost first; empty if no unit covers the address. Functions may lack names, and frames lines.
  std::vector<SourceFrame> Find(uint64_t svma, const SymbolLookup& symbol);

  // As ElfFile::ReleasePages.
  void ReleasePages() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  // A range of code of a function, or of a function inlined into another.
  struct Node {
    uint64_t begin_svma;
    uint64_t end_svma;
    Dwarf_Off die_offset;
    uint32_t parent;  // what it was inlined into; kNone: a function itself
    uint32_t depth;
    uint32_t call_file;
    uint32_t call_line;
  };
  // From `begin_svma` on, up to the next, `node` is the innermost.
  struct Boundary {
    uint64_t begin_svma;
    uint32_t node;
  };
  struct LineRow {
    uint64_t begin_svma;
    const char* file;  // nullptr: no line from here on
    int line;
  };
  struct Unit {
    Dwarf_Die die;
    bool is_read = false;
    Language language = Language::kUnknown;
    bool has_scopes = false;  // C++: names of functions need those of namespaces and classes around them
    std::vector<Node> nodes;
    std::vector<Boundary> boundaries;
    std::vector<LineRow> lines;
    Dwarf_Files* files = nullptr;
    size_t file_count = 0;
  };
  struct UnitRange {
    uint64_t begin_svma;
    uint64_t end_svma;
    uint32_t unit;
  };
  // What a walk carries down a tree of DIEs.
  struct Scope {
    uint32_t node;
    uint32_t depth;
    bool in_function;
    int nesting;
  };

  DwarfIndex() = default;
  void FindUnits();
  Unit* UnitOf(uint64_t svma);
  void ReadUnit(Unit& unit);
  void Walk(Unit& unit, Dwarf_Die* die, const Scope& scope);
  void VisitFunction(Unit& unit, Dwarf_Die* die, bool inlined, const Scope& scope);
  static void Flatten(Unit& unit);
  void ReadLines(Unit& unit);
  const LineRow* LineOf(const Unit& unit, uint64_t svma) const;
  uint32_t InnermostNode(const Unit& unit, uint64_t svma) const;
  const char* FileName(const Unit& unit, uint32_t index) const;
  const std::string& NameOf(const Unit& unit, const Node& node, uint64_t svma, const SymbolLookup& symbol);

  std::shared_ptr<const ElfFile> file_;
  std::unique_ptr<ElfFile> dwz_file_;
  Dwarf* dwarf_ = nullptr;
  Dwarf* dwz_ = nullptr;
  uint64_t first_code_svma_ = 0;
  std::vector<Unit> units_;
  std::vector<UnitRange> ranges_;                       // by begin
  std::unordered_map<const void*, std::string> names_;  // by DIE: an inlined function has one of many uses
};

}  // namespace stackd
