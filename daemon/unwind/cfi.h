// Call frame information: what .eh_frame (Linux Standard Base 10.6) and .debug_frame (DWARF 5, 6.4) say about how to get
// from a frame to its caller.
//
// Nothing here is trusted: every read is bounded, and whatever makes no sense gives nullopt or false.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "daemon/capture/registers.h"
#include "daemon/modules/byte_reader.h"

namespace stackd {

enum class CfiFormat : uint8_t { kEhFrame, kDebugFrame };

// Registers 0..16 in DWARF's numbering; rules for others (vector registers) are read and dropped.
inline constexpr size_t kRegisterCount = std::tuple_size_v<decltype(Registers::value)>;

// How to get the value that a register had in the caller.
struct RegisterRule {
  enum Kind : uint8_t {
    kUnspecified,     // the ABI's default: as it is
    kUndefined,       // lost
    kSameValue,       // as it is
    kOffset,          // saved at CFA + offset
    kValueOffset,     // is CFA + offset
    kRegister,        // is in another register
    kExpression,      // saved where the expression says
    kValueExpression  // is what the expression says
  };
  Kind kind = kUnspecified;
  uint32_t expression_bytes = 0;
  union {
    int64_t offset = 0;
    uint64_t register_number;
    const uint8_t* expression;
  };

  std::span<const uint8_t> Expression() const { return {expression, expression_bytes}; }
};

// How to get the canonical frame address: the stack pointer of the caller at the call.
struct CfaRule {
  enum Kind : uint8_t { kNone, kRegisterOffset, kExpression };
  Kind kind = kNone;
  uint32_t expression_bytes = 0;
  uint64_t register_number = 0;
  union {
    int64_t offset = 0;
    const uint8_t* expression;
  };

  std::span<const uint8_t> Expression() const { return {expression, expression_bytes}; }
};

// All rules at one PC. Points into the bytes of the entries it was made from.
struct CfiRow {
  CfaRule cfa;
  std::array<RegisterRule, kRegisterCount> registers;
};

// A CIE or an FDE, taken apart no further than both have in common.
struct CfiEntry {
  bool is_cie = false;
  uint64_t cie_offset = 0;   // of an FDE: where in the section its CIE is
  uint64_t total_bytes = 0;  // with the length field
  uint64_t body_svma = 0;    // of what follows the CIE id or pointer
  std::span<const uint8_t> body;
};

struct Cie {
  uint64_t code_alignment = 1;
  int64_t data_alignment = 1;
  uint64_t return_address_register = 0;
  uint8_t pointer_encoding = 0;
  bool has_augmentation_data = false;
  bool is_signal_frame = false;
  std::span<const uint8_t> instructions;
};

struct Fde {
  uint64_t begin_svma = 0;
  uint64_t end_svma = 0;  // > begin_svma
  uint64_t instructions_svma = 0;
  std::span<const uint8_t> instructions;
};

// The size of the entry that starts with `bytes` (12 are enough), its length field included. kTerminator: no more follow.
inline constexpr uint64_t kTerminator = 0;
std::optional<uint64_t> CfiEntryBytes(std::span<const uint8_t> bytes);

// `bytes` is one whole entry, which stands `offset` into a section at `section_svma`.
std::optional<CfiEntry> ParseCfiEntry(std::span<const uint8_t> bytes, uint64_t offset, uint64_t section_svma,
                                      CfiFormat format);
std::optional<Cie> ParseCie(const CfiEntry& entry, CfiFormat format);
std::optional<Fde> ParseFde(const CfiEntry& entry, const Cie& cie);

// A pointer in one of the encodings of .eh_frame; `svma` is where the reader's position 0 is. nullopt for encodings that
// need more than the file, as indirect ones do.
std::optional<uint64_t> ReadEncodedPointer(ByteReader& reader, uint8_t encoding, uint64_t svma);

// Runs CFI programs. Time and memory are linear in the program's bytes.
class CfiInterpreter {
 public:
  // The row that all FDEs of the CIE start with.
  std::optional<CfiRow> InitialRow(const Cie& cie) {
    CfiRow row;
    auto no_rows = [](uint64_t, uint64_t, const CfiRow&) { return true; };
    if (!Run(cie, nullptr, cie.instructions, 0, 0, std::numeric_limits<uint64_t>::max(), row, no_rows)) return std::nullopt;
    return row;
  }

  // Calls on_row(begin_svma, end_svma, row) for each stretch of the FDE with the rules that hold there, by address, until
  // it gives false. Gives false if the program makes no sense from some point on; the stretches before that were good.
  template <typename OnRow>
  bool Rows(const Cie& cie, const CfiRow& initial_row, const Fde& fde, OnRow on_row) {
    CfiRow row = initial_row;
    return Run(cie, &initial_row, fde.instructions, fde.instructions_svma, fde.begin_svma, fde.end_svma, row, on_row);
  }

 private:
  // Real programs go one deep.
  static constexpr size_t kMaxRemembered = 32;

  enum class Outcome { kContinue, kAdvance, kMalformed };

  template <typename OnRow>
  bool Run(const Cie& cie, const CfiRow* initial_row, std::span<const uint8_t> instructions, uint64_t instructions_svma,
           uint64_t begin_svma, uint64_t end_svma, CfiRow& row, OnRow on_row) {
    ByteReader reader(instructions);
    remembered_.clear();
    uint64_t location_svma = begin_svma;
    while (!reader.at_end()) {
      uint64_t next_svma = location_svma;
      Outcome outcome = Execute(cie, initial_row, instructions_svma, reader, row, next_svma);
      if (outcome == Outcome::kMalformed || !reader.ok() || next_svma < location_svma) return false;
      if (outcome == Outcome::kContinue || next_svma == location_svma) continue;
      if (!on_row(location_svma, std::min(next_svma, end_svma), row)) return true;
      if (next_svma >= end_svma) return true;
      location_svma = next_svma;
    }
    on_row(location_svma, end_svma, row);
    return true;
  }

  // One instruction. Those that move on set `next_svma`, which is where the row so far ends.
  Outcome Execute(const Cie& cie, const CfiRow* initial_row, uint64_t instructions_svma, ByteReader& reader, CfiRow& row,
                  uint64_t& next_svma);

  std::vector<CfiRow> remembered_;
};

}  // namespace stackd
