#include "daemon/unwind/unwind_table.h"

#include <elf.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace stackd {
namespace {

// Limits, far above any real module (libLLVM-19: 6.2 MB, 118,004 FDEs, 1.2 M rows, 1 CIE in ten thousand FDEs).
constexpr uint64_t kMaxSectionBytes = 64 << 20;
constexpr size_t kMaxFdes = 1 << 20;
constexpr size_t kMaxRows = 4 << 20;
constexpr size_t kMaxCies = 1 << 14;
constexpr uint64_t kMaxTextBytes = uint64_t{1} << 32;
// Limit for one CIE or FDE that is interpreted.
constexpr uint64_t kMaxEntryBytes = 1 << 20;
// Most entries fit, so that one read is enough.
constexpr uint64_t kTypicalEntryBytes = 512;

constexpr unsigned kSmallestPageShift = 10;

constexpr uint64_t kRbp = Registers::kRbp, kRsp = Registers::kRsp, kRip = Registers::kRip;

template <typename T>
bool FitsInto(int64_t value) {
  return value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
}

// What linkers say of a PLT stub: rsp + 8 + ((rip & 15) >= N ? 8 : 0). Gives N.
std::optional<int32_t> PltPushOffset(std::span<const uint8_t> expression) {
  constexpr uint8_t kLit0 = 0x30;
  constexpr uint8_t kPattern[] = {0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, kLit0, 0x2a, 0x33, 0x24, 0x22};
  constexpr size_t kThreshold = 6;
  if (expression.size() != sizeof(kPattern)) return std::nullopt;
  for (size_t i = 0; i < sizeof(kPattern); ++i) {
    if (i != kThreshold && expression[i] != kPattern[i]) return std::nullopt;
  }
  int threshold = expression[kThreshold] - kLit0;
  if (threshold < 0 || threshold > 15) return std::nullopt;
  return threshold;
}

// *(register + offset), or *(register + offset) + 8.
struct Dereference {
  uint64_t register_number;
  int64_t offset;
  bool plus_8;
};
std::optional<Dereference> ParseDereference(std::span<const uint8_t> expression) {
  constexpr uint8_t kBreg0 = 0x70, kDeref = 0x06, kPlusUconst = 0x23;
  ByteReader reader(expression);
  Dereference result{};
  result.register_number = static_cast<uint64_t>(reader.U8()) - kBreg0;
  result.offset = reader.Sleb();
  if (reader.U8() != kDeref || !reader.ok()) return std::nullopt;
  if (!reader.at_end()) {
    result.plus_8 = reader.U8() == kPlusUconst && reader.Uleb() == 8;
    if (!result.plus_8 || !reader.ok() || !reader.at_end()) return std::nullopt;
  }
  return result;
}

// Sets kind and cfa_offset; false if they do not fit.
bool CompactCfa(const CfaRule& cfa, UnwindRule& rule) {
  int64_t offset = 0;
  if (cfa.kind == CfaRule::kRegisterOffset) {
    if (cfa.register_number != kRsp && cfa.register_number != kRbp) return false;
    rule.kind = cfa.register_number == kRsp ? RuleKind::kRsp : RuleKind::kRbp;
    offset = cfa.offset;
  } else if (cfa.kind == CfaRule::kExpression) {
    if (auto plt = PltPushOffset(cfa.Expression())) {
      rule.kind = RuleKind::kPlt;
      offset = *plt;
    } else {
      auto dereference = ParseDereference(cfa.Expression());
      if (!dereference) return false;
      if (dereference->register_number == kRsp) {
        rule.kind = dereference->plus_8 ? RuleKind::kAtRspPlus8 : RuleKind::kAtRsp;
      } else if (dereference->register_number == kRbp) {
        rule.kind = dereference->plus_8 ? RuleKind::kAtRbpPlus8 : RuleKind::kAtRbp;
      } else {
        return false;
      }
      offset = dereference->offset;
    }
  } else {
    return false;
  }
  rule.cfa_offset = static_cast<int32_t>(offset);
  return FitsInto<int32_t>(offset);
}

bool CompactRbp(const RegisterRule& rbp, UnwindRule& rule) {
  int64_t offset = 0;
  switch (rbp.kind) {
    case RegisterRule::kUnspecified:
    case RegisterRule::kSameValue:
      return true;
    case RegisterRule::kOffset:
      rule.rbp = RbpRule::kAtCfa;
      offset = rbp.offset;
      break;
    case RegisterRule::kExpression: {
      // Functions that realign the stack save rbp relative to itself.
      constexpr uint8_t kBregRbp = 0x70 + kRbp;
      ByteReader reader(rbp.Expression());
      if (reader.U8() != kBregRbp) return false;
      offset = reader.Sleb();
      if (!reader.ok() || !reader.at_end()) return false;
      rule.rbp = RbpRule::kAtRbp;
      break;
    }
    default:
      return false;
  }
  rule.rbp_offset = static_cast<int16_t>(offset);
  return FitsInto<int16_t>(offset);
}

std::optional<std::vector<uint8_t>> Inflate(std::span<const uint8_t> bytes) {
  if (bytes.size() < sizeof(Elf64_Chdr)) return std::nullopt;
  Elf64_Chdr header;
  memcpy(&header, bytes.data(), sizeof(header));
  if (header.ch_type != ELFCOMPRESS_ZLIB || header.ch_size > kMaxSectionBytes) return std::nullopt;
  std::vector<uint8_t> inflated(header.ch_size);
  uLongf inflated_bytes = inflated.size();
  auto compressed = bytes.subspan(sizeof(header));
  int result = uncompress(inflated.data(), &inflated_bytes, compressed.data(), compressed.size());
  if (result != Z_OK || inflated_bytes != inflated.size()) return std::nullopt;
  return inflated;
}

}  // namespace

