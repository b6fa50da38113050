#include "daemon/managed/go/callback_frames.h"

#include <algorithm>
#include <string_view>

#include "daemon/unwind/stored_jit_frames.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {
namespace {

// Each callback costs an unwinding of the whole stack.
constexpr int kMaxCallbacks = 16;

// Offset in runtime.cgocallback's frame, on the goroutine's stack, of the address of the arguments. These are variables of
// the calling C function. (asm_amd64.s of runtime, the same from Go 1.21 to 1.26)
constexpr uint64_t kArgumentsOffset = 8;
// How far below those the frame of crosscall2 ends: the C function is a stub of cgo's making.
constexpr uint64_t kMaxStubBytes = 4096;
// Distance from crosscall2's return address down to its caller's saved rbp. PUSH_REGS_HOST_TO_ABI0 of
// runtime/cgo/abi_amd64.h pushes the flags and keeps 28 words, of which rbp is the third.
constexpr uint64_t kSavedRbpBelowReturn = 8 + 28 * 8 - 2 * 8;

class Finder {
 public:
  Finder(const GoBinary& binary, uint64_t bias, const ThreadCapture& thread, const AddressMap& map)
      : binary_(binary), bias_(bias), thread_(thread), map_(map) {}

  std::optional<CallbackFrames> Find(std::span<const GoFrame> frames) {
    CallbackFrames found{.frames = {}, .go_frame_count = frames.size()};
    int callbacks = 0;
    for (size_t i = 0; i + 1 < frames.size(); ++i) {
      const GoFrame &frame = frames[i], &caller = frames[i + 1];
      if (!IsIn("runtime.cgocallback", frame.pc_avma)) {
        Add({frame.pc_avma, frame.sp_avma, caller.sp_avma, 0}, &found.frames);
        continue;
      }
      const auto crosscall = FindCrosscall(frame);
      if (!crosscall || ++callbacks > kMaxCallbacks) return std::nullopt;
      Add({frame.pc_avma, frame.sp_avma, crosscall->sp_avma, 0}, &found.frames);
      Add(*crosscall, &found.frames);
      if (IsIn("runtime.goexit", caller.pc_avma)) {
        found.go_frame_count = i + 1;
        break;
      }
      auto left_go = FindWayBack(found.frames, crosscall->cfa_avma);
      if (!left_go) return std::nullopt;
      left_go->cfa_avma = caller.sp_avma;
      Add(*left_go, &found.frames);
    }
    return found;
  }

  bool IsIn(std::string_view function, uint64_t pc_avma) const {
    const auto found = binary_.FindFunction(pc_avma - bias_);
    return found && found->name == function;
  }

 private:
  static void Add(JitFrame frame, std::vector<JitFrame>* frames) {
    frame.overrides = true;
    frames->insert(std::ranges::upper_bound(*frames, frame.sp_avma, {}, &JitFrame::sp_avma), frame);
  }

  // The function that enters Go on the thread's own stack. What is left of calls that have returned lies below it.
  std::optional<JitFrame> FindCrosscall(const GoFrame& cgocallback) const {
    const StackCopy& stack = thread_.stack;
    const uint64_t arguments_avma = stack.Read(cgocallback.sp_avma + kArgumentsOffset).value_or(0);
    const uint64_t base_avma = stack.outer_base_avma();
    if (arguments_avma - base_avma >= 8ull * stack.outer_word_count()) return std::nullopt;
    const uint64_t lowest_avma = std::max(base_avma, arguments_avma - std::min(arguments_avma, kMaxStubBytes));
    for (uint64_t at_avma = arguments_avma & ~7ull; at_avma > lowest_avma;) {
      at_avma -= 8;
      const uint64_t pc_avma = stack.Read(at_avma).value_or(0);
      const auto function = pc_avma == 0 ? std::nullopt : binary_.FindFunction(pc_avma - bias_);
      if (!function || function->name != "crosscall2") continue;
      const auto frame_bytes =
          binary_.functions().FrameBytes(*function, static_cast<uint32_t>(pc_avma - bias_ - binary_.text_svma()));
      if (!frame_bytes || *frame_bytes < 0) return std::nullopt;
      const uint64_t sp_avma = at_avma + 8, return_avma = sp_avma + static_cast<uint64_t>(*frame_bytes);
      if (return_avma >= arguments_avma) return std::nullopt;
      return JitFrame{pc_avma, sp_avma, return_avma + 8, stack.Read(return_avma - kSavedRbpBelowReturn).value_or(0)};
    }
    return std::nullopt;
  }

  // The function that has switched from the goroutine's stack to call C: the first of Go above `from_avma`.
  std::optional<JitFrame> FindWayBack(std::span<const JitFrame> known, uint64_t from_avma) {
    StoredJitFrames jit(known);
    const NativeStack stack = unwinder_.Unwind(thread_.registers, thread_.stack, thread_.stack_truncated, map_, &jit);
    const auto entry = std::ranges::find(stack.frames, from_avma, &NativeFrame::cfa_avma);
    for (auto frame = entry; frame != stack.frames.end(); ++frame) {
      const auto caller = frame + 1;
      if (caller == stack.frames.end()) break;
      if (IsIn("runtime.asmcgocall", caller->pc_avma)) return JitFrame{caller->pc_avma, frame->cfa_avma, 0, 0};
    }
    return std::nullopt;
  }

  const GoBinary& binary_;
  const uint64_t bias_;
  const ThreadCapture& thread_;
  const AddressMap& map_;
  Unwinder unwinder_;
};

}  // namespace

bool IsCalledByC(const GoBinary& binary, uint64_t bias, std::span<const GoFrame> frames) {
  return std::ranges::any_of(frames, [&](const GoFrame& frame) {
    const auto function = binary.FindFunction(frame.pc_avma - bias);
    return function && function->name == "runtime.cgocallback";
  });
}

std::optional<CallbackFrames> FindCallbackFrames(const GoBinary& binary, uint64_t bias, const ThreadCapture& thread,
                                                 const AddressMap& map, std::span<const GoFrame> frames) {
  return Finder(binary, bias, thread, map).Find(frames);
}

}  // namespace stackd
