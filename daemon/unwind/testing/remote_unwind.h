// For tests and benchmarks: the same walk by libunwind's remote API, which shares no code with ours.
//
// A program that links this has its _Unwind_* functions replaced by libunwind's.
#pragma once

#include <libunwind.h>

#include <cstdint>
#include <vector>

#include "daemon/capture/registers.h"
#include "daemon/capture/stack_copy.h"
#include "daemon/modules/address_map.h"

namespace stackd {

// Unwinder for stacks of this process: unwind tables are read from its memory, where the modules are mapped.
class RemoteUnwinder {
 public:
  // With `caching`, libunwind keeps what it knows of each PC.
  explicit RemoteUnwinder(bool caching);
  ~RemoteUnwinder();
  RemoteUnwinder(const RemoteUnwinder&) = delete;
  RemoteUnwinder& operator=(const RemoteUnwinder&) = delete;

  // PCs, innermost first.
  std::vector<uint64_t> Unwind(const Registers& registers, const StackCopy& stack, const AddressMap& map);

 private:
  unw_addr_space_t address_space_;
};

}  // namespace stackd