UnwindRule CompactRule(const Cie& cie, const CfiRow& row) {
  const UnwindRule slow{.kind = RuleKind::kSlow};
  UnwindRule rule;
  const RegisterRule& return_address = row.registers[kRip];
  if (cie.is_signal_frame || cie.return_address_register != kRip) return slow;
  if (return_address.kind == RegisterRule::kUndefined) return {.kind = RuleKind::kRoot};
  if (return_address.kind != RegisterRule::kOffset || return_address.offset != -8) return slow;
  if (row.registers[kRsp].kind != RegisterRule::kUnspecified) return slow;
  if (!CompactCfa(row.cfa, rule) || !CompactRbp(row.registers[kRbp], rule)) return slow;
  return rule;
}

// Fills in a table from the bytes of a section. Each byte of the section is looked at a constant number of times.
class UnwindTableCompiler {
 public:
  UnwindTableCompiler(UnwindTable& table, std::span<const uint8_t> bytes, std::span<const Segment> segments)
      : table_(table), bytes_(bytes), segments_(segments) {}

  void Compile() {
    CollectEntries();
    if (!std::ranges::is_sorted(fdes_, {}, &CollectedFde::begin_svma)) {
      std::ranges::stable_sort(fdes_, {}, &CollectedFde::begin_svma);
    }
    DropOverlaps();
    if (fdes_.empty()) return;
    table_.base_svma_ = fdes_.front().begin_svma;
    table_.fde_begins_.reserve(fdes_.size());
    table_.fde_offsets_.reserve(fdes_.size());
    for (const CollectedFde& fde : fdes_) AddFde(fde);
    table_.size_bytes_ = fdes_.back().end_svma - table_.base_svma_;
    IndexPages();
    table_.row_begins_.shrink_to_fit();
    table_.row_rules_.shrink_to_fit();
    table_.rules_.shrink_to_fit();
  }

 private:
  struct CollectedFde {
    uint64_t begin_svma;
    uint64_t end_svma;
    uint32_t offset;
    uint32_t cie;
  };
  struct CollectedCie {
    Cie cie;
    CfiRow initial_row;
  };

  void CollectEntries() {
    for (uint64_t offset = 0; offset < bytes_.size() && fdes_.size() < kMaxFdes;) {
      std::optional<uint64_t> entry_bytes = CfiEntryBytes(bytes_.subspan(offset));
      if (!entry_bytes || *entry_bytes == kTerminator || *entry_bytes > bytes_.size() - offset) return;
      CollectEntry(bytes_.subspan(offset, *entry_bytes), offset);
      offset += *entry_bytes;
    }
  }

