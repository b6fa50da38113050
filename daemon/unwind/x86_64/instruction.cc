#include "daemon/unwind/x86_64/instruction.h"

#include <bit>
#include <cstring>

namespace stackd {
namespace {

using Kind = Instruction::Kind;

constexpr uint8_t kRsp = 4;
// A stack has no larger one: more is a mask.
constexpr int64_t kLargestAlignment = 4096;

// The opcode maps.
enum class Map : uint8_t { kOneByte, k0f, k0f38, k0f3a, kXop8, kXop9, kXopA };

// Takes an instruction apart, byte by byte.
class Decoder {
 public:
  explicit Decoder(std::span<const uint8_t> code) : code_(code.first(std::min(code.size(), kMaxInstructionBytes))) {}

  std::optional<Instruction> Decode() {
    ReadPrefixes();
    ReadOpcode();
    if (!failed_ && HasModRm()) ReadModRm();
    immediate_bytes_ = failed_ ? 0 : ImmediateBytes();
    immediate_ = ReadSigned(immediate_bytes_);
    if (failed_) return std::nullopt;
    Instruction instruction{static_cast<uint8_t>(at_), Kind::kOther, 0};
    if (is_vector_) return instruction;
    if (map_ == Map::kOneByte) ClassifyOneByte(&instruction);
    if (map_ == Map::k0f) Classify0f(&instruction);
    return instruction;
  }

 private:
  uint8_t Peek() {
    if (at_ < code_.size()) return code_[at_];
    failed_ = true;
    return 0;
  }
  uint8_t Take() {
    const uint8_t byte = Peek();
    ++at_;
    return byte;
  }

  int64_t ReadSigned(size_t bytes) {
    if (code_.size() - std::min(at_, code_.size()) < bytes) {
      failed_ = true;
      return 0;
    }
    uint64_t value = 0;
    memcpy(&value, code_.data() + at_, bytes);
    at_ += bytes;
    const unsigned unused_bits = 64 - 8 * static_cast<unsigned>(bytes);
    return bytes == 0 ? 0 : static_cast<int64_t>(value << unused_bits) >> unused_bits;
  }

  void ReadPrefixes() {
    for (;; ++at_) {
      switch (Peek()) {
        case 0x66:
          has_66_ = true;
          continue;
        case 0x67:
          has_67_ = true;
          continue;
        case 0xf3:
          has_f3_ = true;
          continue;
        case 0x26:
        case 0x2e:
        case 0x36:
        case 0x3e:
        case 0x64:
        case 0x65:
        case 0xf0:
        case 0xf2:
          continue;
        default:
          break;
      }
      break;
    }
    // Counts as the last prefix only.
    if ((Peek() & 0xf0) == 0x40) rex_ = Take();
  }

  void ReadOpcode() {
    opcode_ = Take();
    if (opcode_ == 0xc4 || opcode_ == 0xc5 || opcode_ == 0x62) return ReadVectorOpcode();
    // AMD's XOP has the place of a pop that no assembler encodes that way.
    if (opcode_ == 0x8f && (Peek() & 0x1f) >= 8) return ReadXopOpcode();
    if (opcode_ != 0x0f) return;
    map_ = Map::k0f;
    opcode_ = Take();
    if (opcode_ != 0x38 && opcode_ != 0x3a) return;
    map_ = opcode_ == 0x38 ? Map::k0f38 : Map::k0f3a;
    opcode_ = Take();
  }

  // VEX of two and three bytes, EVEX.
  void ReadVectorOpcode() {
    is_vector_ = true;
    uint8_t map = 1;
    if (opcode_ == 0xc4) map = Take() & 0x1f;
    if (opcode_ == 0x62) map = Take() & 0x07;
    const int rest = opcode_ == 0x62 ? 2 : 1;
    for (int i = 0; i < rest; ++i) Take();
    opcode_ = Take();
    // Maps 5 and 6 are those of half precision, without immediates.
    map_ = map == 1 ? Map::k0f : map == 3 ? Map::k0f3a : Map::k0f38;
    if (map == 0 || map == 4 || map > 6) failed_ = true;
  }

  void ReadXopOpcode() {
    is_vector_ = true;
    const uint8_t map = Take() & 0x1f;
    Take();
    opcode_ = Take();
    map_ = map == 8 ? Map::kXop8 : map == 9 ? Map::kXop9 : Map::kXopA;
    if (map > 10) failed_ = true;
  }

