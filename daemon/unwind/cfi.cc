#include "daemon/unwind/cfi.h"

#include <algorithm>
#include <string_view>

namespace stackd {
namespace {

// Pointer encodings, DW_EH_PE_*.
constexpr uint8_t kPointerOmit = 0xff, kPointerIndirect = 0x80, kPointerPcRelative = 0x10;
constexpr uint8_t kApplicationMask = 0x70, kValueFormatMask = 0x0f;

// Call frame instructions, DW_CFA_*. The first three have an operand in their low six bits.
enum : uint8_t {
  kCfaAdvanceLoc = 0x40,
  kCfaOffset = 0x80,
  kCfaRestore = 0xc0,
  kCfaNop = 0x00,
  kCfaSetLoc = 0x01,
  kCfaAdvanceLoc1 = 0x02,
  kCfaAdvanceLoc2 = 0x03,
  kCfaAdvanceLoc4 = 0x04,
  kCfaOffsetExtended = 0x05,
  kCfaRestoreExtended = 0x06,
  kCfaUndefined = 0x07,
  kCfaSameValue = 0x08,
  kCfaRegister = 0x09,
  kCfaRememberState = 0x0a,
  kCfaRestoreState = 0x0b,
  kCfaDefCfa = 0x0c,
  kCfaDefCfaRegister = 0x0d,
  kCfaDefCfaOffset = 0x0e,
  kCfaDefCfaExpression = 0x0f,
  kCfaExpression = 0x10,
  kCfaOffsetExtendedSf = 0x11,
  kCfaDefCfaSf = 0x12,
  kCfaDefCfaOffsetSf = 0x13,
  kCfaValOffset = 0x14,
  kCfaValOffsetSf = 0x15,
  kCfaValExpression = 0x16,
  kCfaGnuArgsSize = 0x2e,
  kCfaGnuNegativeOffsetExtended = 0x2f,
};

// Wraps around instead of overflowing.
int64_t Multiply(uint64_t a, int64_t b) { return static_cast<int64_t>(a * static_cast<uint64_t>(b)); }

template <typename Signed>
uint64_t SignExtend(Signed value) {
  return static_cast<uint64_t>(static_cast<int64_t>(value));
}

std::optional<uint64_t> ReadPointerValue(ByteReader& reader, uint8_t encoding) {
  uint64_t value = 0;
  switch (encoding & kValueFormatMask) {
    case 0x00:
    case 0x04:
    case 0x0c:
      value = reader.U64();
      break;
    case 0x01:
      value = reader.Uleb();
      break;
    case 0x02:
      value = reader.U16();
      break;
    case 0x03:
      value = reader.U32();
      break;
    case 0x09:
      value = static_cast<uint64_t>(reader.Sleb());
      break;
    case 0x0a:
      value = SignExtend(static_cast<int16_t>(reader.U16()));
      break;
    case 0x0b:
      value = SignExtend(static_cast<int32_t>(reader.U32()));
      break;
    default:
      return std::nullopt;
  }
  if (!reader.ok()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<uint64_t> ReadEncodedPointer(ByteReader& reader, uint8_t encoding, uint64_t svma) {
  if (encoding == kPointerOmit || (encoding & kPointerIndirect) != 0) return std::nullopt;
  uint64_t pointer_svma = svma + reader.position();
  std::optional<uint64_t> value = ReadPointerValue(reader, encoding);
  if (!value) return std::nullopt;
  switch (encoding & kApplicationMask) {
    case 0:
      return value;
    case kPointerPcRelative:
      return *value + pointer_svma;
    default:
      return std::nullopt;
  }
}

std::optional<uint64_t> CfiEntryBytes(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  uint64_t length_bytes = reader.U32();
  if (length_bytes == 0xffffffff) length_bytes = reader.U64();
  if (!reader.ok()) return std::nullopt;
  if (length_bytes == 0) return kTerminator;
  if (length_bytes > std::numeric_limits<uint64_t>::max() - reader.position()) return std::nullopt;
  return length_bytes + reader.position();
}

std::optional<CfiEntry> ParseCfiEntry(std::span<const uint8_t> bytes, uint64_t offset, uint64_t section_svma,
                                      CfiFormat format) {
  ByteReader reader(bytes);
  bool is_64_bit = reader.U32() == 0xffffffff;
  if (is_64_bit) reader.U64();
  uint64_t id_offset = offset + reader.position();
  CfiEntry entry;
  entry.total_bytes = bytes.size();
  if (format == CfiFormat::kEhFrame) {
    uint64_t back_bytes = reader.U32();
    entry.is_cie = back_bytes == 0;
    if (back_bytes > id_offset) return std::nullopt;
    entry.cie_offset = id_offset - back_bytes;
  } else {
    entry.cie_offset = is_64_bit ? reader.U64() : reader.U32();
    entry.is_cie = entry.cie_offset == (is_64_bit ? std::numeric_limits<uint64_t>::max() : 0xffffffff);
  }
  if (!reader.ok()) return std::nullopt;
  entry.body_svma = section_svma + offset + reader.position();
  entry.body = bytes.subspan(reader.position());
  return entry;
}

std::optional<Cie> ParseCie(const CfiEntry& entry, CfiFormat format) {
  ByteReader reader(entry.body);
  Cie cie;
  uint8_t version = reader.U8();
  if (version != 1 && version != 3 && version != 4) return std::nullopt;
  auto augmentation_bytes = reader.String();
  std::string_view augmentation(reinterpret_cast<const char*>(augmentation_bytes.data()), augmentation_bytes.size());
  if (version == 4) {
    uint8_t address_bytes = reader.U8();
    uint8_t segment_selector_bytes = reader.U8();
    if (address_bytes != 8 || segment_selector_bytes != 0) return std::nullopt;
  }
  cie.code_alignment = reader.Uleb();
  cie.data_alignment = reader.Sleb();
  cie.return_address_register = version == 1 ? reader.U8() : reader.Uleb();

  if (augmentation.starts_with('z')) {
    cie.has_augmentation_data = true;
    ByteReader data(reader.Take(reader.Uleb()));
    for (char letter : augmentation.substr(1)) {
      if (letter == 'L') {
        data.U8();
      } else if (letter == 'P') {
        if (!ReadPointerValue(data, data.U8())) return std::nullopt;
      } else if (letter == 'R') {
        cie.pointer_encoding = data.U8();
      } else if (letter == 'S') {
        cie.is_signal_frame = true;
      } else {
        // Its data may be of any size, so what follows cannot be found.
        break;
      }
    }
    if (!data.ok()) return std::nullopt;
  } else if (!augmentation.empty()) {
    return std::nullopt;
  }
  if (!reader.ok() || cie.return_address_register >= kRegisterCount) return std::nullopt;
  if (format == CfiFormat::kDebugFrame) cie.pointer_encoding = 0;
  cie.instructions = reader.Take(reader.remaining());
  return cie;
}

std::optional<Fde> ParseFde(const CfiEntry& entry, const Cie& cie) {
  ByteReader reader(entry.body);
  Fde fde;
  std::optional<uint64_t> begin_svma = ReadEncodedPointer(reader, cie.pointer_encoding, entry.body_svma);
  std::optional<uint64_t> size_bytes = ReadPointerValue(reader, cie.pointer_encoding);
  if (!begin_svma || !size_bytes) return std::nullopt;
  fde.begin_svma = *begin_svma;
  fde.end_svma = *begin_svma + *size_bytes;
  if (fde.end_svma <= fde.begin_svma) return std::nullopt;
  if (cie.has_augmentation_data) reader.Take(reader.Uleb());
  if (!reader.ok()) return std::nullopt;
  fde.instructions_svma = entry.body_svma + reader.position();
  fde.instructions = reader.Take(reader.remaining());
  return fde;
}

// NOLINTNEXTLINE(readability-function-size): a case for each instruction of DWARF.
CfiInterpreter::Outcome CfiInterpreter::Execute(const Cie& cie, const CfiRow* initial_row, uint64_t instructions_svma,
                                                ByteReader& reader, CfiRow& row, uint64_t& next_svma) {
  // Operands are read before they are used as arguments: the order of evaluation of arguments is not defined.
  auto set = [&row](uint64_t number, RegisterRule::Kind kind, int64_t offset) {
    if (number >= kRegisterCount) return;
    row.registers[number].kind = kind;
    row.registers[number].offset = offset;
  };
  auto set_expression = [&](uint64_t number, RegisterRule::Kind kind) {
    auto expression = reader.Take(reader.Uleb());
    if (number >= kRegisterCount) return;
    row.registers[number].kind = kind;
    row.registers[number].expression_bytes = static_cast<uint32_t>(expression.size());
    row.registers[number].expression = expression.data();
  };
  auto set_cfa = [&row](uint64_t number, int64_t offset) {
    row.cfa.kind = number < kRegisterCount ? CfaRule::kRegisterOffset : CfaRule::kNone;
    row.cfa.register_number = number;
    row.cfa.offset = offset;
  };
  auto advance = [&](uint64_t delta) {
    uint64_t delta_bytes;
    if (__builtin_mul_overflow(delta, cie.code_alignment, &delta_bytes) ||
        __builtin_add_overflow(next_svma, delta_bytes, &next_svma)) {
      return Outcome::kMalformed;
    }
    return Outcome::kAdvance;
  };
  auto restore = [&](uint64_t number) {
    if (initial_row == nullptr) return Outcome::kMalformed;
    if (number < kRegisterCount) row.registers[number] = initial_row->registers[number];
    return Outcome::kContinue;
  };

  uint8_t opcode = reader.U8();
  uint8_t low_bits = opcode & 0x3f;
  switch (opcode & 0xc0) {
    case kCfaAdvanceLoc:
      return advance(low_bits);
    case kCfaOffset:
      set(low_bits, RegisterRule::kOffset, Multiply(reader.Uleb(), cie.data_alignment));
      return Outcome::kContinue;
    case kCfaRestore:
      return restore(low_bits);
    default:
      break;
  }
  switch (opcode) {
    case kCfaNop:
      break;
    case kCfaGnuArgsSize:
      reader.Uleb();
      break;
    case kCfaSetLoc: {
      auto svma = ReadEncodedPointer(reader, cie.pointer_encoding, instructions_svma);
      if (!svma) return Outcome::kMalformed;
      next_svma = *svma;
      return Outcome::kAdvance;
    }
    case kCfaAdvanceLoc1:
      return advance(reader.U8());
    case kCfaAdvanceLoc2:
      return advance(reader.U16());
    case kCfaAdvanceLoc4:
      return advance(reader.U32());
    case kCfaOffsetExtended: {
      uint64_t number = reader.Uleb();
      set(number, RegisterRule::kOffset, Multiply(reader.Uleb(), cie.data_alignment));
      break;
    }
    case kCfaOffsetExtendedSf: {
      uint64_t number = reader.Uleb();
      set(number, RegisterRule::kOffset, Multiply(static_cast<uint64_t>(reader.Sleb()), cie.data_alignment));
      break;
    }
    case kCfaGnuNegativeOffsetExtended: {
      uint64_t number = reader.Uleb();
      set(number, RegisterRule::kOffset, Multiply(0 - reader.Uleb(), cie.data_alignment));
      break;
    }
    case kCfaValOffset: {
      uint64_t number = reader.Uleb();
      set(number, RegisterRule::kValueOffset, Multiply(reader.Uleb(), cie.data_alignment));
      break;
    }
    case kCfaValOffsetSf: {
      uint64_t number = reader.Uleb();
      set(number, RegisterRule::kValueOffset, Multiply(static_cast<uint64_t>(reader.Sleb()), cie.data_alignment));
      break;
    }
    case kCfaRestoreExtended:
      return restore(reader.Uleb());
    case kCfaUndefined:
      set(reader.Uleb(), RegisterRule::kUndefined, 0);
      break;
    case kCfaSameValue:
      set(reader.Uleb(), RegisterRule::kSameValue, 0);
      break;
    case kCfaRegister: {
      uint64_t number = reader.Uleb();
      set(number, RegisterRule::kRegister, 0);
      uint64_t source = reader.Uleb();
      if (number < kRegisterCount) row.registers[number].register_number = source;
      break;
    }
    case kCfaRememberState:
      if (remembered_.size() == kMaxRemembered) return Outcome::kMalformed;
      remembered_.push_back(row);
      break;
    case kCfaRestoreState:
      if (remembered_.empty()) return Outcome::kMalformed;
      row = remembered_.back();
      remembered_.pop_back();
      break;
    case kCfaDefCfa: {
      uint64_t number = reader.Uleb();
      set_cfa(number, static_cast<int64_t>(reader.Uleb()));
      break;
    }
    case kCfaDefCfaSf: {
      uint64_t number = reader.Uleb();
      set_cfa(number, Multiply(static_cast<uint64_t>(reader.Sleb()), cie.data_alignment));
      break;
    }
    case kCfaDefCfaRegister:
      if (row.cfa.kind == CfaRule::kExpression) return Outcome::kMalformed;
      set_cfa(reader.Uleb(), row.cfa.offset);
      break;
    case kCfaDefCfaOffset:
      if (row.cfa.kind == CfaRule::kExpression) return Outcome::kMalformed;
      row.cfa.offset = static_cast<int64_t>(reader.Uleb());
      break;
    case kCfaDefCfaOffsetSf:
      if (row.cfa.kind == CfaRule::kExpression) return Outcome::kMalformed;
      row.cfa.offset = Multiply(static_cast<uint64_t>(reader.Sleb()), cie.data_alignment);
      break;
    case kCfaDefCfaExpression: {
      auto expression = reader.Take(reader.Uleb());
      row.cfa.kind = CfaRule::kExpression;
      row.cfa.expression_bytes = static_cast<uint32_t>(expression.size());
      row.cfa.expression = expression.data();
      break;
    }
    case kCfaExpression:
      set_expression(reader.Uleb(), RegisterRule::kExpression);
      break;
    case kCfaValExpression:
      set_expression(reader.Uleb(), RegisterRule::kValueExpression);
      break;
    default:
      return Outcome::kMalformed;
  }
  return Outcome::kContinue;
}

}  // namespace stackd
