#include "daemon/managed/v8/v8_reader.h"

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/capture/managed_trace.h"
#include "daemon/managed/v8/script_lines.h"
#include "stackd/v8_trace.h"

namespace stackd {
namespace {

// What a place in a script is: half of a position that says so.
std::optional<uint32_t> PlaceInScript(int64_t position) {
  if (position < 0 || (position & STACKD_V8_CODE) != 0 || position / 2 > UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(position / 2);
}

std::optional<uint64_t> CodeAddress(int64_t position) {
  const auto word = static_cast<uint64_t>(position);
  if (position == STACKD_V8_NO_POSITION || (word & STACKD_V8_CODE) == 0) return std::nullopt;
  return word >> 1;
}

std::optional<stackd_v8_script> ScriptOf(const ManagedSymbol& symbol) {
  stackd_v8_script script;
  if (symbol.table.size() != sizeof(script)) return std::nullopt;
  std::memcpy(&script, symbol.table.data(), sizeof(script));
  return script;
}

using Symbols = std::map<uint64_t, const ManagedSymbol*>;

Symbols SymbolsOf(const ManagedTrace& trace) {
  Symbols symbols;
  for (const ManagedSymbol& symbol : trace.symbols) symbols.emplace(symbol.key, &symbol);
  return symbols;
}

void WantLines(const ManagedTrace& trace, ScriptLines* lines) {
  const Symbols symbols = SymbolsOf(trace);
  for (const ManagedTraceFrame& frame : trace.frames) {
    const auto place = PlaceInScript(frame.position);
    const auto symbol = symbols.find(frame.key);
    if (!place.has_value() || symbol == symbols.end()) continue;
    if (const auto script = ScriptOf(*symbol->second)) lines->Want(*script, *place);
  }
}

void AppendUtf8(uint32_t character, std::string* text) {
  if (character < 0x80) {
    text->push_back(static_cast<char>(character));
    return;
  }
  const int more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
  constexpr uint32_t kFirst[] = {0, 0xc0, 0xe0, 0xf0};
  text->push_back(static_cast<char>(kFirst[more] | character >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) text->push_back(static_cast<char>(0x80 | (character >> (6 * i) & 0x3f)));
}

std::string FromUtf16(std::string_view bytes) {
  constexpr uint32_t kReplacement = 0xfffd;
  std::string text;
  const auto unit = [bytes](size_t i) -> uint32_t {
    if (i + 1 >= bytes.size()) return 0;
    return static_cast<uint8_t>(bytes[i]) | uint32_t{static_cast<uint8_t>(bytes[i + 1])} << 8;
  };
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const uint32_t first = unit(i);
    const uint32_t second = unit(i + 2);
    if (first >= 0xd800 && first < 0xdc00 && second >= 0xdc00 && second < 0xe000) {
      AppendUtf8(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), &text);
      i += 2;
    } else {
      AppendUtf8(first >= 0xd800 && first < 0xe000 ? kReplacement : first, &text);
    }
  }
  return text;
}

std::string Text(std::string_view bytes, uint32_t written) {
  std::string text;
  switch (written & 3) {
    case STACKD_V8_LATIN1:
      for (const char byte : bytes) AppendUtf8(static_cast<uint8_t>(byte), &text);
      return text;
    case STACKD_V8_UTF16:
      return FromUtf16(bytes);
    default:
      return std::string(bytes);
  }
}

// Modules have URLs where other scripts have paths.
std::string FileName(std::string_view name) {
  constexpr std::string_view kPathUrl = "file:///";
  if (name.starts_with(kPathUrl)) name.remove_prefix(kPathUrl.size() - 1);
  return std::string(name);
}

ManagedFrame Describe(const ManagedTraceFrame& frame, const Symbols& symbols, const ScriptLines& lines) {
  ManagedFrame described;
  described.anchor_avma = frame.anchor_avma;
  described.boundary = (frame.flags & STACKD_MANAGED_BOUNDARY) != 0;
  described.function = "(anonymous)";
  described.pc_avma = CodeAddress(frame.position).value_or(0);
  const auto it = symbols.find(frame.key);
  if (it == symbols.end()) {
    if (!described.boundary) described.function = "(name not captured)";
    return described;
  }
  const ManagedSymbol& symbol = *it->second;
  if (!symbol.function.empty()) described.function = Text(symbol.function, symbol.table_format);
  described.file = FileName(Text(symbol.file, symbol.table_format >> 2));
  const auto place = PlaceInScript(frame.position);
  const auto script = ScriptOf(symbol);
  if (place.has_value() && script.has_value()) described.line = lines.LineOf(*script, *place);
  return described;
}

std::string_view ProblemOf(int32_t status) {
  switch (status) {
    case STACKD_WALK_WHOLE:
      return "";
    case STACKD_WALK_UNKNOWN_VERSION:
      return "stackd does not know this version: native frames only";
    case STACKD_WALK_UNREADABLE:
      return "its frames could not all be read";
    case STACKD_WALK_LIMIT:
      return "its stack is deeper than what is copied: the innermost frames are shown";
    default:
      return "the thread was interrupted where its frames do not hang together";
  }
}

std::string VersionText(uint64_t version) {
  return "V8 " + std::to_string(version >> 48) + "." + std::to_string(version >> 32 & 0xffff) + "." +
         std::to_string(version >> 16 & 0xffff) + "." + std::to_string(version & 0xffff);
}

std::vector<const ManagedTrace*> TracesOf(const ThreadCapture& thread) {
  std::vector<const ManagedTrace*> traces;
  for (const ManagedTrace& trace : thread.traces) {
    if (trace.runtime == STACKD_RUNTIME_V8) traces.push_back(&trace);
  }
  return traces;
}

// A walk that did not come to its end says so in a trace of its own, behind the frames.
ManagedStack StackOf(const std::vector<const ManagedTrace*>& traces, const ScriptLines& lines) {
  ManagedStack stack;
  stack.language = Language::kJavascript;
  for (const ManagedTrace* trace : traces) {
    const Symbols symbols = SymbolsOf(*trace);
    for (const ManagedTraceFrame& frame : trace->frames) {
      ManagedFrame described = Describe(frame, symbols, lines);
      const bool is_same_frame =
          frame.anchor_avma != 0 && &frame != &trace->frames.back() && (&frame + 1)->anchor_avma == frame.anchor_avma;
      described.inlined = is_same_frame;
      stack.frames.push_back(std::move(described));
    }
    if (const auto problem = ProblemOf(trace->status); !problem.empty()) stack.problem = problem;
  }
  return stack;
}

}  // namespace

void V8Reader::Read(const RuntimeInput& input, ManagedFacts* facts) {
  ScriptLines lines;
  std::map<uint64_t, std::string> versions;  // and why nothing is known of it
  for (const ThreadCapture& thread : input.capture.threads) {
    for (const ManagedTrace* trace : TracesOf(thread)) {
      WantLines(*trace, &lines);
      std::string& problem = versions[trace->version];
      if (trace->status == STACKD_WALK_UNKNOWN_VERSION) problem = ProblemOf(trace->status);
      if (trace->status == STACKD_WALK_UNREADABLE && trace->instance_avma == 0) {
        problem =
            "threads of it may not read their own memory (a seccomp filter forbids process_vm_readv): their stacks show "
            "native functions alone";
      }
    }
  }
  if (versions.empty()) return;
  if (input.memory != nullptr) lines.Read(*input.memory, input.deadline_ns);
  size_t left_out = 0;
  for (const ThreadCapture& thread : input.capture.threads) {
    const auto traces = TracesOf(thread);
    if (traces.empty()) continue;
    if (MonotonicNs() >= input.deadline_ns) {
      ++left_out;
      continue;
    }
    ManagedStack stack = StackOf(traces, lines);
    if (!stack.frames.empty() || !stack.problem.empty()) facts->threads[thread.tid].stacks.push_back(std::move(stack));
  }
  for (const auto& [version, problem] : versions) {
    facts->runtimes.push_back({.language = Language::kJavascript, .name = VersionText(version), .problem = problem});
  }
  if (left_out != 0) {
    facts->notes.push_back("time was up before the JavaScript frames of " + std::to_string(left_out) +
                           " threads were looked for");
  }
  if (lines.missing_scripts() > 0) {
    facts->notes.push_back("lines of " + std::to_string(lines.missing_scripts()) +
                           " scripts are missing: their text was moved or could not be read in time");
  }
}

}  // namespace stackd
