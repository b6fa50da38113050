#include "daemon/assemble/expand_stack.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "daemon/base/text.h"
#include "daemon/fingerprint/fingerprint.h"
#include "daemon/fingerprint/recursion.h"

namespace stackd {
namespace {

// Template names of a few kilobytes are real; a hostile symbol table has no right to more.
constexpr size_t kMaxNameBytes = 4096;

std::string Name(std::string_view text) {
  if (text.size() <= kMaxNameBytes) return ToValidUtf8(text);
  return ToValidUtf8(text.substr(0, kMaxNameBytes)) + "…";
}

// What all frames at one program counter have in common.
struct CodePlace {
  std::string module;
  std::string address;
  std::string module_offset;
};

CodePlace PlaceOf(uint64_t pc_avma, const Mapping* mapping) {
  CodePlace place{ModuleName(mapping), Hex(pc_avma), ""};
  if (mapping == nullptr) return place;
  if (mapping->module != nullptr) {
    place.module_offset = Hex(pc_avma - mapping->bias);
  } else if (mapping->path.starts_with('/')) {
    // Without the file its segments are not known; the offset in the file is what is left.
    place.module_offset = Hex(pc_avma - mapping->start_avma + mapping->file_offset);
  }
  return place;
}

void AddNamed(const SourceFrame& source, v1::Frame* frame) {
  frame->set_function(Name(source.function));
  frame->set_file(Name(source.file));
  frame->set_line(source.line);
  frame->set_language(static_cast<v1::Language>(source.language));
}

// Equal for frames that look the same.
std::string ContentOf(const RuntimeFrame& frame) {
  std::string content = std::to_string(frame.function.size()) + "," + std::to_string(frame.line) + "," +
                        std::to_string(static_cast<int>(frame.language)) + "," + std::to_string(frame.pc_avma) +
                        (frame.unplaced ? ",?" : ",");
  return content.append(frame.function).append(frame.file);
}

}  // namespace

std::string Hex(uint64_t value) {
  char text[2 + 16] = {'0', 'x'};
  const auto end = std::to_chars(text + 2, std::end(text), value, 16).ptr;
  return {text, end};
}

std::string ModuleName(const Mapping* mapping) {
  if (mapping == nullptr || mapping->path.empty()) return "[anon]";
  std::string_view path = mapping->path;
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
  // "[anon:name]" may hold any character, slashes too.
  if (path.starts_with('/')) path.remove_prefix(path.rfind('/') + 1);
  return Name(path);
}

StackExpander::Range StackExpander::FramesAt(const NativeFrame& native, const SourceLocation& location, bool replaced) {
  const Range next{frames_.size(), frames_.size() + std::max<size_t>(location.frames.size(), 1)};
  const auto [entry, is_new] = ranges_.try_emplace({native.pc_avma, native.origin, &location, replaced}, next);
  if (!is_new) return entry->second;
  const Mapping* mapping = map_.Find(native.lookup_avma());
  if (mapping != nullptr && (mappings_.empty() || mappings_.back() != mapping)) mappings_.push_back(mapping);
  const CodePlace place = PlaceOf(native.pc_avma, mapping);
  const size_t count = next.end - next.begin;
  for (size_t i = 0; i < count; ++i) {
    auto* frame = google::protobuf::Arena::CreateMessage<v1::Frame>(arena_);
    frame->set_module(place.module);
    frame->set_address(place.address);
    frame->set_module_offset(place.module_offset);
    if (native.is_signal_trampoline) {
      frame->set_function("<signal handler called>");  // as gdb says; C libraries give it no name, or different ones
    } else if (i < location.frames.size()) {
      AddNamed(location.frames[i], frame);
    }
    frame->set_replaced(replaced);
    const bool is_function_itself = i + 1 == count;
    frame->set_origin(is_function_itself ? static_cast<v1::Frame::Origin>(native.origin) : v1::Frame::INLINED);
    if (!native.is_signal_trampoline && !location.unnamed_reason.empty() &&
        (frame->function().empty() || frame->line() == 0)) {
      frame->set_unnamed_reason(Name(location.unnamed_reason));
    }
    frames_.push_back(frame);
    hashes_.push_back(HashOfFrame(*frame));
  }
  return next;
}

StackExpander::Range StackExpander::FrameOf(const RuntimeFrame& runtime) {
  const Range next{frames_.size(), frames_.size() + 1};
  const auto [entry, is_new] = runtime_ranges_.try_emplace(ContentOf(runtime), next);
  if (!is_new) return entry->second;
  auto* frame = google::protobuf::Arena::CreateMessage<v1::Frame>(arena_);
  frame->set_function(Name(runtime.function));
  frame->set_file(Name(runtime.file));
  frame->set_line(runtime.line);
  frame->set_language(static_cast<v1::Language>(runtime.language));
  frame->set_origin(runtime.unplaced ? v1::Frame::RUNTIME_UNPLACED : v1::Frame::RUNTIME);
  if (runtime.pc_avma != 0) frame->set_address(Hex(runtime.pc_avma));
  frames_.push_back(frame);
  hashes_.push_back(HashOfFrame(*frame));
  return next;
}

// Identifies the functions of one row, for recursion.
XXH128_hash_t StackExpander::KeyOf(const Range& range) const {
  std::string key = frames_[range.begin]->module();
  for (size_t i = range.begin; i < range.end; ++i) {
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, hashes_[i]);
    key.append(reinterpret_cast<const char*>(bytes.digest), sizeof(bytes.digest));
  }
  return XXH3_128bits(key.data(), key.size());
}

