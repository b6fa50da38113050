// The call frame information of one module, compiled into a form that is looked up in nanoseconds.
//
// A row is 6 bytes: where it begins, and which rule holds there. Modules have thousands of rows and some hundred different
// rules. What does not fit into a rule is marked kSlow and interpreted from the file each time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/modules/module.h"
#include "daemon/unwind/cfi.h"

namespace stackd {

enum class RuleKind : uint8_t {
  kNoCfi,  // no FDE covers the PC
  // How to find the CFA; the return address is at CFA-8, and registers but rbp are not looked at.
  kRsp,         // rsp + cfa_offset
  kRbp,         // rbp + cfa_offset
  kPlt,         // rsp + 8, and 8 more once the stub has pushed: from byte cfa_offset of its 16 on
  kAtRsp,       // *(rsp + cfa_offset)
  kAtRspPlus8,  // *(rsp + cfa_offset) + 8
  kAtRbp,       // *(rbp + cfa_offset)
  kAtRbpPlus8,  // *(rbp + cfa_offset) + 8
  kRoot,        // the return address is undefined: the thread's first function
  kSlow,        // ask the interpreter
  kSigreturn,   // code that returns from a signal handler and has no CFI, as in musl: rsp points to a ucontext
  kNotCode,     // not executable memory
};

enum class RbpRule : uint8_t { kSame, kAtCfa, kAtRbp };

struct UnwindRule {
  RuleKind kind = RuleKind::kNoCfi;
  RbpRule rbp = RbpRule::kSame;
  int16_t rbp_offset = 0;  // from the CFA, or from rbp
  int32_t cfa_offset = 0;
  bool operator==(const UnwindRule&) const = default;
};
static_assert(sizeof(UnwindRule) == 8);

// The rule for a row of CFI, kSlow if it does not fit.
UnwindRule CompactRule(const Cie& cie, const CfiRow& row);

// A section with call frame information.
struct CfiSection {
  CfiFormat format = CfiFormat::kEhFrame;
  uint64_t svma = 0;
  uint64_t file_offset = 0;
  uint64_t size_bytes = 0;
  // The content, of a section that is compressed in the file; else it is read from the file when needed.
  std::vector<uint8_t> inflated;
};

// Immutable, and so shared by threads.
class UnwindTable {
 public:
  // Rows at one PC as the interpreter has them.
  struct PreciseRow {
    PreciseRow() = default;
    // A copy would point into the bytes of the original; bytes that move stay where they are.
    PreciseRow(PreciseRow&&) = default;
    PreciseRow& operator=(PreciseRow&&) = default;

    Cie cie;
    CfiRow row;
    uint64_t cost_bytes = 0;  // how much CFI was read for it
    // What `cie` and `row` point into.
    std::vector<uint8_t> cie_bytes;
    std::vector<uint8_t> fde_bytes;
  };

  // Never fails: a module without usable CFI gives an empty table. Time and memory are bounded for any content: see the
  // limits in unwind_table.cc and README.md.
  static std::shared_ptr<const UnwindTable> Compile(const Module& module);
  // From the bytes of a section alone; rules are made for PCs within `segments`.
  static std::shared_ptr<const UnwindTable> Compile(CfiSection section, std::span<const uint8_t> bytes,
                                                    std::span<const Segment> segments);

  UnwindRule Find(uint64_t svma) const;

  // Runs the CFI; nullopt if there is none for `svma`, or it makes no sense. `module` is the one that the table was made
  // of; it may be nullptr if the section is inflated.
  std::optional<PreciseRow> Interpret(const Module* module, uint64_t svma) const;

  // [begin_svma, end_svma): up to where the next one begins.
  struct Function {
    uint64_t begin_svma, end_svma;
  };
  // The function (the FDE) that holds `svma`; nullopt if there is none.
  std::optional<Function> FunctionAt(uint64_t svma) const;

  size_t memory_bytes() const;
  // Size of the CFI that it was compiled from: a measure for the time that took.
  uint64_t section_bytes() const { return OwnSectionBytes() + (second_ != nullptr ? second_->section_bytes() : 0); }
  size_t row_count() const { return row_begins_.size(); }
  size_t rule_count() const { return rules_.size(); }
  size_t fde_count() const { return fde_begins_.size(); }
  // The begins of all rows: what a test that compares rows with the interpreter walks over.
  std::vector<uint64_t> RowSvmas() const;

 private:
  friend class UnwindTableCompiler;
  UnwindTable() = default;

  static std::shared_ptr<UnwindTable> CompileSection(CfiSection section, std::span<const uint8_t> bytes,
                                                     std::span<const Segment> segments);
  UnwindRule FindHere(uint64_t svma) const;
  uint64_t OwnSectionBytes() const { return section_.inflated.empty() ? section_.size_bytes : section_.inflated.size(); }
  std::optional<std::vector<uint8_t>> ReadEntry(const Module* module, uint64_t offset) const;

  CfiSection section_;
  // Table that is asked where this one knows nothing: a static program may have .eh_frame of one compiler and .debug_frame
  // of another (Rust with musl). nullptr: there is none.
  std::shared_ptr<const UnwindTable> second_;
  // Everything below is relative to it and fits into 32 bits.
  uint64_t base_svma_ = 0;
  uint64_t size_bytes_ = 0;
  // Rows by address: rules_[row_rules_[i]] holds from row_begins_[i] to row_begins_[i + 1].
  std::vector<uint32_t> row_begins_;
  std::vector<uint16_t> row_rules_;
  // page_rows_[address >> page_shift_] is the first row that begins in or after that page.
  std::vector<uint32_t> page_rows_;
  unsigned page_shift_ = 0;
  std::vector<UnwindRule> rules_;
  // FDEs by address, and where they are in the section.
  std::vector<uint32_t> fde_begins_;
  std::vector<uint32_t> fde_offsets_;
};

}  // namespace stackd