  bool HasModRm() {
    const uint8_t op = opcode_, low = op & 7;
    if (map_ == Map::k0f && is_vector_) return op != 0x77;
    if (map_ == Map::k0f) {
      if (op == 0x04 || op == 0x0a || op == 0x0c || (op >= 0x24 && op <= 0x27) || op == 0x36 || op == 0x39) failed_ = true;
      const bool is_alone = (op >= 0x05 && op <= 0x09) || op == 0x0b || op == 0x0e || (op >= 0x30 && op <= 0x37) ||
                            op == 0x77 || (op >= 0x80 && op <= 0x8f) || (op >= 0xa0 && op <= 0xa2) ||
                            (op >= 0xa8 && op <= 0xaa) || (op >= 0xc8 && op <= 0xcf);
      return !is_alone;
    }
    if (map_ != Map::kOneByte) return true;
    if (op < 0x40) {
      if (low >= 6) failed_ = true;
      return low < 4;
    }
    if (op == 0x60 || op == 0x61 || op == 0x82 || op == 0x9a || op == 0xce || op == 0xea || (op >= 0xd4 && op <= 0xd6)) {
      failed_ = true;
    }
    return op == 0x63 || op == 0x69 || op == 0x6b || (op >= 0x80 && op <= 0x8f) || op == 0xc0 || op == 0xc1 || op == 0xc6 ||
           op == 0xc7 || (op >= 0xd0 && op <= 0xd3) || (op >= 0xd8 && op <= 0xdf) || op == 0xf6 || op == 0xf7 || op >= 0xfe;
  }

  void ReadModRm() {
    const uint8_t byte = Take();
    mod_ = byte >> 6;
    reg_ = byte >> 3 & 7;
    rm_ = byte & 7;
    size_t displacement_bytes = mod_ == 1 ? 1 : mod_ == 2 ? 4 : 0;
    if (mod_ != 3 && rm_ == 4) {
      const uint8_t sib = Take();
      base_ = sib & 7;
      index_ = sib >> 3 & 7;
      if (mod_ == 0 && base_ == 5) displacement_bytes = 4;
    }
    if (mod_ == 0 && rm_ == 5) displacement_bytes = 4;
    displacement_ = static_cast<int32_t>(ReadSigned(displacement_bytes));
  }

  size_t ImmediateBytes() const {
    const uint8_t op = opcode_;
    const size_t word_bytes = has_66_ && (rex_ & 8) == 0 ? 2 : 4;
    switch (map_) {
      case Map::k0f38:
      case Map::kXop9:
        return 0;
      case Map::k0f3a:
      case Map::kXop8:
        return 1;
      case Map::kXopA:
        return 4;
      case Map::k0f:
        if (op >= 0x80 && op <= 0x8f && !is_vector_) return 4;
        if (!is_vector_ && (op == 0x0f || op == 0xa4 || op == 0xac || op == 0xba)) return 1;
        return (op >= 0x70 && op <= 0x73) || op == 0xc2 || (op >= 0xc4 && op <= 0xc6) ? 1 : 0;
      case Map::kOneByte:
        break;
    }
    if (op < 0x40) return (op & 7) == 4 ? 1 : (op & 7) == 5 ? word_bytes : 0;
    if (op >= 0x70 && op <= 0x7f) return 1;
    if (op >= 0xb0 && op <= 0xb7) return 1;
    if (op >= 0xb8 && op <= 0xbf) return (rex_ & 8) != 0 ? 8 : word_bytes;
    if (op >= 0xa0 && op <= 0xa3) return has_67_ ? 4 : 8;
    if (op >= 0xe0 && op <= 0xe7) return 1;
    switch (op) {
      case 0x6a:
      case 0x6b:
      case 0x80:
      case 0x83:
      case 0xa8:
      case 0xc0:
      case 0xc1:
      case 0xc6:
      case 0xcd:
      case 0xeb:
        return 1;
      case 0x68:
      case 0x69:
      case 0x81:
      case 0xa9:
      case 0xc7:
        return word_bytes;
      case 0xe8:
      case 0xe9:
        return 4;
      case 0xc2:
      case 0xca:
        return 2;
      case 0xc8:
        return 3;
      case 0xf6:
        return reg_ < 2 ? 1 : 0;
      case 0xf7:
        return reg_ < 2 ? word_bytes : 0;
      default:
        return 0;
    }
  }

  bool RmIsRsp() const { return mod_ == 3 && rm_ == kRsp && (rex_ & 1) == 0; }
  bool RegIsRsp() const { return reg_ == kRsp && (rex_ & 4) == 0; }

  // Whether one with a ModRM byte puts its result into rsp.
  bool WritesRsp() const {
    const uint8_t op = opcode_;
    if (op < 0x38) return (op & 7) == 1 ? RmIsRsp() : (op & 7) == 3 && RegIsRsp();
    switch (op) {
      case 0x63:
      case 0x69:
      case 0x6b:
      case 0x8b:
      case 0x8d:
        return RegIsRsp();
      case 0x87:
        return RegIsRsp() || RmIsRsp();
      case 0x81:
      case 0x83:
        return RmIsRsp() && reg_ != 7;
      case 0x89:
      case 0x8f:
      case 0xc1:
      case 0xc7:
      case 0xd1:
      case 0xd3:
        return RmIsRsp();
      case 0xf7:
        return RmIsRsp() && (reg_ == 2 || reg_ == 3);
      case 0xff:
        return RmIsRsp() && reg_ < 2;
      default:
        return false;
    }
  }

