#include "daemon/managed/go/go_walk.h"

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// A real program has some thousands of places where its goroutines are.
constexpr size_t kMaxCodes = 1 << 19;

}  // namespace

const GoWalker::Code& GoWalker::CodeAt(uint64_t pc_avma) {
  if (codes_.size() >= kMaxCodes) codes_.clear();
  auto [entry, is_new] = codes_.try_emplace(pc_avma);
  Code& code = entry->second;
  if (!is_new) return code;
  code.is_late = MonotonicNs() > deadline_ns_;
  if (code.is_late) return code;
  const uint64_t svma = pc_avma - bias_;
  const std::optional<GoFunction> function = binary_.FindFunction(svma);
  if (!function) return code;
  code.known = true;
  code.is_top = function->is_top;
  // It takes care that both of its stacks can be walked at each moment.
  code.moves_stack = function->moves_stack && function->name != "runtime.cgocallback";
  code.was_injected = function->name == "runtime.sigpanic" || function->name == "runtime.asyncPreempt" ||
                      function->name == "runtime.debugCallV2";
  const auto frame_bytes = binary_.functions().FrameBytes(*function, static_cast<uint32_t>(svma - binary_.text_svma()));
  if (frame_bytes && *frame_bytes >= 0) code.frame_bytes = *frame_bytes;
  return code;
}

}  // namespace stackd
