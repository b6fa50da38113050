#include "daemon/unwind/expression.h"

#include <array>

#include "daemon/modules/byte_reader.h"

namespace stackd {
namespace {

enum : uint8_t {
  kOpDeref = 0x06,
  kOpConst1u = 0x08,
  kOpConst1s = 0x09,
  kOpConst2u = 0x0a,
  kOpConst2s = 0x0b,
  kOpConst4u = 0x0c,
  kOpConst4s = 0x0d,
  kOpConst8u = 0x0e,
  kOpConst8s = 0x0f,
  kOpConstu = 0x10,
  kOpConsts = 0x11,
  kOpDup = 0x12,
  kOpDrop = 0x13,
  kOpOver = 0x14,
  kOpPick = 0x15,
  kOpSwap = 0x16,
  kOpRot = 0x17,
  kOpAbs = 0x19,
  kOpAnd = 0x1a,
  kOpDiv = 0x1b,
  kOpMinus = 0x1c,
  kOpMod = 0x1d,
  kOpMul = 0x1e,
  kOpNeg = 0x1f,
  kOpNot = 0x20,
  kOpOr = 0x21,
  kOpPlus = 0x22,
  kOpPlusUconst = 0x23,
  kOpShl = 0x24,
  kOpShr = 0x25,
  kOpShra = 0x26,
  kOpXor = 0x27,
  kOpBra = 0x28,
  kOpEq = 0x29,
  kOpGe = 0x2a,
  kOpGt = 0x2b,
  kOpLe = 0x2c,
  kOpLt = 0x2d,
  kOpNe = 0x2e,
  kOpSkip = 0x2f,
  kOpLit0 = 0x30,
  kOpLit31 = 0x4f,
  kOpBreg0 = 0x70,
  kOpBreg31 = 0x8f,
  kOpBregx = 0x92,
  kOpDerefSize = 0x94,
  kOpNop = 0x96,
};

uint64_t SignExtend(int64_t value) { return static_cast<uint64_t>(value); }

class Evaluator {
 public:
  Evaluator(std::span<const uint8_t> expression, const RegisterFile& registers, const StackCopy& stack)
      : reader_(expression), registers_(registers), stack_(stack) {}

  Evaluation Run(std::optional<uint64_t> initial, uint64_t* steps_left) {
    if (initial) Push(*initial);
    while (!error_ && !reader_.at_end()) {
      if (*steps_left == 0) return std::unexpected(EvaluationError{EvaluationError::kMalformed});
      --*steps_left;
      Step();
    }
    uint64_t result = Pop();
    if (error_) return std::unexpected(*error_);
    return result;
  }

 private:
  void Fail(EvaluationError::Kind kind, uint64_t address_avma = 0) {
    if (!error_) error_ = EvaluationError{kind, address_avma};
  }

  void Push(uint64_t value) {
    if (depth_ == values_.size()) return Fail(EvaluationError::kMalformed);
    values_[depth_++] = value;
  }

  uint64_t Pop() {
    if (depth_ == 0) {
      Fail(EvaluationError::kMalformed);
      return 0;
    }
    return values_[--depth_];
  }

  // Copies the value that `index` others lie on.
  void Pick(size_t index) {
    if (index >= depth_) return Fail(EvaluationError::kMalformed);
    Push(values_[depth_ - 1 - index]);
  }

  void PushRegister(uint64_t number, int64_t offset) {
    std::optional<uint64_t> value = registers_.Get(number);
    if (!value) return Fail(EvaluationError::kUnknownRegister);
    Push(*value + static_cast<uint64_t>(offset));
  }

  void Dereference(unsigned size_bytes) {
    uint64_t address_avma = Pop();
    uint64_t shift_bytes = address_avma % 8;
    if (size_bytes == 0 || size_bytes + shift_bytes > 8) return Fail(EvaluationError::kMalformed);
    std::optional<uint64_t> word = stack_.Read(address_avma - shift_bytes);
    if (!word) return Fail(EvaluationError::kUnreadable, address_avma);
    uint64_t value = *word >> (8 * shift_bytes);
    Push(size_bytes == 8 ? value : value & ((uint64_t{1} << (8 * size_bytes)) - 1));
  }

  void Branch(bool taken) {
    auto distance_bytes = static_cast<int16_t>(reader_.U16());
    if (taken) reader_.Seek(reader_.position() + static_cast<size_t>(SignExtend(distance_bytes)));
  }

