// Finds a function's caller by what its code does to the stack. Used for code that no unwind table describes, as in musl
// and other libraries that are built without tables.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "daemon/modules/module.h"

namespace stackd {

// At one instruction: where the caller's frame is.
struct CodeStep {
  // From rsp to the canonical frame address, below which the return address lies.
  int32_t cfa_offset = 0;
  // The frame may lie farther away by up to so much, where the function aligns its stack.
  int32_t slack_bytes = 0;
  // From rsp to where the caller's rbp was saved; nullopt: rbp still is the caller's.
  std::optional<int32_t> rbp_offset;
  // Set if the step was found from the function's begin, not by its returns. If the caller's call names a function, it must
  // be the one that begins here.
  std::optional<uint64_t> begin_svma;

  bool operator==(const CodeStep&) const = default;
};

// Follows the code from an instruction to the returns of its function: what is popped on the way is what had been pushed.
// Where no return is found (a function that ends the program), follows it from the function's begin to the instruction. All
// ways that are found must agree. So the result is right or there is none, except for code that is made to deceive.
//
// Not thread-safe. Remembers what it found in the last modules that it was asked of.
class CodeSteps {
 public:
  // To be called before each stack: at most kMaxInstructionsOfStack instructions are looked at for one.
  void StartStack() { instructions_left_ = kMaxInstructionsOfStack; }

  // `svma`: the next instruction of the frame; `lookup_svma`: one within its function, as NativeFrame::lookup_avma().
  std::optional<CodeStep> Find(const Module& module, uint64_t svma, uint64_t lookup_svma);

  // Distances from rsp to the canonical frame address, both included: one of them is right. They are equal but for a
  // function that aligns its stack.
  struct CfaOffsets {
    int32_t nearest, farthest;
  };

  // Gives the distance from rsp to the canonical frame address, as the unwind table has it; nullopt: it has none.
  using OffsetByTable = std::function<std::optional<int32_t>(uint64_t svma)>;

  // Finds the distances from rsp at `svma` to the canonical frame address, in the function [begin_svma, end_svma). It is
  // for a frame whose unwind table needs a register that is not known. nullopt where rsp depends on data, as after
  // alloca(), and where code and table contradict each other on the way.
  std::optional<CfaOffsets> FindCfaOffsets(const Module& module, uint64_t begin_svma, uint64_t end_svma, uint64_t svma,
                                           const OffsetByTable& by_table);

 private:
  struct ModuleCode {
    FileIdentity identity;
    // Where functions begin, as far as code of the module names them; sorted.
    std::vector<uint64_t> function_svmas;
    std::unordered_map<uint64_t, std::optional<CodeStep>> found;
  };

  // Real stacks need some thousand.
  static constexpr int kMaxInstructionsOfStack = 1 << 20;

  ModuleCode& CodeOf(const Module& module);

  // Code of the last modules, the latest first.
  std::list<ModuleCode> modules_;
  int instructions_left_ = kMaxInstructionsOfStack;
};

}  // namespace stackd
