#include "daemon/resymbolize/earlier_stacks.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

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

// Turns of deep recursion that are written out before the gap that stands for all but the last of the others.
constexpr int64_t kTurnsBeforeGap = 16;

// Makes the stack that was unwound out of the stack that people read.
//
// Recursion is unfolded. More turns than an unwinder would have gone through lay in a part of the stack that was not
// copied. There a gap takes their place again, with distances from which their number is computed anew. For that, frame n
// of the whole stack has the CFA n.
class Unfolder {
 public:
  // `convert`: a NativeFrame for a frame, or nullopt for one that is none of the machine's.
  template <typename Convert>
  void Run(const v1::Stack& stack, Convert convert) {
    native_.end = static_cast<StackEnd>(stack.end());
    native_.omitted_bytes = static_cast<uint64_t>(std::max<int64_t>(stack.omitted_bytes(), 0));
    bool gap_made = false;
    for (int i = 0; i < stack.frames_size();) {
      if (!gap_made && i >= stack.omitted_before()) native_.omitted_before = native_.frames.size();
      gap_made = gap_made || i >= stack.omitted_before();
      const v1::Frame& first = stack.frames(i);
      const int length = std::clamp(first.repeat_count() > 0 ? first.repeat_length() : 1, 1, stack.frames_size() - i);
      std::vector<NativeFrame> turn;
      for (int j = i; j < i + length; ++j) {
        if (auto frame = convert(stack.frames(j))) turn.push_back(*frame);
      }
      AddTurns(turn, std::max<int64_t>(first.repeat_count(), 1), &gap_made);
      i += length;
    }
  }

  NativeStack& native() { return native_; }
  int64_t depth() const { return depth_; }

 private:
  void AddTurns(const std::vector<NativeFrame>& turn, int64_t turns, bool* gap_made) {
    const int64_t frames = std::ssize(turn);
    if (frames == 0) return;
    const int64_t room = kMaxFrames - std::ssize(native_.frames);
    const bool all = turns <= std::max<int64_t>(room / frames, 1);
    const int64_t written = all ? turns : std::clamp<int64_t>(room / frames, 0, kTurnsBeforeGap);
    for (int64_t k = 0; k < written; ++k) Add(turn);
    if (all) return;
    native_.omitted_before = native_.frames.size();
    native_.omitted_bytes = std::max<uint64_t>(native_.omitted_bytes, 1);
    *gap_made = true;
    const int64_t skipped = std::min(turns - written - 1, (INT64_MAX / 2 - depth_) / frames);
    depth_ += std::max<int64_t>(skipped, 0) * frames;
    Add(turn);
  }

  void Add(const std::vector<NativeFrame>& turn) {
    for (NativeFrame frame : turn) {
      frame.cfa_avma = static_cast<uint64_t>(++depth_);
      native_.frames.push_back(frame);
    }
  }

  NativeStack native_{};
  int64_t depth_ = 0;
};

}  // namespace

EarlierStacks::EarlierStacks(const v1::Dump& dump) {
  for (const v1::Thread& thread : dump.threads()) {
    if (!thread.has_stack() || thread.stack() < 0 || thread.stack() >= dump.stacks_size()) continue;
    Add(thread.tid(), dump.stacks(thread.stack()));
  }
}

void EarlierStacks::Add(int32_t tid, const v1::Stack& stack) {
  SourceLocation location;
  Unfolder unfolder;
  unfolder.Run(stack, [&](const v1::Frame& frame) -> std::optional<NativeFrame> {
    // What runtimes told is in the raw copy.
    if (frame.origin() == v1::Frame::RUNTIME || frame.origin() == v1::Frame::RUNTIME_UNPLACED) return std::nullopt;
    const bool inlined = frame.origin() == v1::Frame::INLINED;
    if (!frame.function().empty())
      location.frames.push_back(
          {frame.function(), frame.file(), frame.line(), inlined, static_cast<Language>(frame.language())});
    location.unnamed_reason = frame.unnamed_reason();
    const auto pc_avma = ParseHex(frame.address());
    if (inlined || !pc_avma) return std::nullopt;
    const NativeFrame native{.pc_avma = *pc_avma,
                             .cfa_avma = 0,
                             .origin = static_cast<FrameOrigin>(frame.origin()),
                             .is_signal_trampoline = frame.function() == kTrampoline};
    auto& known = locations_[native.lookup_avma()];
    if (known == nullptr) known = std::make_shared<const SourceLocation>(std::move(location));
    location = {};
    return native;
  });
  stack_of_tid_.insert_or_assign(tid, Known{std::move(unfolder.native()), unfolder.depth()});
}

NativeStack EarlierStacks::Longer(int32_t tid, NativeStack unwound) const {
  const auto earlier = stack_of_tid_.find(tid);
  if (earlier == stack_of_tid_.end() || unwound.end == StackEnd::kRoot) return unwound;
  const auto& [stack, depth] = earlier->second;
  return stack.end == StackEnd::kRoot || depth > std::ssize(unwound.frames) ? stack : unwound;
}

std::shared_ptr<const SourceLocation> EarlierStacks::Better(const NativeFrame& frame,
                                                            std::shared_ptr<const SourceLocation> now) const {
  const auto earlier = locations_.find(frame.lookup_avma());
  if (earlier == locations_.end() || Knowledge(*earlier->second) <= Knowledge(*now)) return now;
  return earlier->second;
}

}  // namespace stackd