  void Binary(uint8_t opcode) {
    uint64_t right = Pop();
    uint64_t left = Pop();
    auto signed_right = static_cast<int64_t>(right);
    auto signed_left = static_cast<int64_t>(left);
    switch (opcode) {
      case kOpAnd:
        return Push(left & right);
      case kOpOr:
        return Push(left | right);
      case kOpXor:
        return Push(left ^ right);
      case kOpPlus:
        return Push(left + right);
      case kOpMinus:
        return Push(left - right);
      case kOpMul:
        return Push(left * right);
      case kOpDiv:
        if (right == 0) return Fail(EvaluationError::kMalformed);
        // The smallest number has no positive counterpart.
        return Push(signed_right == -1 ? 0 - left : SignExtend(signed_left / signed_right));
      case kOpMod:
        if (right == 0) return Fail(EvaluationError::kMalformed);
        return Push(left % right);
      case kOpShl:
        return Push(right < 64 ? left << right : 0);
      case kOpShr:
        return Push(right < 64 ? left >> right : 0);
      case kOpShra:
        return Push(SignExtend(signed_left >> (right < 64 ? right : 63)));
      case kOpEq:
        return Push(left == right);
      case kOpNe:
        return Push(left != right);
      case kOpGe:
        return Push(signed_left >= signed_right);
      case kOpGt:
        return Push(signed_left > signed_right);
      case kOpLe:
        return Push(signed_left <= signed_right);
      case kOpLt:
        return Push(signed_left < signed_right);
      default:
        return Fail(EvaluationError::kMalformed);
    }
  }

  void Step() {
    uint8_t opcode = reader_.U8();
    if (opcode >= kOpLit0 && opcode <= kOpLit31) {
      Push(opcode - kOpLit0);
    } else if (opcode >= kOpBreg0 && opcode <= kOpBreg31) {
      PushRegister(opcode - kOpBreg0, reader_.Sleb());
    } else {
      Other(opcode);
    }
    if (!reader_.ok()) Fail(EvaluationError::kMalformed);
  }

  void Other(uint8_t opcode) {
    switch (opcode) {
      case kOpNop:
        return;
      case kOpConst1u:
        return Push(reader_.U8());
      case kOpConst1s:
        return Push(SignExtend(static_cast<int8_t>(reader_.U8())));
      case kOpConst2u:
        return Push(reader_.U16());
      case kOpConst2s:
        return Push(SignExtend(static_cast<int16_t>(reader_.U16())));
      case kOpConst4u:
        return Push(reader_.U32());
      case kOpConst4s:
        return Push(SignExtend(static_cast<int32_t>(reader_.U32())));
      case kOpConst8u:
      case kOpConst8s:
        return Push(reader_.U64());
      case kOpConstu:
        return Push(reader_.Uleb());
      case kOpConsts:
        return Push(SignExtend(reader_.Sleb()));
      case kOpDup:
        return Pick(0);
      case kOpOver:
        return Pick(1);
      case kOpPick:
        return Pick(reader_.U8());
      case kOpDrop:
        Pop();
        return;
      case kOpSwap: {
        uint64_t top = Pop();
        uint64_t second = Pop();
        Push(top);
        return Push(second);
      }
      case kOpRot: {
        uint64_t top = Pop();
        uint64_t second = Pop();
        uint64_t third = Pop();
        Push(top);
        Push(third);
        return Push(second);
      }
      case kOpDeref:
        return Dereference(8);
      case kOpDerefSize:
        return Dereference(reader_.U8());
      case kOpAbs: {
        uint64_t value = Pop();
        return Push(static_cast<int64_t>(value) < 0 ? 0 - value : value);
      }
      case kOpNeg:
        return Push(0 - Pop());
      case kOpNot:
        return Push(~Pop());
      case kOpPlusUconst:
        return Push(Pop() + reader_.Uleb());
      case kOpBregx: {
        uint64_t number = reader_.Uleb();
        return PushRegister(number, reader_.Sleb());
      }
      case kOpSkip:
        return Branch(true);
      case kOpBra:
        return Branch(Pop() != 0);
      default:
        return Binary(opcode);
    }
  }

  ByteReader reader_;
  const RegisterFile& registers_;
  const StackCopy& stack_;
  std::array<uint64_t, 32> values_{};
  size_t depth_ = 0;
  std::optional<EvaluationError> error_;
};

}  // namespace

Evaluation EvaluateExpression(std::span<const uint8_t> expression, const RegisterFile& registers, const StackCopy& stack,
                              std::optional<uint64_t> initial, uint64_t* steps_left) {
  return Evaluator(expression, registers, stack).Run(initial, steps_left);
}

}  // namespace stackd
