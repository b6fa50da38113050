#include "daemon/unwind/stored_jit_frames.h"

#include <algorithm>

namespace stackd {

std::optional<JitFrame> StoredJitFrames::FrameAt(uint64_t pc_avma, uint64_t sp_avma, uint64_t, const StackCopy&) {
  auto frame = std::ranges::lower_bound(frames_, sp_avma, {}, &JitFrame::sp_avma);
  for (; frame != frames_.end() && frame->sp_avma == sp_avma; ++frame) {
    if (frame->pc_avma == pc_avma) return *frame;
  }
  return std::nullopt;
}

}  // namespace stackd
