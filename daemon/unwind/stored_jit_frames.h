// Frames that a runtime described while the process lived: what a later unwinding goes by.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "daemon/capture/jit_code.h"

namespace stackd {

class StoredJitFrames : public JitCode {
 public:
  // `frames` by sp_avma, ascending; they must outlive this.
  explicit StoredJitFrames(std::span<const JitFrame> frames) : frames_(frames) {}

  std::optional<JitFrame> OverridingFrameAt(uint64_t pc_avma, uint64_t sp_avma) override;
  std::optional<JitFrame> FrameAt(uint64_t pc_avma, uint64_t sp_avma, uint64_t rbp, const StackCopy& stack) override;

 private:
  std::optional<JitFrame> Find(uint64_t pc_avma, uint64_t sp_avma, bool overrides) const;

  std::span<const JitFrame> frames_;
};

}  // namespace stackd
