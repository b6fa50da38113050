#include "daemon/symbolize/dwarf_index.h"

#include <dwarf.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <new>
#include <utility>

#include "daemon/symbolize/demangle.h"
#include "daemon/symbolize/dwarf_names.h"
#include "daemon/symbolize/inflate.h"

namespace stackd {
namespace {

// Deeper than any compiler nests; a hostile tree may be as deep as the file is long.
constexpr int kMaxNesting = 200;
constexpr int kMaxFrames = 256;
constexpr int kDwarfOutOfMemory = 10;  // DWARF_E_NOMEM of libdw, which does not publish its numbers

Language LanguageOf(Dwarf_Die* unit) {
  const int language = dwarf_srclang(unit);
  switch (language) {
    case DW_LANG_C:
    case DW_LANG_C89:
    case DW_LANG_C99:
    case DW_LANG_C11:
    case DW_LANG_C_plus_plus:
    case DW_LANG_C_plus_plus_03:
    case DW_LANG_C_plus_plus_11:
    case DW_LANG_C_plus_plus_14:
      return Language::kCpp;
    case DW_LANG_Rust:
      return Language::kRust;
    case DW_LANG_Go:
      return Language::kGo;
    default:
      // C++17, C++20 and C17, newer than this dwarf.h.
      return language >= 0x2a && language <= 0x2c ? Language::kCpp : Language::kUnknown;
  }
}

bool HasScopes(Dwarf_Die* unit) {
  int language = dwarf_srclang(unit);
  switch (language) {
    case DW_LANG_C_plus_plus:
    case DW_LANG_C_plus_plus_03:
    case DW_LANG_C_plus_plus_11:
    case DW_LANG_C_plus_plus_14:
    case DW_LANG_Rust:
    case DW_LANG_D:
      return true;
    default:
      return language == 0x2a || language == 0x2b;  // C++17 and C++20, newer than this dwarf.h
  }
}

uint32_t Unsigned(Dwarf_Die* die, unsigned attribute_name) {
  Dwarf_Attribute attribute;
  Dwarf_Word value;
  if (dwarf_attr(die, attribute_name, &attribute) == nullptr || dwarf_formudata(&attribute, &value) != 0) return 0;
  return value <= UINT32_MAX ? value : 0;
}

// "_ZN1f1gEv.cold" -> "_ZN1f1gEv": DWARF names what the programmer wrote, not what the compiler made of it.
std::string_view WithoutClone(std::string_view mangled) { return mangled.substr(0, mangled.find('.')); }

// libdw would print and exit with a code that says nothing.
[[noreturn]] void OutOfMemory() {
  if (std::new_handler handler = std::get_new_handler()) handler();
  abort();
}

bool IsMangled(std::string_view name) { return name.starts_with("_Z") || name.starts_with("_R"); }

}  // namespace

Result<std::unique_ptr<DwarfIndex>> DwarfIndex::Open(std::shared_ptr<const ElfFile> dwarf, std::unique_ptr<ElfFile> dwz,
                                                     uint64_t first_code_svma) {
  std::unique_ptr<DwarfIndex> index(new DwarfIndex);
  index->file_ = std::move(dwarf);
  index->first_code_svma_ = first_code_svma;
  index->dwarf_ = dwarf_begin_elf(index->file_->elf(), DWARF_C_READ, nullptr);
  if (index->dwarf_ == nullptr)
    return Error(Code::kDataLoss, std::string("its debug data cannot be read: ") + dwarf_errmsg(-1));
  dwarf_new_oom_handler(index->dwarf_, OutOfMemory);
  // Always set, so that libdw looks for nothing by itself.
  index->dwz_file_ = dwz != nullptr ? std::move(dwz) : EmptyDwarf();
  index->dwz_ = index->dwz_file_ != nullptr ? dwarf_begin_elf(index->dwz_file_->elf(), DWARF_C_READ, nullptr) : nullptr;
  if (index->dwz_ != nullptr) dwarf_setalt(index->dwarf_, index->dwz_);
  index->FindUnits();
  return index;
}

DwarfIndex::~DwarfIndex() {
  dwarf_end(dwarf_);
  dwarf_end(dwz_);
}

void DwarfIndex::ReleasePages() const {
  file_->ReleasePages();
  if (dwz_file_ != nullptr) dwz_file_->ReleasePages();
}

void DwarfIndex::FindUnits() {
  Dwarf_CU* cu = nullptr;
  Dwarf_Die die;
  uint8_t type;
  Dwarf_Off released_offset = 0;
  // The last argument stays nullptr: with it libdw would open .dwo files at paths that the file states.
  while (dwarf_get_units(dwarf_, cu, &cu, nullptr, &type, &die, nullptr) == 0) {
    if (type != DW_UT_compile && type != DW_UT_skeleton) continue;
    constexpr Dwarf_Off kReleaseEachBytes = 16 << 20;
    if (dwarf_dieoffset(&die) - released_offset >= kReleaseEachBytes) {
      ReleasePages();
      released_offset = dwarf_dieoffset(&die);
    }
    uint32_t id = units_.size();
    units_.emplace_back().die = die;
    Dwarf_Addr base, begin, end;
    ptrdiff_t offset = 0;
    while ((offset = dwarf_ranges(&die, offset, &base, &begin, &end)) > 0) {
      if (end > begin && begin >= first_code_svma_) ranges_.push_back({begin, end, id});
    }
  }
  std::sort(ranges_.begin(), ranges_.end(),
            [](const UnitRange& a, const UnitRange& b) { return a.begin_svma < b.begin_svma; });
}

DwarfIndex::Unit* DwarfIndex::UnitOf(uint64_t svma) {
  auto it = std::upper_bound(ranges_.begin(), ranges_.end(), svma,
                             [](uint64_t value, const UnitRange& range) { return value < range.begin_svma; });
  // Ranges of units overlap only where a file is damaged or functions were folded into one.
  constexpr int kMaxSteps = 8;
  for (int i = 0; i < kMaxSteps && it != ranges_.begin(); ++i) {
    --it;
    if (svma < it->end_svma) return &units_[it->unit];
  }
  return nullptr;
}

void DwarfIndex::ReadUnit(Unit& unit) {
  unit.is_read = true;
  unit.has_scopes = HasScopes(&unit.die);
  unit.language = LanguageOf(&unit.die);
  Walk(unit, &unit.die, {.node = kNone, .depth = 0, .in_function = false, .nesting = 0});
  Flatten(unit);
  ReadLines(unit);
  if (dwarf_getsrcfiles(&unit.die, &unit.files, &unit.file_count) != 0) unit.files = nullptr;
}

void DwarfIndex::Walk(Unit& unit, Dwarf_Die* die, const Scope& scope) {
  Dwarf_Die child;
  if (scope.nesting >= kMaxNesting || dwarf_child(die, &child) != 0) return;
  Scope inner = scope;
  inner.nesting++;
  const void* last = nullptr;
  do {
    // A damaged sibling reference that leads back would never end.
    if (child.addr <= last) return;
    last = child.addr;
    switch (dwarf_tag(&child)) {
      case DW_TAG_subprogram:
        VisitFunction(unit, &child, false, inner);
        break;
      case DW_TAG_inlined_subroutine:
        VisitFunction(unit, &child, true, inner);
        break;
      case DW_TAG_lexical_block:
      case DW_TAG_namespace:
      case DW_TAG_module:
      case DW_TAG_try_block:
      case DW_TAG_catch_block:
        Walk(unit, &child, inner);
        break;
      case DW_TAG_structure_type:
      case DW_TAG_class_type:
      case DW_TAG_union_type:
        // gcc puts the code of a lambda into its class, and that into the function. Other types hold declarations only.
        if (scope.in_function)
          Walk(unit, &child, {.node = kNone, .depth = 0, .in_function = true, .nesting = inner.nesting});
        break;
      default:
        break;
    }
  } while (dwarf_siblingof(&child, &child) == 0);
}

void DwarfIndex::VisitFunction(Unit& unit, Dwarf_Die* die, bool inlined, const Scope& scope) {
  Node node{.begin_svma = 0,
            .end_svma = 0,
            .die_offset = dwarf_dieoffset(die),
            .parent = inlined ? scope.node : kNone,
            .depth = inlined ? scope.depth : 0,
            .call_file = 0,
            .call_line = 0};
  uint32_t id = kNone;
  Dwarf_Addr base, begin, end;
  ptrdiff_t offset = 0;
  while ((offset = dwarf_ranges(die, offset, &base, &begin, &end)) > 0) {
    if (end <= begin || begin < first_code_svma_) continue;
    if (id == kNone && inlined) {
      node.call_file = Unsigned(die, DW_AT_call_file);
      node.call_line = Unsigned(die, DW_AT_call_line);
    }
    node.begin_svma = begin;
    node.end_svma = end;
    id = unit.nodes.size();
    unit.nodes.push_back(node);
  }
  // An inlined function without code has none inside; a function without code may hold a lambda that has.
  if (id == kNone && inlined) return;
  Walk(unit, die, {.node = id, .depth = node.depth + 1, .in_function = true, .nesting = scope.nesting});
}

// Nested ranges become a flat list of boundaries: one binary search then finds the innermost.
void DwarfIndex::Flatten(Unit& unit) {
  const std::vector<Node>& nodes = unit.nodes;
  std::vector<uint32_t> order(nodes.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const Node &x = nodes[a], &y = nodes[b];
    if (x.begin_svma != y.begin_svma) return x.begin_svma < y.begin_svma;
    if (x.depth != y.depth) return x.depth < y.depth;
    return x.end_svma != y.end_svma ? x.end_svma > y.end_svma : a < b;
  });
  std::vector<Boundary>& out = unit.boundaries;
  auto put = [&](uint64_t svma, uint32_t node) {
    if (!out.empty() && out.back().begin_svma == svma) {
      out.back().node = node;
    } else if (out.empty() || out.back().node != node) {
      out.push_back({svma, node});
    }
  };
  std::vector<uint32_t> open;
  auto close_until = [&](uint64_t svma) {
    while (!open.empty() && nodes[open.back()].end_svma <= svma) {
      uint64_t end_svma = nodes[open.back()].end_svma;
      while (!open.empty() && nodes[open.back()].end_svma <= end_svma) open.pop_back();
      put(end_svma, open.empty() ? kNone : open.back());
    }
  };
  for (uint32_t id : order) {
    close_until(nodes[id].begin_svma);
    put(nodes[id].begin_svma, id);
    open.push_back(id);
  }
  close_until(UINT64_MAX);
  out.shrink_to_fit();
}

