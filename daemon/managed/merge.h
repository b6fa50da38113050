// Merges native frames and those of a runtime into one stack, innermost first.
//
// A frame with an anchor stands in the native frame that holds this address: between the CFA of the frame below and its
// own. The native frames that run an interpreted function are not shown; the frames of runtimes take their place. Without
// anchors the native frames of the interpreter's function are counted off, an activation each. Frames without a place stand
// at the end, marked as unplaced: nothing is dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/base/shared_text.h"
#include "daemon/capture/managed.h"
#include "daemon/capture/named_stack.h"

namespace stackd {

// Fills in `stack->runtime_calls`. `sp_avma`: the thread's stack pointer when it was captured.
void MergeManaged(const std::vector<ManagedStack>& managed, uint64_t sp_avma, NamedStack* stack);

// Keys of the threads of one capture, whose texts outlive this.
class ManagedKeys {
 public:
  // Equal for threads whose merged stacks are equal, if the program counters of their native stacks are.
  std::string Of(const std::vector<ManagedStack>& managed, uint64_t sp_avma, const NativeStack& native);

 private:
  // Number of `text`: equal for equal texts.
  uint32_t NumberOf(const SharedText& text);

  std::unordered_map<std::string_view, uint32_t> numbers_;
  // Most texts are copies of a few.
  std::unordered_map<const void*, uint32_t> numbers_by_identity_;
};

}  // namespace stackd
