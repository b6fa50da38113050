// Registers, a stack copy and an address map in; return addresses out. No I/O but reading unwind tables of modules on their
// first use, and what a JitCode does.
#pragma once

#include <cstdint>
#include <memory>

#include "daemon/capture/jit_code.h"
#include "daemon/capture/native_stack.h"
#include "daemon/capture/registers.h"
#include "daemon/capture/stack_copy.h"
#include "daemon/modules/address_map.h"

namespace stackd {

// Thread safety: an Unwinder is used by one thread at a time (it holds a rule cache); tables of modules are shared behind
// it.
class Unwinder {
 public:
  Unwinder();
  ~Unwinder();

  // `copy_truncated`: the stack went on beyond the copy, so running off its end is kTruncated. Where the copy holds both
  // ends of one stack, the frames behind the gap follow those before it, if the way on can be found. `jit`, if it is given,
  // is asked of code that no file describes; it may be asked of the same frame twice.
  NativeStack Unwind(const Registers& registers, const StackCopy& stack, bool copy_truncated, const AddressMap& map,
                     JitCode* jit = nullptr);

 private:
  struct State;

  void CrossGap(const StackCopy& stack, const AddressMap& map, JitCode* jit, uint64_t inner_rbp, NativeStack* result);

  std::unique_ptr<State> state_;
};

}  // namespace stackd