void DwarfIndex::ReadLines(Unit& unit) {
  Dwarf_Lines* lines = nullptr;
  size_t count = 0;
  if (dwarf_getsrclines(&unit.die, &lines, &count) != 0) {
    // A table too large for the worker's memory must not look like one that is not there.
    if (strcmp(dwarf_errmsg(-1), dwarf_errmsg(kDwarfOutOfMemory)) == 0) OutOfMemory();
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    Dwarf_Line* line = dwarf_onesrcline(lines, i);
    LineRow row{};
    bool is_end = false;
    if (line == nullptr || dwarf_lineaddr(line, &row.begin_svma) != 0 || row.begin_svma < first_code_svma_) continue;
    dwarf_lineendsequence(line, &is_end);
    if (!is_end && dwarf_lineno(line, &row.line) == 0 && row.line > 0) row.file = dwarf_linesrc(line, nullptr, nullptr);
    std::vector<LineRow>& out = unit.lines;
    // If there are several rows for one address, the last one counts.
    if (!out.empty() && out.back().begin_svma == row.begin_svma) out.pop_back();
    if (out.empty() || out.back().file != row.file || out.back().line != row.line) out.push_back(row);
  }
  unit.lines.shrink_to_fit();
}

const DwarfIndex::LineRow* DwarfIndex::LineOf(const Unit& unit, uint64_t svma) const {
  auto after = std::upper_bound(unit.lines.begin(), unit.lines.end(), svma,
                                [](uint64_t value, const LineRow& row) { return value < row.begin_svma; });
  return after == unit.lines.begin() || std::prev(after)->file == nullptr ? nullptr : &*std::prev(after);
}

