#include "daemon/compare/stack_difference.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace stackd {
namespace {

// The frames that are calls, innermost first.
std::vector<const v1::Frame*> Calls(const v1::Stack& stack) {
  std::vector<const v1::Frame*> calls;
  for (const v1::Frame& frame : stack.frames()) {
    if (frame.origin() != v1::Frame::INLINED) calls.push_back(&frame);
  }
  return calls;
}

bool SamePlace(const v1::Frame& a, const v1::Frame& b) {
  return a.address() == b.address() && a.repeat_count() == b.repeat_count();
}

// The instruction `syscall` has two bytes.
constexpr uint64_t kSyscallBytes = 2;

uint64_t AddressOf(const v1::Frame& frame) { return strtoull(frame.address().c_str(), nullptr, 16); }

bool SameCall(const v1::Frame& a, const v1::Frame& b) {
  const uint64_t one = AddressOf(a), other = AddressOf(b);
  return one + kSyscallBytes == other || other + kSyscallBytes == one;
}

// `innermost`: both stacks have the same callers. Where functions have no names, what one call leads to is one function.
bool SameFunction(const v1::Frame& a, const v1::Frame& b, bool innermost) {
  if (a.address() == b.address()) return true;
  if (a.module() != b.module() || a.function() != b.function()) return false;
  return !a.function().empty() || innermost;
}

}  // namespace

StackDifference DifferenceOf(const v1::Stack& a, const v1::Stack& b, bool in_system_call) {
  const auto calls_a = Calls(a), calls_b = Calls(b);
  if (calls_a.size() != calls_b.size()) return StackDifference::kFunctions;
  bool same_places = true;
  for (size_t i = 0; i < calls_a.size(); ++i) {
    if (!SameFunction(*calls_a[i], *calls_b[i], i == 0)) return StackDifference::kFunctions;
    const bool same_call = i == 0 && in_system_call && SameCall(*calls_a[i], *calls_b[i]);
    same_places = same_places && (same_call || SamePlace(*calls_a[i], *calls_b[i]));
  }
  return same_places ? StackDifference::kNone : StackDifference::kPlaces;
}

size_t CommonFunctions(const v1::Stack& a, const v1::Stack& b) {
  const auto calls_a = Calls(a), calls_b = Calls(b);
  const size_t shorter = std::min(calls_a.size(), calls_b.size());
  size_t common = 0;
  while (common < shorter && SameFunction(*calls_a[calls_a.size() - 1 - common], *calls_b[calls_b.size() - 1 - common],
                                          calls_a.size() == calls_b.size() && common + 1 == shorter)) {
    ++common;
  }
  return common;
}

size_t FunctionCount(const v1::Stack& stack) { return Calls(stack).size(); }

const v1::Frame& FunctionFromRoot(const v1::Stack& stack, size_t index) {
  const auto calls = Calls(stack);
  return *calls[calls.size() - 1 - index];
}

}  // namespace stackd
