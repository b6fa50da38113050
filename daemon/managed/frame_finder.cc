#include "daemon/managed/frame_finder.h"

#include <algorithm>

namespace stackd {

FrameFinder::FrameFinder(const NativeStack& native, uint64_t sp_avma) : frame_count_(native.frames.size()) {
  extents_.reserve(frame_count_);
  for (size_t i = 0; i < frame_count_; ++i) {
    const uint64_t cfa_avma = native.frames[i].cfa_avma;
    // Two frames have an empty extent: the last of a stack, without a CFA, and the first after a gap, of unknown begin.
    const bool behind_gap = native.omitted_bytes > 0 && i == native.omitted_before;
    if (behind_gap) sp_avma = cfa_avma;
    extents_.push_back({sp_avma, std::max(sp_avma, cfa_avma), i});
    // The stack beyond a signal frame may lie anywhere.
    if (cfa_avma != 0) sp_avma = cfa_avma;
  }
  std::ranges::stable_sort(extents_, {}, &Extent::sp_avma);
}

StackPlace FrameFinder::Find(uint64_t avma) const {
  // The first that begins beyond it: the one before is the only one that may hold it.
  const auto beyond = std::ranges::upper_bound(extents_, avma, {}, &Extent::sp_avma);
  if (beyond != extents_.begin()) {
    const Extent& extent = *(beyond - 1);
    if (avma < extent.cfa_avma) return {extent.native_frame, true};
  }
  return {beyond == extents_.end() ? frame_count_ : beyond->native_frame, false};
}

}  // namespace stackd
