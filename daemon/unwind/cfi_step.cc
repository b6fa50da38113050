#include "daemon/unwind/cfi_step.h"

namespace stackd {
namespace {

constexpr uint64_t kRbp = Registers::kRbp, kRsp = Registers::kRsp, kRip = Registers::kRip;

std::unexpected<EvaluationError> Failure(EvaluationError::Kind kind, uint64_t address_avma = 0) {
  return std::unexpected(EvaluationError{kind, address_avma});
}

class RowApplication {
 public:
  RowApplication(const RegisterFile& callee, const StackCopy& stack, uint64_t* steps_left)
      : callee_(callee), stack_(stack), steps_left_(steps_left) {}

  Evaluation Cfa(const CfaRule& rule) {
    switch (rule.kind) {
      case CfaRule::kRegisterOffset: {
        Evaluation base = Register(rule.register_number);
        if (!base) return base;
        return *base + static_cast<uint64_t>(rule.offset);
      }
      case CfaRule::kExpression:
        return EvaluateExpression(rule.Expression(), callee_, stack_, std::nullopt, steps_left_);
      case CfaRule::kNone:
        break;
    }
    return Failure(EvaluationError::kMalformed);
  }

  Evaluation Value(const RegisterRule& rule, uint64_t number, uint64_t cfa_avma) {
    switch (rule.kind) {
      case RegisterRule::kUnspecified:
      case RegisterRule::kSameValue:
        return Register(number);
      case RegisterRule::kUndefined:
        return Failure(EvaluationError::kUnknownRegister);
      case RegisterRule::kOffset:
        return Saved(number, cfa_avma + static_cast<uint64_t>(rule.offset));
      case RegisterRule::kValueOffset:
        return cfa_avma + static_cast<uint64_t>(rule.offset);
      case RegisterRule::kRegister:
        return Register(rule.register_number);
      case RegisterRule::kExpression: {
        Evaluation address_avma = EvaluateExpression(rule.Expression(), callee_, stack_, cfa_avma, steps_left_);
        if (!address_avma) return address_avma;
        return Saved(number, *address_avma);
      }
      case RegisterRule::kValueExpression:
        return EvaluateExpression(rule.Expression(), callee_, stack_, cfa_avma, steps_left_);
    }
    return Failure(EvaluationError::kMalformed);
  }

 private:
  Evaluation Register(uint64_t number) {
    std::optional<uint64_t> value = callee_.Get(number);
    if (!value) return Failure(EvaluationError::kUnknownRegister);
    return *value;
  }

  Evaluation Saved(uint64_t number, uint64_t address_avma) {
    // Below the stack pointer: it was popped already, in an epilogue that the compiler did not describe.
    bool popped = address_avma < callee_.registers.value[kRsp] && number != kRip && number != kRsp;
    if (popped) return Register(number);
    std::optional<uint64_t> word = stack_.Read(address_avma);
    if (!word) return Failure(EvaluationError::kUnreadable, address_avma);
    return *word;
  }

  const RegisterFile& callee_;
  const StackCopy& stack_;
  uint64_t* steps_left_;
};

}  // namespace

std::expected<CfiStep, EvaluationError> ApplyRow(const Cie& cie, const CfiRow& row, const RegisterFile& callee,
                                                 const StackCopy& stack, bool needs_rbp, uint64_t* steps_left) {
  RowApplication application(callee, stack, steps_left);
  Evaluation cfa_avma = application.Cfa(row.cfa);
  if (!cfa_avma) return std::unexpected(cfa_avma.error());
  CfiStep step{.cfa_avma = *cfa_avma, .caller = {}};

  for (uint64_t number = 0; number < kRip; ++number) {
    const RegisterRule& rule = row.registers[number];
    if (number == kRsp && rule.kind == RegisterRule::kUnspecified) {
      step.caller.Set(kRsp, *cfa_avma);
      continue;
    }
    Evaluation value = application.Value(rule, number, *cfa_avma);
    if (value) {
      step.caller.Set(number, *value);
      continue;
    }
    bool lost_rbp = number == kRbp && needs_rbp && rule.kind != RegisterRule::kUndefined &&
                    value.error().kind == EvaluationError::kUnknownRegister;
    if (number == kRsp || lost_rbp) return std::unexpected(value.error());
  }

  const RegisterRule& return_address = row.registers[cie.return_address_register];
  if (return_address.kind == RegisterRule::kUndefined) return step;
  if (return_address.kind == RegisterRule::kUnspecified) return Failure(EvaluationError::kMalformed);
  Evaluation rip = application.Value(return_address, cie.return_address_register, *cfa_avma);
  if (!rip) return std::unexpected(rip.error());
  step.caller.Set(kRip, *rip);
  return step;
}

}  // namespace stackd