  void CollectEntry(std::span<const uint8_t> bytes, uint64_t offset) {
    auto entry = ParseCfiEntry(bytes, offset, table_.section_.svma, table_.section_.format);
    if (!entry) return;
    if (entry->is_cie) {
      auto cie = ParseCie(*entry, table_.section_.format);
      auto row = cie && cies_.size() < kMaxCies ? interpreter_.InitialRow(*cie) : std::nullopt;
      if (!row) return;
      cie_indexes_.emplace(offset, static_cast<uint32_t>(cies_.size()));
      cies_.push_back({*cie, *row});
      return;
    }
    // Only of CIEs that were seen: else each of many FDEs might point into the middle of things, to another one.
    auto cie = cie_indexes_.find(entry->cie_offset);
    if (cie == cie_indexes_.end()) return;
    auto fde = ParseFde(*entry, cies_[cie->second].cie);
    const Segment* segment = fde ? CodeSegment(fde->begin_svma) : nullptr;
    if (segment == nullptr) return;
    uint64_t end_svma = std::min(fde->end_svma, segment->svma + segment->memory_bytes);
    fdes_.push_back({fde->begin_svma, end_svma, static_cast<uint32_t>(offset), cie->second});
  }

  // Linkers leave the FDEs of functions that they dropped, at address 0.
  const Segment* CodeSegment(uint64_t svma) const {
    for (const Segment& segment : segments_) {
      if (segment.executable && svma >= segment.svma && svma - segment.svma < segment.memory_bytes) return &segment;
    }
    return nullptr;
  }

  // The first FDE that covers a PC has it.
  void DropOverlaps() {
    size_t kept = 0;
    for (const CollectedFde& fde : fdes_) {
      bool overlaps = kept > 0 && fde.begin_svma < fdes_[kept - 1].end_svma;
      bool too_far = kept > 0 && fde.end_svma - fdes_[0].begin_svma >= kMaxTextBytes;
      if (!overlaps && !too_far) fdes_[kept++] = fde;
    }
    fdes_.resize(kept);
    // The first one was not compared with itself.
    if (kept == 1 && fdes_[0].end_svma - fdes_[0].begin_svma >= kMaxTextBytes) fdes_.clear();
  }

  void AddFde(const CollectedFde& collected) {
    table_.fde_begins_.push_back(static_cast<uint32_t>(collected.begin_svma - table_.base_svma_));
    table_.fde_offsets_.push_back(collected.offset);
    // What the FDE before said ends where it ends, and nothing is known from there on.
    if (collected.begin_svma > covered_to_svma_ && !table_.row_begins_.empty()) AddRow(covered_to_svma_, {});
    covered_to_svma_ = collected.end_svma;
    if (table_.row_begins_.size() >= kMaxRows) return AddRow(collected.begin_svma, {.kind = RuleKind::kSlow});

    const CollectedCie& cie = cies_[collected.cie];
    auto entry_bytes = CfiEntryBytes(bytes_.subspan(collected.offset));
    auto entry = ParseCfiEntry(bytes_.subspan(collected.offset, *entry_bytes), collected.offset, table_.section_.svma,
                               table_.section_.format);
    auto fde = ParseFde(*entry, cie.cie);
    fde->end_svma = collected.end_svma;
    uint64_t understood_to_svma = fde->begin_svma;
    bool complete =
        interpreter_.Rows(cie.cie, cie.initial_row, *fde, [&](uint64_t begin_svma, uint64_t end_svma, const CfiRow& row) {
          AddRow(begin_svma, CompactRule(cie.cie, row));
          understood_to_svma = end_svma;
          return table_.row_begins_.size() < kMaxRows;
        });
    if (!complete)
      AddRow(understood_to_svma, {});
    else if (understood_to_svma < fde->end_svma)
      AddRow(understood_to_svma, {.kind = RuleKind::kSlow});
  }

  void AddRow(uint64_t begin_svma, UnwindRule rule) {
    uint16_t index = RuleIndex(rule);
    if (!table_.row_rules_.empty() && table_.row_rules_.back() == index) return;
    table_.row_begins_.push_back(static_cast<uint32_t>(begin_svma - table_.base_svma_));
    table_.row_rules_.push_back(index);
  }

  uint16_t RuleIndex(UnwindRule rule) {
    constexpr size_t kMaxRules = std::numeric_limits<uint16_t>::max();
    if (table_.rules_.empty()) {
      // The last resort has its place for certain.
      table_.rules_.push_back({.kind = RuleKind::kSlow});
      rule_indexes_.emplace(std::bit_cast<uint64_t>(table_.rules_[0]), uint16_t{0});
    }
    auto [found, added] =
        rule_indexes_.try_emplace(std::bit_cast<uint64_t>(rule), static_cast<uint16_t>(table_.rules_.size()));
    if (!added) return found->second;
    if (table_.rules_.size() == kMaxRules) {
      rule_indexes_.erase(found);
      return 0;
    }
    table_.rules_.push_back(rule);
    return found->second;
  }

