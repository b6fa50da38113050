#include "daemon/managed/cpython/decode_trace.h"

#include <vector>

#include "daemon/managed/cpython/line_table.h"
#include "daemon/managed/cpython/unicode.h"

namespace stackd {
namespace {

constexpr uint32_t kFirstWithAnchors = 0x30b;
constexpr char kInterpreterFunction[] = "_PyEval_EvalFrameDefault";
constexpr char kNameNotWritten[] = "(a function whose name found no room)";

ManagedFrame Boundary(uint64_t anchor_avma) {
  ManagedFrame boundary;
  boundary.anchor_avma = anchor_avma;
  boundary.boundary = true;
  return boundary;
}

// Anchors the frames of an activation: the agent writes its place on the C stack after its frames, if it finds the place.
void PlaceActivation(uint64_t anchor_avma, size_t first, std::vector<ManagedFrame>* frames) {
  for (size_t i = first; i < frames->size(); ++i) (*frames)[i].anchor_avma = anchor_avma;
}

}  // namespace

std::string CpythonName(uint64_t version_hex) {
  const auto part = [&](int shift) { return std::to_string(version_hex >> shift & 0xff); };
  constexpr uint64_t kFinal = 0xf;
  const uint64_t level = version_hex >> 4 & 0xf;
  std::string name = "CPython " + part(24) + "." + part(16);
  // Before 3.11 the agent cannot know more of the version.
  if ((version_hex & 0xffff) == 0) return name;
  name += "." + part(8);
  if (level >= 0xa && level < kFinal) {
    name += (level == 0xa ? "a" : level == 0xb ? "b" : "rc") + std::to_string(version_hex & 0xf);
  }
  return name;
}

std::string WalkProblem(int32_t status) {
  switch (status) {
    case STACKD_WALK_WHOLE:
      return "";
    case STACKD_WALK_BAD_LAYOUT:
      return "a Python frame was not what it should be: the frames from there on are missing";
    case STACKD_WALK_UNREADABLE:
      return "a Python frame could not be read: the frames from there on are missing";
    case STACKD_WALK_LIMIT:
      return "the Python stack is too deep: its outermost frames are missing";
    default:
      return "its Python frames are not known to this stackd";
  }
}

void CpythonTraceDecoder::Learn(const ManagedSymbol& symbol) {
  Function& function = functions_[symbol.key];
  if (function.trace == trace_) return;
  function.trace = trace_;
  if (function.symbol == symbol) return;
  function.symbol = symbol;
  function.name = DecodeUnicode(symbol.function, symbol.table_format & 0xf);
  if (function.name.empty()) function.name = kNameNotWritten;
  function.file = DecodeUnicode(symbol.file, symbol.table_format >> 4 & 0xf);
  function.has_line = false;
}

ManagedFrame CpythonTraceDecoder::FrameOf(const ManagedTraceFrame& frame, uint32_t version) {
  ManagedFrame result;
  const auto found = functions_.find(frame.key);
  if (found == functions_.end() || found->second.trace != trace_) {
    static const SharedText kUnknown = kNameNotWritten;
    result.function = kUnknown;
    return result;
  }
  Function& function = found->second;
  if (!function.has_line || function.position != frame.position) {
    function.line = LineOf(version, function.symbol.first_line, function.symbol.table, frame.position);
    function.position = frame.position;
    function.has_line = true;
  }
  result.function = function.name;
  result.file = function.file;
  result.line = function.line;
  return result;
}

ManagedStack CpythonTraceDecoder::Decode(const ManagedTrace& trace) {
  ++trace_;
  for (const ManagedSymbol& symbol : trace.symbols) Learn(symbol);
  const auto version = static_cast<uint32_t>(trace.version >> 16);
  ManagedStack stack;
  stack.language = Language::kPython;
  if (version < kFirstWithAnchors) stack.interpreter_function = kInterpreterFunction;
  size_t first_of_activation = 0;
  // Up to 3.10 each has a boundary of its own.
  stack.frames.reserve(version < kFirstWithAnchors ? 2 * trace.frames.size() : trace.frames.size());
  for (const ManagedTraceFrame& frame : trace.frames) {
    if ((frame.flags & STACKD_MANAGED_BOUNDARY) != 0) {
      PlaceActivation(frame.anchor_avma, first_of_activation, &stack.frames);
      stack.frames.push_back(Boundary(frame.anchor_avma));
      first_of_activation = stack.frames.size();
      continue;
    }
    stack.frames.push_back(FrameOf(frame, version));
    if (version < kFirstWithAnchors) stack.frames.push_back(Boundary(0));
  }
  stack.problem = WalkProblem(trace.status);
  return stack;
}

}  // namespace stackd
