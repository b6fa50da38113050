// What lies at an address of a process that crashed, in words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/analyze/code/stack_owner.h"
#include "daemon/capture/capture.h"
#include "daemon/modules/address_map.h"

namespace stackd {

// "8.0 MiB", "64 KiB", "16 bytes"
std::string BytesInWords(uint64_t bytes);

// "thread worker-3", or "thread worker (tid 4713)" if several have this name; "the main thread"
std::string ThreadInWords(const Capture& capture, const ThreadCapture& thread);

struct StackBounds {
  uint64_t start_avma = 0;
  uint64_t end_avma = 0;
};

class MemoryPlaces {
 public:
  // Both must outlive this. `map` is the capture's, or an empty one.
  MemoryPlaces(const Capture& capture, const AddressMap& map) : capture_(capture), map_(map), owners_(capture) {}

  // What `avma`, in `mapping`, is part of: "libfoo.so", "the heap", "the stack of thread worker-3", "anonymous memory"
  std::string InWords(const Mapping& mapping, uint64_t avma) const;

  // What is next to an address where nothing is mapped: "24 bytes behind the end of the heap"; empty if nothing is near.
  std::string NeighbourInWords(uint64_t avma) const;

  // The thread into whose stack's guard page `avma` falls.
  const ThreadCapture* ThreadOfGuard(uint64_t avma) const;

  // Bounds of the stack that `thread` runs on, without guard pages. `known`: what the process itself said, if it did.
  std::optional<StackBounds> BoundsOfStack(const ThreadCapture& thread, StackBounds known) const;

 private:
  const Capture& capture_;
  const AddressMap& map_;
  StackOwners owners_;
};

}  // namespace stackd