  void IndexPages() {
    // Pages as small as rows are dense, so that a lookup searches among few, and no more pages than rows warrant.
    table_.page_shift_ = kSmallestPageShift;
    while ((table_.size_bytes_ >> table_.page_shift_) > 4 * table_.row_begins_.size() + 64) ++table_.page_shift_;
    size_t page_count = (table_.size_bytes_ >> table_.page_shift_) + 2;
    table_.page_rows_.reserve(page_count);
    uint32_t row = 0;
    for (uint64_t page = 0; page < page_count; ++page) {
      while (row < table_.row_begins_.size() && table_.row_begins_[row] < page << table_.page_shift_) ++row;
      table_.page_rows_.push_back(row);
    }
  }

  UnwindTable& table_;
  std::span<const uint8_t> bytes_;
  std::span<const Segment> segments_;
  CfiInterpreter interpreter_;
  std::vector<CollectedCie> cies_;
  std::unordered_map<uint64_t, uint32_t> cie_indexes_;  // by offset
  std::vector<CollectedFde> fdes_;
  std::unordered_map<uint64_t, uint16_t> rule_indexes_;
  uint64_t covered_to_svma_ = 0;
};

std::shared_ptr<UnwindTable> UnwindTable::CompileSection(CfiSection section, std::span<const uint8_t> bytes,
                                                         std::span<const Segment> segments) {
  std::shared_ptr<UnwindTable> table(new UnwindTable);
  table->section_ = std::move(section);
  UnwindTableCompiler(*table, bytes, segments).Compile();
  return table;
}

std::shared_ptr<const UnwindTable> UnwindTable::Compile(CfiSection section, std::span<const uint8_t> bytes,
                                                        std::span<const Segment> segments) {
  return CompileSection(std::move(section), bytes, segments);
}

std::shared_ptr<const UnwindTable> UnwindTable::Compile(const Module& module) {
  // A file may have .debug_frame beside .eh_frame, for the code of another compiler. It is second choice: the program
  // itself would not use it.
  std::shared_ptr<UnwindTable> first;
  for (auto [name, format] :
       {std::pair(".eh_frame", CfiFormat::kEhFrame), std::pair(".debug_frame", CfiFormat::kDebugFrame)}) {
    const Section* found = module.FindSection(name);
    if (found == nullptr) continue;
    // What is beyond the limit is left out, so that a segment without section headers may be of any size.
    uint64_t size_bytes = std::min(found->size_bytes, kMaxSectionBytes);
    CfiSection section{format, found->svma, found->file_offset, size_bytes, {}};
    auto bytes = module.Read(found->file_offset, size_bytes, kMaxSectionBytes);
    if (!bytes) continue;
    if (found->compressed) {
      auto inflated = Inflate(*bytes);
      if (!inflated) continue;
      bytes->clear();
      section.inflated = *std::move(inflated);
    }
    // The inflated bytes stay where they are when the section moves.
    std::span<const uint8_t> content = found->compressed ? std::span<const uint8_t>(section.inflated) : *bytes;
    auto table = CompileSection(std::move(section), content, module.segments());
    if (table->row_count() == 0) continue;
    if (first == nullptr) {
      first = std::move(table);
    } else {
      first->second_ = std::move(table);
    }
  }
  return first != nullptr ? first : CompileSection(CfiSection{}, {}, {});
}

UnwindRule UnwindTable::Find(uint64_t svma) const {
  UnwindRule rule = FindHere(svma);
  return rule.kind == RuleKind::kNoCfi && second_ != nullptr ? second_->Find(svma) : rule;
}

UnwindRule UnwindTable::FindHere(uint64_t svma) const {
  uint64_t offset = svma - base_svma_;
  if (offset >= size_bytes_) return {};
  uint64_t page = offset >> page_shift_;
  auto first = row_begins_.begin() + page_rows_[page];
  auto last = row_begins_.begin() + page_rows_[page + 1];
  // The row that holds `offset` may have begun in an earlier page; the very first begins at 0.
  auto after = std::upper_bound(first, last, static_cast<uint32_t>(offset));
  return rules_[row_rules_[after - row_begins_.begin() - 1]];
}