  void ClassifyOneByte(Instruction* instruction) const {
    const uint8_t op = opcode_;
    const auto set = [instruction](Kind kind, int64_t value = 0) {
      instruction->kind = kind;
      instruction->value = static_cast<int32_t>(value);
    };
    const int number = (op & 7) + ((rex_ & 1) != 0 ? 8 : 0);
    if (op >= 0x50 && op <= 0x57) return set(has_66_ ? Kind::kLosesStack : Kind::kPush, number);
    if (op >= 0x58 && op <= 0x5f) return set(has_66_ || number == kRsp ? Kind::kLosesStack : Kind::kPop, number);
    if ((op >= 0x70 && op <= 0x7f) || (op >= 0xe0 && op <= 0xe3)) return set(Kind::kBranch, immediate_);
    if (op == 0xb8 + kRsp && number == kRsp) return set(Kind::kLosesStack);
    if (op == 0x90 + kRsp && number == kRsp) return set(Kind::kLosesStack);
    if (op == 0x90 && number == 0 && !has_f3_) return set(Kind::kNothing);
    const bool adds = (op == 0x81 || op == 0x83) && RmIsRsp() && (rex_ & 8) != 0 && (reg_ == 0 || reg_ == 5);
    if (adds) return set(Kind::kMoveStack, reg_ == 0 ? immediate_ : -immediate_);
    const bool aligns = (op == 0x81 || op == 0x83) && RmIsRsp() && (rex_ & 8) != 0 && reg_ == 4;
    if (aligns && immediate_ <= -16 && immediate_ >= -kLargestAlignment &&
        std::has_single_bit(static_cast<uint64_t>(-immediate_)))
      return set(Kind::kAlignStack, -immediate_);
    const bool is_from_rsp = mod_ != 3 && rm_ == 4 && base_ == kRsp && index_ == 4 && (rex_ & 3) == 0;
    if (op == 0x8d && RegIsRsp() && is_from_rsp && (rex_ & 8) != 0) return set(Kind::kMoveStack, displacement_);
    switch (op) {
      case 0x68:
      case 0x6a:
      case 0x9c:
        return set(has_66_ ? Kind::kLosesStack : Kind::kPush, -1);
      case 0x9d:
        return set(has_66_ ? Kind::kLosesStack : Kind::kPop, -1);
      case 0x8f:
        return set(has_66_ || RmIsRsp() ? Kind::kLosesStack : Kind::kPop, -1);
      case 0xc2:
      case 0xc3:
        return set(Kind::kReturn);
      case 0xc8:  // enter
      case 0xc9:  // leave
      case 0xca:
      case 0xcb:
      case 0xcf:
        return set(Kind::kLosesStack);
      case 0xcc:
      case 0xf1:
      case 0xf4:
        return set(Kind::kEnd);
      case 0xe8:
        return set(Kind::kCall, immediate_);
      case 0xe9:
      case 0xeb:
        return set(Kind::kJump, immediate_);
      case 0xff:
        if (reg_ == 2) return set(Kind::kCall);
        if (reg_ == 4) return set(Kind::kIndirectJump);
        if (reg_ == 6) return set(has_66_ ? Kind::kLosesStack : Kind::kPush, -1);
        if (reg_ == 3 || reg_ == 5) return set(Kind::kLosesStack);
        break;
      default:
        break;
    }
    if (HasDestination() && WritesRsp()) set(Kind::kLosesStack);
  }

  // Whether mod_, reg_ and rm_ say something.
  bool HasDestination() const { return mod_ != kNoModRm; }

  void Classify0f(Instruction* instruction) const {
    const uint8_t op = opcode_;
    if (op >= 0x80 && op <= 0x8f) *instruction = {instruction->size_bytes, Kind::kBranch, static_cast<int32_t>(immediate_)};
    if (op == 0x0b || op == 0xb9 || op == 0xff) instruction->kind = Kind::kEnd;
    if (op == 0x1f) instruction->kind = Kind::kNothing;
    if (op == 0xa0 || op == 0xa8) *instruction = {instruction->size_bytes, Kind::kPush, -1};
    if (op == 0xa1 || op == 0xa9) *instruction = {instruction->size_bytes, Kind::kPop, -1};
  }

  static constexpr uint8_t kNoModRm = 4;

  std::span<const uint8_t> code_;
  size_t at_ = 0;
  bool failed_ = false;
  bool has_66_ = false, has_67_ = false, has_f3_ = false, is_vector_ = false;
  uint8_t rex_ = 0, opcode_ = 0;
  Map map_ = Map::kOneByte;
  uint8_t mod_ = kNoModRm, reg_ = 0, rm_ = 0, base_ = 0, index_ = 0;
  int32_t displacement_ = 0;
  size_t immediate_bytes_ = 0;
  int64_t immediate_ = 0;
};

}  // namespace

std::optional<Instruction> DecodeInstruction(std::span<const uint8_t> code) { return Decoder(code).Decode(); }

}  // namespace stackd
