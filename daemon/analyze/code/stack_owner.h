// Whose stack an address is in.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/modules/address_map.h"

namespace stackd {

// Finds the thread whose stack an address is in. Several stacks may lie in one mapping, since glibc 2.42 on Linux 6.13 and
// later. There a guard page is no mapping of its own (MADV_GUARD_INSTALL), and the kernel joins stacks that lie side by
// side.
class StackOwners {
 public:
  // `capture` must outlive this.
  explicit StackOwners(const Capture& capture);

  // The thread to whose stack `avma`, in `mapping`, belongs; nullptr if no thread runs on that mapping.
  const ThreadCapture* Of(const Mapping& mapping, uint64_t avma) const;

  // The first thread above `avma` that runs on `mapping`: if `avma` is in a guard page, it is that thread's.
  const ThreadCapture* FirstAbove(const Mapping& mapping, uint64_t avma) const;

 private:
  std::vector<const ThreadCapture*> by_stack_pointer_;
};

}  // namespace stackd
