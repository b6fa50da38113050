#include "daemon/resymbolize/earlier_stacks.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

namespace stackd {
namespace {

// As the dump names the frame of a signal trampoline.
constexpr std::string_view kTrampoline = "<signal handler called>";

std::optional<uint64_t> ParseHex(std::string_view text) {
  if (!text.starts_with("0x")) return std::nullopt;
  uint64_t value;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Nothing, a function, its line.
int Knowledge(const SourceLocation& location) {
  if (location.frames.empty() || location.frames.back().function.empty()) return 0;
  return location.frames.front().line == 0 ? 1 : 2;
}

// The frames of a stack with recursion unfolded, as far as an unwinder would have gone.
std::vector<const v1::Frame*> Unfolded(const v1::Stack& stack) {
  std::vector<const v1::Frame*> frames;
  for (int i = 0; i < stack.frames_size();) {
    const v1::Frame& frame = stack.frames(i);
    const int length = std::clamp(frame.repeat_count() > 0 ? frame.repeat_length() : 1, 1, stack.frames_size() - i);
    for (int64_t k = 0; k < std::max<int64_t>(frame.repeat_count(), 1) && frames.size() < kMaxFrames; ++k) {
      for (int j = 0; j < length; ++j) frames.push_back(&stack.frames(i + j));
    }
    i += length;
  }
  return frames;
}

}  // namespace

EarlierStacks::EarlierStacks(const v1::Dump& dump) {
  for (const v1::Thread& thread : dump.threads()) {
    if (!thread.has_stack() || thread.stack() < 0 || thread.stack() >= dump.stacks_size()) continue;
    Add(thread.tid(), dump.stacks(thread.stack()));
  }
}

void EarlierStacks::Add(int32_t tid, const v1::Stack& stack) {
  NativeStack native{.frames = {}, .end = static_cast<StackEnd>(stack.end())};
  SourceLocation location;
  for (const v1::Frame* frame : Unfolded(stack)) {
    const bool inlined = frame->origin() == v1::Frame::INLINED;
    if (!frame->function().empty()) location.frames.push_back({frame->function(), frame->file(), frame->line(), inlined});
    location.unnamed_reason = frame->unnamed_reason();
    if (inlined) continue;
    const auto pc_avma = ParseHex(frame->address());
    if (!pc_avma) return;
    native.frames.push_back({.pc_avma = *pc_avma,
                             .cfa_avma = 0,
                             .origin = static_cast<FrameOrigin>(frame->origin()),
                             .is_signal_trampoline = frame->function() == kTrampoline});
    auto& known = locations_[native.frames.back().lookup_avma()];
    if (known == nullptr) known = std::make_shared<const SourceLocation>(std::move(location));
    location = {};
  }
  stack_of_tid_.insert_or_assign(tid, std::move(native));
}

NativeStack EarlierStacks::Longer(int32_t tid, NativeStack unwound) const {
  const auto earlier = stack_of_tid_.find(tid);
  if (earlier == stack_of_tid_.end() || unwound.end == StackEnd::kRoot) return unwound;
  const NativeStack& stack = earlier->second;
  return stack.end == StackEnd::kRoot || stack.frames.size() > unwound.frames.size() ? stack : unwound;
}

std::shared_ptr<const SourceLocation> EarlierStacks::Better(const NativeFrame& frame,
                                                            std::shared_ptr<const SourceLocation> now) const {
  const auto earlier = locations_.find(frame.lookup_avma());
  if (earlier == locations_.end() || Knowledge(*earlier->second) <= Knowledge(*now)) return now;
  return earlier->second;
}

}  // namespace stackd
