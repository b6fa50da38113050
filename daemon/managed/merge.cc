#include "daemon/managed/merge.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "daemon/managed/frame_finder.h"

namespace stackd {
namespace {

// Frames that one native call of an interpreter ran.
using Activation = std::span<const ManagedFrame>;

// An activation ends where native code called the runtime. One may be empty: the interpreter has just been entered.
std::vector<Activation> Activations(std::span<const ManagedFrame> frames) {
  std::vector<Activation> activations;
  while (!frames.empty()) {
    const auto boundary = std::ranges::find(frames, true, &ManagedFrame::boundary);
    const auto count = static_cast<size_t>(boundary - frames.begin());
    activations.push_back(frames.first(count));
    frames = frames.subspan(boundary == frames.end() ? count : count + 1);
  }
  return activations;
}

class Merger {
 public:
  Merger(uint64_t sp_avma, const NamedStack& stack) : stack_(stack), finder_(stack.native, sp_avma) {}

  void Add(const ManagedStack& managed) {
    language_ = managed.language;
    const bool anchored =
        std::ranges::any_of(managed.frames, [](const ManagedFrame& frame) { return frame.anchor_avma != 0; });
    if (anchored) {
      PlaceByAnchors(managed.frames);
    } else if (!managed.interpreter_function.empty()) {
      CountOff(Activations(managed.frames), managed);
    } else if (stack_.native.end == StackEnd::kRoot) {
      PutUnplaced(managed.frames);
    } else {
      // The native stack is missing, or was not unwound to its end: these frames ran beyond it.
      Put({frame_count(), false}, managed.frames);
    }
  }

  std::vector<RuntimeCalls> Take() {
    std::vector<RuntimeCalls> result;
    for (auto& [native_frame, calls] : calls_) result.push_back(std::move(calls));
    if (!unplaced_.empty()) result.push_back({frame_count(), std::move(unplaced_), false});
    return result;
  }

 private:
  size_t frame_count() const { return stack_.native.frames.size(); }

  void PlaceByAnchors(std::span<const ManagedFrame> frames) {
    // Frames before the first anchor are in no older native frame than it.
    const auto first = std::ranges::find_if(frames, [](const ManagedFrame& frame) { return frame.anchor_avma != 0; });
    StackPlace place = PlaceOf(first->anchor_avma);
    for (const ManagedFrame& frame : frames) {
      if (frame.anchor_avma != 0) place = PlaceOf(frame.anchor_avma);
      // Nothing runs beyond a thread's first function.
      const bool beyond_root = place.native_frame == frame_count() && stack_.native.end == StackEnd::kRoot;
      if (beyond_root) {
        PutUnplaced({&frame, 1});
      } else {
        Put(place, {&frame, 1});
      }
    }
  }

  StackPlace PlaceOf(uint64_t anchor_avma) {
    const StackPlace place = finder_.Find(anchor_avma);
    if (place.native_frame < frame_count() || frame_count() == 0) return place;
    // The last frame is code made at run time that could not be unwound: the first anchor beyond is its own.
    const size_t last = frame_count() - 1;
    const bool ends_in_code_without_file = stack_.native.frames[last].cfa_avma == 0 &&
                                           stack_.native.end != StackEnd::kRoot && stack_.locations[last]->frames.empty();
    if (!ends_in_code_without_file) return place;
    if (anchor_in_last_ == 0) anchor_in_last_ = anchor_avma;
    return anchor_avma == anchor_in_last_ ? StackPlace{last, true} : place;
  }

  std::vector<size_t> CallsOf(std::string_view interpreter_function) const {
    std::vector<size_t> calls;
    for (size_t i = 0; i < frame_count(); ++i) {
      const bool is_call = std::ranges::any_of(stack_.locations[i]->frames, [&](const SourceFrame& frame) {
        return frame.function.starts_with(interpreter_function);
      });
      if (is_call) calls.push_back(i);
    }
    return calls;
  }

