#include "daemon/managed/cpython/decode_trace.h"

#include <map>
#include <utility>
#include <vector>

#include "daemon/managed/cpython/line_table.h"
#include "daemon/managed/cpython/unicode.h"

namespace stackd {
namespace {

constexpr uint32_t kFirstWithAnchors = 0x30b;
constexpr char kInterpreterFunction[] = "_PyEval_EvalFrameDefault";
constexpr char kNameNotWritten[] = "(a function whose name found no room)";

struct Names {
  std::string function;
  std::string file;
  const ManagedSymbol* symbol;
};

std::map<uint64_t, Names> NamesOf(const ManagedTrace& trace) {
  std::map<uint64_t, Names> names;
  for (const ManagedSymbol& symbol : trace.symbols) {
    Names& one = names[symbol.key];
    if (one.symbol != nullptr) continue;
    one.function = DecodeUnicode(symbol.function, symbol.table_format & 0xf);
    one.file = DecodeUnicode(symbol.file, symbol.table_format >> 4 & 0xf);
    one.symbol = &symbol;
  }
  return names;
}

ManagedFrame Decode(const ManagedTraceFrame& frame, uint32_t version, const std::map<uint64_t, Names>& names) {
  ManagedFrame result;
  const auto found = names.find(frame.key);
  if (found == names.end()) {
    result.function = kNameNotWritten;
    return result;
  }
  const Names& known = found->second;
  result.function = known.function.empty() ? kNameNotWritten : known.function;
  result.file = known.file;
  result.line = LineOf(version, known.symbol->first_line, known.symbol->table, frame.position);
  return result;
}

ManagedFrame Boundary(uint64_t anchor_avma) {
  ManagedFrame boundary;
  boundary.anchor_avma = anchor_avma;
  boundary.boundary = true;
  return boundary;
}

// The agent writes the place of an activation on the C stack behind its frames, where it finds it.
void PlaceActivation(uint64_t anchor_avma, size_t first, std::vector<ManagedFrame>* frames) {
  for (size_t i = first; i < frames->size(); ++i) (*frames)[i].anchor_avma = anchor_avma;
}

}  // namespace

std::string CpythonName(uint64_t version_hex) {
  const auto part = [&](int shift) { return std::to_string(version_hex >> shift & 0xff); };
  constexpr uint64_t kFinal = 0xf;
  const uint64_t level = version_hex >> 4 & 0xf;
  std::string name = "CPython " + part(24) + "." + part(16);
  // Of versions before 3.11 the agent cannot know more.
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

ManagedStack DecodeCpythonTrace(const ManagedTrace& trace) {
  const auto version = static_cast<uint32_t>(trace.version >> 16);
  const std::map<uint64_t, Names> names = NamesOf(trace);
  ManagedStack stack;
  stack.language = Language::kPython;
  if (version < kFirstWithAnchors) stack.interpreter_function = kInterpreterFunction;
  size_t first_of_activation = 0;
  // Up to 3.10 each has a boundary of its own.
  stack.frames.reserve(version < kFirstWithAnchors ? 2 * trace.frames.size() : trace.frames.size());
  const ManagedTraceFrame* before = nullptr;
  size_t decoded_before = 0;
  for (const ManagedTraceFrame& frame : trace.frames) {
    if ((frame.flags & STACKD_MANAGED_BOUNDARY) != 0) {
      PlaceActivation(frame.anchor_avma, first_of_activation, &stack.frames);
      stack.frames.push_back(Boundary(frame.anchor_avma));
      first_of_activation = stack.frames.size();
      continue;
    }
    // A function that recurses is at the same place again and again, and to read a table of lines takes longer than a copy.
    const bool is_again = before != nullptr && before->key == frame.key && before->position == frame.position;
    stack.frames.push_back(is_again ? ManagedFrame(stack.frames[decoded_before]) : Decode(frame, version, names));
    stack.frames.back().anchor_avma = 0;
    decoded_before = stack.frames.size() - 1;
    before = &frame;
    if (version < kFirstWithAnchors) stack.frames.push_back(Boundary(0));
  }
  stack.problem = WalkProblem(trace.status);
  return stack;
}

}  // namespace stackd
