#include "daemon/managed/lined_frames.h"

#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"

namespace stackd {
namespace {

constexpr char kNameNotWritten[] = "(a function whose name found no room)";

struct Names {
  SharedText function;
  SharedText file;
};

std::string WalkProblem(int32_t status) {
  switch (status) {
    case STACKD_WALK_WHOLE:
      return "";
    case STACKD_WALK_UNREADABLE:
      return "its frames could not all be read: those from there on are missing";
    case STACKD_WALK_LIMIT:
      return "its stack is deeper than what is copied: the innermost frames are shown";
    default:
      return "a frame was not what it should be: those from there on are missing";
  }
}

// Threads of one process mostly run the same functions; a key is of one trace alone.
class Decoder {
 public:
  explicit Decoder(const LinedRuntime& runtime) : runtime_(runtime) {}

  void Append(const ManagedTrace& trace, ManagedStack* stack) {
    std::unordered_map<uint64_t, const Names*> names;
    for (const ManagedSymbol& symbol : trace.symbols) names.try_emplace(symbol.key, &NamesOf(symbol));
    size_t first_of_activation = stack->frames.size();
    for (const ManagedTraceFrame& frame : trace.frames) {
      ManagedFrame& added = stack->frames.emplace_back();
      added.anchor_avma = frame.anchor_avma;
      added.boundary = (frame.flags & STACKD_MANAGED_BOUNDARY) != 0;
      if (added.boundary) {
        // Its place on the C stack, if it is known, stands behind the frames of an activation.
        for (; first_of_activation < stack->frames.size(); ++first_of_activation) {
          stack->frames[first_of_activation].anchor_avma = frame.anchor_avma;
        }
        continue;
      }
      const auto named = names.find(frame.key);
      added.function = named == names.end() ? not_written_ : named->second->function;
      if (named != names.end()) added.file = named->second->file;
      if (frame.position > 0 && frame.position <= INT32_MAX) added.line = static_cast<int32_t>(frame.position);
    }
  }

 private:
  const Names& NamesOf(const ManagedSymbol& symbol) {
    const auto [known, is_new] =
        names_.try_emplace({symbol.table_format, symbol.function, symbol.table, symbol.file}, Names());
    if (is_new) known->second = {ToValidUtf8(runtime_.function_name(symbol)), ToValidUtf8(symbol.file)};
    return known->second;
  }

  const LinedRuntime& runtime_;
  const SharedText not_written_ = std::string(kNameNotWritten);
  std::map<std::tuple<uint32_t, std::string_view, std::string_view, std::string_view>, Names> names_;
};

// Why nothing is known of a version; empty: it is.
std::string VersionProblem(const LinedRuntime& runtime, const ManagedTrace& trace) {
  if (trace.status == STACKD_WALK_UNKNOWN_VERSION) return runtime.unknown_version;
  if (trace.status == STACKD_WALK_UNREADABLE && trace.instance_avma == 0) {
    return "threads of it may not read their own memory (a seccomp filter forbids process_vm_readv): their stacks show "
           "native functions alone";
  }
  return "";
}

// A walk that did not come to its end says so in a trace of its own, behind the frames.
ManagedStack StackOf(const ThreadCapture& thread, const LinedRuntime& runtime, Decoder* decoder,
                     std::map<uint64_t, std::string>* versions) {
  ManagedStack stack;
  stack.language = runtime.language;
  stack.interpreter_function = runtime.interpreter_function;
  for (const ManagedTrace& trace : thread.traces) {
    if (trace.runtime != runtime.runtime) continue;
    std::string& problem = (*versions)[trace.version];
    if (std::string found = VersionProblem(runtime, trace); !found.empty()) {
      problem = std::move(found);
      continue;
    }
    decoder->Append(trace, &stack);
    if (trace.status != STACKD_WALK_WHOLE) stack.problem = WalkProblem(trace.status);
  }
  return stack;
}

}  // namespace

void AddLinedFrames(const RuntimeInput& input, const LinedRuntime& runtime, ManagedFacts* facts) {
  Decoder decoder(runtime);
  std::map<uint64_t, std::string> versions;  // and why nothing is known of it
  size_t left_out = 0;
  for (const ThreadCapture& thread : input.capture.threads) {
    if (!thread.traces.empty() && MonotonicNs() >= input.deadline_ns) {
      ++left_out;
      continue;
    }
    ManagedStack stack = StackOf(thread, runtime, &decoder, &versions);
    if (!stack.frames.empty() || !stack.problem.empty()) facts->threads[thread.tid].stacks.push_back(std::move(stack));
  }
  for (auto& [version, problem] : versions) {
    facts->runtimes.push_back(
        {.language = runtime.language, .name = runtime.version_name(version), .problem = std::move(problem)});
  }
  if (left_out != 0 && !versions.empty()) {
    facts->notes.push_back("time was up before the frames of " + facts->runtimes.back().name + " in " +
                           std::to_string(left_out) + " threads were looked for");
  }
}

}  // namespace stackd
