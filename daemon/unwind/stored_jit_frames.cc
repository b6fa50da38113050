#include "daemon/unwind/stored_jit_frames.h"

#include <algorithm>

namespace stackd {

std::optional<JitFrame> StoredJitFrames::OverridingFrameAt(uint64_t pc_avma, uint64_t sp_avma) {
  return Find(pc_avma, sp_avma, true);
}

std::optional<JitFrame> StoredJitFrames::FrameAt(uint64_t pc_avma, uint64_t sp_avma, uint64_t, const StackCopy&) {
  return Find(pc_avma, sp_avma, false);
}

std::optional<JitFrame> StoredJitFrames::Find(uint64_t pc_avma, uint64_t sp_avma, bool overrides) const {
  auto frame = std::ranges::lower_bound(frames_, sp_avma, {}, &JitFrame::sp_avma);
  for (; frame != frames_.end() && frame->sp_avma == sp_avma; ++frame) {
    if (frame->pc_avma == pc_avma && frame->overrides == overrides) return *frame;
  }
  return std::nullopt;
}

}  // namespace stackd
