// The frame of a function whose unwind table needs a register that no callee saved, as of a thread that was read asleep.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/capture/native_stack.h"
#include "daemon/capture/stack_copy.h"
#include "daemon/modules/address_map.h"
#include "daemon/unwind/cfi.h"
#include "daemon/unwind/direct_calls.h"
#include "daemon/unwind/rule_resolver.h"
#include "daemon/unwind/x86_64/code_step.h"

namespace stackd {

// What an unwinder remembers of modules from one stack to the next.
struct ModuleKnowledge {
  RuleResolver resolver;
  CodeSteps code_steps;
  DirectCalls direct_calls;
};

// Finds such a frame by what must be true of it, if that is true of one place on the stack only. What returned calls left
// in memory can look like a frame. So the right one must always be among those that are tried, and two that pass are none.
class FrameSearch {
 public:
  FrameSearch(ModuleKnowledge& knowledge, const StackCopy& stack, bool copy_truncated, const AddressMap& map)
      : knowledge_(knowledge), stack_(stack), copy_truncated_(copy_truncated), map_(map) {}

  struct FoundRegister {
    uint64_t number, value;
    // The caller's: kCode or kSearch.
    FrameOrigin origin;
  };
  // To be called before each stack: resets the limits of what is looked at for one.
  void StartStack() {
    words_left_ = kMaxWordsOfStack;
    code_reads_left_ = kMaxCodeReadsOfStack;
  }

  // The register on which `rule` makes the frame depend. `rsp_avma`: of that frame.
  std::optional<FoundRegister> Find(const NativeFrame& frame, uint64_t rsp_avma, const CfaRule& rule);

  // Whether the frame at `rbp_avma` is of a function farther out than `frame`, which no table describes. Code that keeps no
  // frame pointer leaves that of its callers.
  bool LeavesOutFrames(const NativeFrame& frame, uint64_t rsp_avma, uint64_t rbp_avma);

 private:
  static constexpr int64_t kMaxWordsOfStack = 1 << 20;
  // Words that may be return addresses. Real stacks have some hundred.
  static constexpr int kMaxCodeReadsOfStack = 1 << 12;

  struct Function {
    const Mapping& mapping;
    uint64_t begin_svma, end_svma;
  };
  std::optional<Function> FunctionOf(uint64_t lookup_avma);
  std::optional<CodeSteps::CfaOffsets> CfaOffsetsIn(const Function& function, uint64_t pc_avma);
  std::optional<FoundRegister> ByCode(const Function& function, const NativeFrame& frame, uint64_t rsp_avma,
                                      const CfaRule& rule);
  std::optional<FoundRegister> ByDirectCalls(const Function& function, const NativeFrame& frame, uint64_t rsp_avma);
  std::optional<uint64_t> CfaOf(const UnwindRule& rule, uint64_t rbp_avma) const;
  bool IsReturnAddress(uint64_t avma);
  bool IsBehindCallOf(const Function& function, uint64_t avma);
  bool NamesAnotherFunction(uint64_t return_avma, uint64_t lookup_avma);
  bool LeadsToFrameAt(uint64_t rbp_avma, uint64_t slot_avma);

  ModuleKnowledge& knowledge_;
  const StackCopy& stack_;
  const bool copy_truncated_;
  const AddressMap& map_;
  int64_t words_left_ = kMaxWordsOfStack;
  int code_reads_left_ = kMaxCodeReadsOfStack;
};

}  // namespace stackd