uint32_t DwarfIndex::InnermostNode(const Unit& unit, uint64_t svma) const {
  auto after = std::upper_bound(unit.boundaries.begin(), unit.boundaries.end(), svma,
                                [](uint64_t value, const Boundary& boundary) { return value < boundary.begin_svma; });
  return after == unit.boundaries.begin() ? kNone : std::prev(after)->node;
}

const char* DwarfIndex::FileName(const Unit& unit, uint32_t index) const {
  const char* name =
      unit.files != nullptr && index < unit.file_count ? dwarf_filesrc(unit.files, index, nullptr, nullptr) : nullptr;
  return name != nullptr ? name : "";
}

const std::string& DwarfIndex::NameOf(const Unit& unit, const Node& node, uint64_t svma, const SymbolLookup& symbol) {
  static const std::string kUnknown;
  Dwarf_Die die;
  if (dwarf_offdie(dwarf_, node.die_offset, &die) == nullptr) return kUnknown;
  bool is_function = node.parent == kNone;
  // A function itself may have a better name in the symbol table, so it does not share the one of its inlined uses.
  const void* key = is_function ? die.addr : OriginOf(die).addr;
  auto [it, is_new] = names_.try_emplace(key);
  if (!is_new) return it->second;
  std::string_view linkage_name = LinkageName(&die);
  if (linkage_name.empty() && is_function && unit.has_scopes) {
    // Lambdas and functions of anonymous namespaces.
    std::string_view symbol_name = symbol(svma);
    if (IsMangled(symbol_name)) linkage_name = WithoutClone(symbol_name);
  }
  if (!linkage_name.empty()) {
    it->second = Demangle(linkage_name, ReturnType::kDrop);
  } else if (unit.has_scopes) {
    it->second = QualifiedName(&die);
  } else {
    const char* name = dwarf_diename(&die);
    if (name != nullptr) it->second = std::string_view(name).substr(0, kMaxNameBytes);
  }
  return it->second;
}

