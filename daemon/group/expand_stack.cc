#include "daemon/group/expand_stack.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "daemon/base/text.h"

namespace stackd {
namespace {

// Template names of a few kilobytes are real; a hostile symbol table has no right to more.
constexpr size_t kMaxNameBytes = 4096;

std::string Name(std::string_view text) {
  if (text.size() <= kMaxNameBytes) return ToValidUtf8(text);
  return ToValidUtf8(text.substr(0, kMaxNameBytes)) + "…";
}

// What all frames at one program counter have in common.
v1::Frame FrameAt(const NativeFrame& native, const AddressMap& map) {
  v1::Frame frame;
  const Mapping* mapping = map.Find(native.lookup_avma());
  frame.set_module(ModuleName(mapping));
  frame.set_address(Hex(native.pc_avma));
  if (mapping == nullptr) return frame;
  if (mapping->module != nullptr) {
    frame.set_module_offset(Hex(native.pc_avma - mapping->bias));
  } else if (mapping->path.starts_with('/')) {
    // Without the file its segments are not known; the offset in the file is what is left.
    frame.set_module_offset(Hex(native.pc_avma - mapping->start_avma + mapping->file_offset));
  }
  return frame;
}

void AddNamed(const SourceFrame& source, v1::Frame* frame) {
  frame->set_function(Name(source.function));
  frame->set_file(Name(source.file));
  frame->set_line(source.line);
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

v1::Stack ExpandStack(const NamedStack& stack, const AddressMap& map) {
  v1::Stack expanded;
  expanded.set_end(static_cast<v1::Stack::End>(stack.native.end));
  for (size_t i = 0; i < stack.native.frames.size(); ++i) {
    const NativeFrame& native = stack.native.frames[i];
    const SourceLocation& location = *stack.locations[i];
    v1::Frame at = FrameAt(native, map);
    const size_t count = std::max<size_t>(location.frames.size(), 1);
    for (size_t k = 0; k < count; ++k) {
      v1::Frame* frame = expanded.add_frames();
      const bool is_function_itself = k + 1 == count;
      if (is_function_itself) {
        *frame = std::move(at);
      } else {
        *frame = at;
      }
      if (k < location.frames.size()) AddNamed(location.frames[k], frame);
      frame->set_origin(is_function_itself ? static_cast<v1::Frame::Origin>(native.origin) : v1::Frame::INLINED);
      if (!location.unnamed_reason.empty() && (frame->function().empty() || frame->line() == 0)) {
        frame->set_unnamed_reason(Name(location.unnamed_reason));
      }
    }
  }
  return expanded;
}

}  // namespace stackd
