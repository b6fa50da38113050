// What a stored dump knows of its stacks: where the files of the process are gone, it is more than can be found anew.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "daemon/capture/native_stack.h"
#include "daemon/capture/source_frame.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

class EarlierStacks {
 public:
  explicit EarlierStacks(const v1::Dump& dump);

  // The stack that the dump has for this thread, if that leads further than `unwound`; else `unwound`.
  NativeStack Longer(int32_t tid, NativeStack unwound) const;

  // What the dump says of a frame, if that says more than `now`; else `now`.
  std::shared_ptr<const SourceLocation> Better(const NativeFrame& frame, std::shared_ptr<const SourceLocation> now) const;

 private:
  struct Known {
    NativeStack stack;
    int64_t depth;  // in frames, those included that recursion was folded into
  };

  void Add(int32_t tid, const v1::Stack& stack);

  std::unordered_map<int32_t, Known> stack_of_tid_;
  // By the address to look up.
  std::unordered_map<uint64_t, std::shared_ptr<const SourceLocation>> locations_;
};

}  // namespace stackd