std::optional<std::vector<uint8_t>> UnwindTable::ReadEntry(const Module* module, uint64_t offset) const {
  const uint64_t section_bytes = OwnSectionBytes();
  if (offset >= section_bytes) return std::nullopt;
  auto read = [&](uint64_t size_bytes) -> std::optional<std::vector<uint8_t>> {
    if (!section_.inflated.empty()) {
      auto first = section_.inflated.begin() + static_cast<ptrdiff_t>(offset);
      return std::vector<uint8_t>(first, first + static_cast<ptrdiff_t>(size_bytes));
    }
    if (module == nullptr) return std::nullopt;
    auto bytes = module->Read(section_.file_offset + offset, size_bytes);
    if (!bytes) return std::nullopt;
    return *std::move(bytes);
  };
  auto bytes = read(std::min(kTypicalEntryBytes, section_bytes - offset));
  if (!bytes) return std::nullopt;
  auto entry_bytes = CfiEntryBytes(*bytes);
  if (!entry_bytes || *entry_bytes == kTerminator) return std::nullopt;
  if (*entry_bytes > kMaxEntryBytes || *entry_bytes > section_bytes - offset) return std::nullopt;
  if (*entry_bytes > bytes->size()) bytes = read(*entry_bytes);
  if (bytes) bytes->resize(*entry_bytes);
  return bytes;
}

std::optional<UnwindTable::Function> UnwindTable::FunctionAt(uint64_t svma) const {
  // Between functions there are rows that say so.
  if (FindHere(svma).kind == RuleKind::kNoCfi) return second_ != nullptr ? second_->FunctionAt(svma) : std::nullopt;
  auto after = std::upper_bound(fde_begins_.begin(), fde_begins_.end(), static_cast<uint32_t>(svma - base_svma_));
  if (after == fde_begins_.begin()) return std::nullopt;
  return Function{base_svma_ + *std::prev(after), base_svma_ + (after == fde_begins_.end() ? size_bytes_ : *after)};
}

std::optional<UnwindTable::PreciseRow> UnwindTable::Interpret(const Module* module, uint64_t svma) const {
  if (second_ != nullptr && FindHere(svma).kind == RuleKind::kNoCfi) return second_->Interpret(module, svma);
  uint64_t offset = svma - base_svma_;
  if (offset >= size_bytes_) return std::nullopt;
  auto after = std::upper_bound(fde_begins_.begin(), fde_begins_.end(), static_cast<uint32_t>(offset));
  if (after == fde_begins_.begin()) return std::nullopt;
  uint64_t fde_offset = fde_offsets_[after - fde_begins_.begin() - 1];

  PreciseRow result;
  auto fde_bytes = ReadEntry(module, fde_offset);
  if (!fde_bytes) return std::nullopt;
  result.fde_bytes = *std::move(fde_bytes);
  auto fde_entry = ParseCfiEntry(result.fde_bytes, fde_offset, section_.svma, section_.format);
  if (!fde_entry || fde_entry->is_cie) return std::nullopt;
  auto cie_bytes = ReadEntry(module, fde_entry->cie_offset);
  if (!cie_bytes) return std::nullopt;
  result.cie_bytes = *std::move(cie_bytes);
  auto cie_entry = ParseCfiEntry(result.cie_bytes, fde_entry->cie_offset, section_.svma, section_.format);
  if (!cie_entry || !cie_entry->is_cie) return std::nullopt;
  auto cie = ParseCie(*cie_entry, section_.format);
  auto fde = cie ? ParseFde(*fde_entry, *cie) : std::nullopt;
  if (!fde || svma < fde->begin_svma || svma >= fde->end_svma) return std::nullopt;

  CfiInterpreter interpreter;
  auto initial_row = interpreter.InitialRow(*cie);
  if (!initial_row) return std::nullopt;
  bool found = false;
  interpreter.Rows(*cie, *initial_row, *fde, [&](uint64_t begin_svma, uint64_t end_svma, const CfiRow& row) {
    if (svma < begin_svma || svma >= end_svma) return true;
    found = true;
    result.row = row;
    return false;
  });
  if (!found) return std::nullopt;
  result.cie = *cie;
  result.cost_bytes = result.cie_bytes.size() + result.fde_bytes.size();
  return result;
}

size_t UnwindTable::memory_bytes() const {
  auto bytes = [](const auto& vector) { return vector.capacity() * sizeof(vector[0]); };
  return sizeof(*this) + bytes(section_.inflated) + bytes(row_begins_) + bytes(row_rules_) + bytes(page_rows_) +
         bytes(rules_) + bytes(fde_begins_) + bytes(fde_offsets_) + (second_ != nullptr ? second_->memory_bytes() : 0);
}

std::vector<uint64_t> UnwindTable::RowSvmas() const {
  std::vector<uint64_t> svmas;
  svmas.reserve(row_begins_.size());
  for (uint32_t begin : row_begins_) svmas.push_back(base_svma_ + begin);
  return svmas;
}

}  // namespace stackd