std::vector<StackExpander::Row> StackExpander::RowsOf(const NamedStack& stack, size_t* gap_row) {
  const NativeStack& native = stack.native;
  std::vector<Row> rows;
  rows.reserve(native.frames.size());
  auto calls = stack.runtime_calls.begin();
  for (size_t i = 0; i <= native.frames.size(); ++i) {
    if (i == native.omitted_before) *gap_row = rows.size();
    bool replaced = false;
    for (; calls != stack.runtime_calls.end() && calls->native_frame <= i; ++calls) {
      // A runtime's functions have no frames in memory of their own: those of one native frame lie in one place.
      const NativeFrame where =
          native.frames.empty() ? NativeFrame{} : native.frames[std::min(i, native.frames.size() - 1)];
      for (const RuntimeFrame& frame : calls->frames) rows.push_back({FrameOf(frame), where});
      replaced = replaced || calls->replaces;
    }
    if (i == native.frames.size()) break;
    rows.push_back({FramesAt(native.frames[i], *stack.locations[i], replaced), native.frames[i]});
  }
  return rows;
}

std::vector<Recursion> StackExpander::RecursionIn(const std::vector<Row>& rows, const NativeStack& native,
                                                  size_t gap_row) const {
  std::vector<XXH128_hash_t> keys;
  NativeStack shown{.frames = {}, .end = native.end, .omitted_bytes = native.omitted_bytes, .omitted_before = gap_row};
  for (const Row& row : rows) {
    keys.push_back(KeyOf(row.frames));
    shown.frames.push_back(row.native);
  }
  return FindRecursion(keys, shown);
}

// Whether the first turn of a runtime's functions is at other lines than the next ones, which are equal. Then it is not in
// the call that goes deeper, but in the rest of its function. (A runtime's frames have no addresses that would tell.)
bool StackExpander::InnermostTurnDiffers(const std::vector<Row>& rows, const Recursion& recursion) const {
  const auto is_of_runtime = [&](const Row& row) {
    const v1::Frame::Origin origin = frames_[row.frames.begin]->origin();
    return origin == v1::Frame::RUNTIME || origin == v1::Frame::RUNTIME_UNPLACED;
  };
  if (std::none_of(rows.begin() + static_cast<ptrdiff_t>(recursion.begin),
                   rows.begin() + static_cast<ptrdiff_t>(recursion.begin + recursion.period), is_of_runtime)) {
    return false;
  }
  const auto equal = [&](size_t turn, size_t other) {
    for (size_t i = recursion.begin; i < recursion.begin + recursion.period; ++i) {
      if (rows[i + turn * recursion.period].frames.begin != rows[i + other * recursion.period].frames.begin) return false;
    }
    return true;
  };
  return recursion.end - recursion.begin >= 3 * recursion.period && !equal(0, 1) && equal(1, 2);
}

std::string StackExpander::Expand(const std::vector<RuntimeFrame>& frames, bool fold, v1::Stack* expanded) {
  NamedStack stack{.native = {.frames = {}, .end = StackEnd::kRoot}, .locations = {}};
  stack.runtime_calls.push_back({.native_frame = 0, .frames = frames});
  return Expand(stack, fold, expanded);
}

std::string StackExpander::Expand(const NamedStack& stack, bool fold, v1::Stack* expanded) {
  const NativeStack& native = stack.native;
  // Where nothing of a thread was left but what its runtime said, that goes to the end.
  const bool is_said = native.end == StackEnd{} && native.frames.empty() && !stack.runtime_calls.empty();
  expanded->set_end(static_cast<v1::Stack::End>(is_said ? StackEnd::kRoot : native.end));
  size_t gap_row = 0;
  const std::vector<Row> rows = RowsOf(stack, &gap_row);
  expanded->mutable_frames()->Reserve(static_cast<int>(rows.size()));
  std::vector<Recursion> recursions;
  if (fold) recursions = RecursionIn(rows, native, gap_row);
  std::vector<XXH128_hash_t> hashes;
  hashes.reserve(rows.size());
  // Shared: the owner of the arena owns the frame.
  const auto add = [&](v1::Frame* frame, size_t k) {
    expanded->mutable_frames()->UnsafeArenaAddAllocated(frame);
    if (!frame->replaced()) hashes.push_back(hashes_[k]);
  };
  auto recursion = recursions.begin();
  bool gap_shown = native.omitted_bytes == 0;
  for (size_t i = 0; i < rows.size();) {
    if (!gap_shown && i >= gap_row) {
      expanded->set_omitted_bytes(static_cast<int64_t>(native.omitted_bytes));
      expanded->set_omitted_before(expanded->frames_size());
      gap_shown = true;
    }
    if (recursion != recursions.end() && i == recursion->begin && InnermostTurnDiffers(rows, *recursion)) {
      recursion->begin += recursion->period;
      --recursion->turns;
    }
    const bool repeats = recursion != recursions.end() && i == recursion->begin;
    const size_t end = repeats ? i + recursion->period : i + 1;
    if (repeats) {
      // This one frame is of this stack alone.
      auto* counted = google::protobuf::Arena::CreateMessage<v1::Frame>(arena_);
      *counted = *frames_[rows[i].frames.begin];
      counted->set_repeat_count(recursion->turns);
      int32_t length = 0;
      for (size_t n = i; n < end; ++n) length += static_cast<int32_t>(rows[n].frames.end - rows[n].frames.begin);
      counted->set_repeat_length(length);
      add(counted, rows[i].frames.begin);
    }
    for (size_t n = i; n < end; ++n) {
      for (size_t k = rows[n].frames.begin + (repeats && n == i); k < rows[n].frames.end; ++k) add(frames_[k], k);
    }
    i = repeats ? (recursion++)->end : end;
  }
  return FingerprintOf(hashes);
}

}  // namespace stackd
