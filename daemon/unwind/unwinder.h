// Unwinds a stack copy: from registers and an address map to return addresses. No I/O but reading unwind tables of modules
// on their first use, and what a JitCode does.
#pragma once

#include <cstdint>
#include <memory>

#include "daemon/capture/jit_code.h"
#include "daemon/capture/native_stack.h"
#include "daemon/capture/registers.h"
#include "daemon/capture/stack_copy.h"
#include "daemon/modules/address_map.h"

namespace stackd {

// Thread safety: an Unwinder is used by one thread at a time, since it holds a rule cache. All share the modules' tables.
class Unwinder {
 public:
  Unwinder();
  ~Unwinder();

  // `copy_truncated`: the stack went on beyond the copy, so running off its end is kTruncated. Where the copy holds both
  // ends of one stack, the frames after the gap follow those before it, if they can be found. `jit`, if it is given, is
  // asked about code that no file describes; it may be asked about the same frame twice.
  NativeStack Unwind(const Registers& registers, const StackCopy& stack, bool copy_truncated, const AddressMap& map,
                     JitCode* jit = nullptr);

 private:
  struct State;

  void CrossGap(const StackCopy& stack, const AddressMap& map, JitCode* jit, uint64_t inner_rbp, NativeStack* result);

  std::unique_ptr<State> state_;
};

}  // namespace stackd
