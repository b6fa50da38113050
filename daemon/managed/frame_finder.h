// Which native frame of a stack holds an address of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/capture/native_stack.h"

namespace stackd {

// A place in a stack: in a native frame, or before one and in none.
struct StackPlace {
  size_t native_frame = 0;  // index; the number of frames: beyond the last
  bool inside = false;
};

class FrameFinder {
 public:
  // `native` outlives this. `sp_avma`: of its innermost frame.
  FrameFinder(const NativeStack& native, uint64_t sp_avma);

  StackPlace Find(uint64_t avma) const;

 private:
  struct Extent {
    uint64_t sp_avma;
    uint64_t cfa_avma;
    size_t native_frame;
  };
  std::vector<Extent> extents_;  // by address: a signal handler's frames may lie on another stack
  size_t frame_count_;
};

}  // namespace stackd