std::vector<SourceFrame> DwarfIndex::Find(uint64_t svma, const SymbolLookup& symbol) {
  std::vector<SourceFrame> frames;
  Unit* unit = UnitOf(svma);
  if (unit == nullptr) return frames;
  if (!unit->is_read) ReadUnit(*unit);
  SourceFrame frame{.function = {}, .file = {}, .language = unit->language};
  if (const LineRow* row = LineOf(*unit, svma)) {
    frame.file = row->file;
    frame.line = row->line;
  }
  uint32_t id = InnermostNode(*unit, svma);
  if (id == kNone) {
    if (frame.line != 0) frames.push_back(std::move(frame));
    return frames;
  }
  while (frames.size() < kMaxFrames) {
    const Node& node = unit->nodes[id];
    frame.function = NameOf(*unit, node, svma, symbol);
    frame.inlined = node.parent != kNone;
    frames.push_back(std::move(frame));
    if (node.parent == kNone) break;
    // The line of the next one is where it called this one.
    frame = {.function = {},
             .file = FileName(*unit, node.call_file),
             .line = static_cast<int>(std::min<uint32_t>(node.call_line, INT32_MAX)),
             .language = unit->language};
    if (frame.line == 0) frame.file.clear();
    id = node.parent;
  }
  return frames;
}

}  // namespace stackd