  void CountOff(std::span<const Activation> activations, const ManagedStack& managed) {
    const NativeStack& native = stack_.native;
    const std::vector<size_t> calls = CallsOf(managed.interpreter_function);
    const bool has_gap = native.omitted_bytes > 0;
    const bool both_to_the_end = native.end == StackEnd::kRoot && managed.problem.empty();
    const size_t before_gap =
        has_gap ? static_cast<size_t>(std::ranges::lower_bound(calls, native.omitted_before) - calls.begin())
                : calls.size();
    if (has_gap && both_to_the_end && activations.size() >= calls.size()) {
      const size_t behind_gap = calls.size() - before_gap;
      PutEach(activations.first(before_gap), std::span(calls).first(before_gap));
      for (const Activation& activation : activations.subspan(before_gap, activations.size() - calls.size())) {
        Put({native.omitted_before, false}, activation);
      }
      PutEach(activations.last(behind_gap), std::span(calls).last(behind_gap));
      return;
    }
    // A call more than the runtime knows of has just begun.
    const bool just_called = !has_gap && both_to_the_end && calls.size() > activations.size();
    const size_t first_call = just_called ? calls.size() - activations.size() : 0;
    const size_t placed = std::min(activations.size(), before_gap - first_call);
    PutEach(activations.first(placed), std::span(calls).subspan(first_call, placed));
    for (const Activation& activation : activations.subspan(placed)) {
      // The native stack was not unwound to its end: the rest ran beyond it.
      if (native.end == StackEnd::kRoot || has_gap) {
        PutUnplaced(activation);
      } else {
        Put({frame_count(), false}, activation);
      }
    }
  }

  void PutEach(std::span<const Activation> activations, std::span<const size_t> native_frames) {
    for (size_t i = 0; i < activations.size(); ++i) Put({native_frames[i], true}, activations[i]);
  }

  void Put(const StackPlace& place, Activation frames) {
    for (const ManagedFrame& frame : frames) {
      if (frame.boundary) continue;
      RuntimeCalls& calls = calls_[place.native_frame];
      calls.native_frame = place.native_frame;
      calls.replaces = calls.replaces || place.inside;
      calls.frames.push_back(Convert(frame));
    }
  }

  void PutUnplaced(std::span<const ManagedFrame> frames) {
    for (const ManagedFrame& frame : frames) {
      if (frame.boundary) continue;
      unplaced_.push_back(Convert(frame));
      unplaced_.back().unplaced = true;
    }
  }

  RuntimeFrame Convert(const ManagedFrame& frame) const {
    return {.function = frame.function,
            .file = frame.file,
            .line = frame.line,
            .language = language_,
            .pc_avma = frame.pc_avma};
  }

  const NamedStack& stack_;
  const FrameFinder finder_;
  Language language_ = Language::kUnknown;
  uint64_t anchor_in_last_ = 0;
  std::map<size_t, RuntimeCalls> calls_;
  std::vector<RuntimeFrame> unplaced_;
};

// What a frame adds to a key, about.
constexpr size_t kFrameKeyBytes = 32;

template <typename T>
void AddNumber(T value, std::string* key) {
  key->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The length goes first, so that no text can imitate the border between two.
void AddText(std::string_view text, std::string* key) {
  AddNumber(text.size(), key);
  key->append(text);
}

}  // namespace

void MergeManaged(const std::vector<ManagedStack>& managed, uint64_t sp_avma, NamedStack* stack) {
  Merger merger(sp_avma, *stack);
  for (const ManagedStack& one : managed) merger.Add(one);
  stack->runtime_calls = merger.Take();
}

uint32_t ManagedKeys::NumberOf(const SharedText& text) {
  const auto [known, is_new] = numbers_by_identity_.try_emplace(text.identity(), 0);
  if (is_new) known->second = numbers_.try_emplace(text.str(), static_cast<uint32_t>(numbers_.size())).first->second;
  return known->second;
}

std::string ManagedKeys::Of(const std::vector<ManagedStack>& managed, uint64_t sp_avma, const NativeStack& native) {
  std::string key;
  if (managed.empty()) return key;
  // Not made for runtimes that give no anchors: it sorts the native frames.
  std::optional<FrameFinder> finder;
  const auto place_of = [&](uint64_t anchor_avma) {
    if (anchor_avma == 0) return StackPlace{SIZE_MAX, false};
    if (!finder) finder.emplace(native, sp_avma);
    return finder->Find(anchor_avma);
  };
  for (const ManagedStack& stack : managed) {
    AddNumber(stack.language, &key);
    AddText(stack.interpreter_function, &key);
    AddNumber(stack.problem.empty(), &key);
    AddNumber(stack.frames.size(), &key);
    key.reserve(key.size() + stack.frames.size() * kFrameKeyBytes);
    for (const ManagedFrame& frame : stack.frames) {
      AddNumber(NumberOf(frame.function), &key);
      AddNumber(NumberOf(frame.file), &key);
      AddNumber(frame.line, &key);
      AddNumber(frame.pc_avma, &key);
      AddNumber(frame.boundary, &key);
      // Where it stands, not where its stack lies in memory.
      const StackPlace place = place_of(frame.anchor_avma);
      AddNumber(place.native_frame, &key);
      AddNumber(place.inside, &key);
    }
  }
  return key;
}

}  // namespace stackd
