#include "daemon/managed/go/traceback_text.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <utility>

#include "daemon/base/text.h"

namespace stackd {
namespace {

constexpr size_t kMaxGoroutines = 10'000;
constexpr size_t kMaxFrames = 4096;

bool StartsWithAny(std::string_view line, std::initializer_list<std::string_view> starts) {
  return std::any_of(starts.begin(), starts.end(), [line](std::string_view start) { return line.starts_with(start); });
}

constexpr std::string_view kElsewhere = "(its message is on the program's standard error)";

// What the runtime says of itself, in front of the goroutines.
bool IsOfRuntime(std::string_view line) {
  return StartsWithAny(line, {"fatal error: ", "runtime: ", "SIG", "unexpected fault address ", "runtime stack:"});
}

bool IsPanic(std::string_view line) { return StartsWithAny(line, {"panic: ", "\tpanic: "}); }

// Keeps only the known part of a message: a program may panic with a text that begins like one of the runtime. What follows
// it are numbers and types of the program.
std::string PanicWithoutMessage(std::string_view line) {
  constexpr std::string_view kKnown[] = {
      "invalid memory address or nil pointer dereference",
      "index out of range",
      "slice bounds out of range",
      "integer divide by zero",
      "negative shift amount",
      "makeslice: len out of range",
      "makeslice: cap out of range",
      "growslice: len out of range",
      "makechan: size out of range",
      "hash of unhashable type",
      "comparing uncomparable type",
      "cannot convert slice",
  };
  constexpr std::string_view kOfRuntime = "panic: runtime error: ";
  const size_t start = line.find(kOfRuntime);
  if (start <= 1) {
    const std::string_view message = line.substr(start + kOfRuntime.size());
    for (std::string_view known : kKnown) {
      if (message == known) return std::string(kOfRuntime) + std::string(known);
      if (message.starts_with(known)) return std::string(kOfRuntime) + std::string(known) + " ...";
    }
  }
  return "panic: " + std::string(kElsewhere);
}

// "[signal SIGSEGV: segmentation violation code=0x1 addr=0x18 pc=0x4b3509]": the address may be a value.
std::string SignalAlone(std::string_view line) {
  const size_t end = line.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ", std::string_view("[signal ").size());
  return std::string(line.substr(0, end)) + "]";
}

// "goroutine 1 [running]:", "goroutine 1 gp=0xcd7f4adc1e0 m=0 mp=0x5af9c0 [running]:"
bool IsHead(std::string_view line) {
  constexpr std::string_view kStart = "goroutine ";
  return line.starts_with(kStart) && line.ends_with("]:") && line.size() > kStart.size() && line[kStart.size()] >= '0' &&
         line[kStart.size()] <= '9';
}

template <typename T>
T NumberAt(std::string_view text) {
  T number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string BaseName(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

class Reader {
 public:
  GoTraceback Read(std::string_view text) {
    while (!text.empty()) {
      const size_t end = text.find('\n');
      AddLine(text.substr(0, end));
      text.remove_prefix(end == text.npos ? text.size() : end + 1);
    }
    return std::move(result_);
  }

 private:
  void AddLine(std::string_view line) {
    const bool behind_blank = std::exchange(was_blank_, line.empty());
    if (line.empty()) {
      in_goroutine_ = false;
      has_function_ = false;
      return Keep("");
    }
    // A panic's message may have any lines. The runtime puts a blank one between it and the goroutines.
    if (IsHead(line) && (behind_blank || !in_panic_)) return BeginGoroutine(line);
    if (in_goroutine_) return AddToGoroutine(line);
    if (IsPanic(line)) {
      in_panic_ = true;
      return Keep(PanicWithoutMessage(line));
    }
    if (line.starts_with("[signal SIG")) return Keep(SignalAlone(line));
    if (in_panic_ || !IsOfRuntime(line)) return;
    if (line.starts_with("runtime stack:")) SayWhy();
    Keep(line);
  }

  // Adds the first line of a fatal error, the one line that the runtime does not pass on.
  void SayWhy() {
    if (result_.text.empty()) Keep("fatal error: " + std::string(kElsewhere) + "\n");
  }

  void BeginGoroutine(std::string_view line) {
    SayWhy();
    in_panic_ = false;
    in_goroutine_ = result_.goroutines.size() < kMaxGoroutines;
    has_function_ = false;
    if (!in_goroutine_) return;
    GoTracebackGoroutine& goroutine = result_.goroutines.emplace_back();
    goroutine.id = NumberAt<uint64_t>(line.substr(std::string_view("goroutine ").size()));
    const size_t open = line.find('['), close = line.rfind(']');
    if (open != line.npos && close != line.npos && open < close) {
      std::string_view state = line.substr(open + 1, close - open - 1);
      goroutine.state = ToValidUtf8(state.substr(0, state.find(',')));
    }
    Keep("goroutine " + std::to_string(goroutine.id) + " [" + goroutine.state + "]:");
  }

  void AddToGoroutine(std::string_view line) {
    GoTracebackGoroutine& goroutine = result_.goroutines.back();
    if (line.starts_with("\t")) return AddPlace(line, &goroutine);
    constexpr std::string_view kCreated = "created by ";
    is_creator_ = line.starts_with(kCreated);
    if (is_creator_) {
      line.remove_prefix(kCreated.size());
      constexpr std::string_view kIn = " in goroutine ";
      const size_t in = line.find(kIn);
      if (in != line.npos) goroutine.creator_id = NumberAt<uint64_t>(line.substr(in + kIn.size()));
      goroutine.created_by = ToValidUtf8(line.substr(0, in));
      return Keep("created by " + goroutine.created_by);
    }
    const size_t arguments = line.rfind('(');
    has_function_ = line.ends_with(")") && arguments != line.npos && arguments > 0 && goroutine.frames.size() < kMaxFrames;
    if (!has_function_) {
      if (line.starts_with("...")) Keep("...");
      return;
    }
    ManagedFrame& frame = goroutine.frames.emplace_back();
    frame.function = ToValidUtf8(line.substr(0, arguments));
    Keep(frame.function.str() + "(...)");
  }

  // "\t/src/main.go:12 +0x1d"
  void AddPlace(std::string_view line, GoTracebackGoroutine* goroutine) {
    line.remove_prefix(1);
    line = line.substr(0, line.find(" +0x"));
    const size_t colon = line.rfind(':');
    if (colon == line.npos) return;
    const std::string_view file = line.substr(0, colon);
    const auto number = NumberAt<int32_t>(line.substr(colon + 1));
    if (is_creator_) {
      goroutine->created_by += " at " + ToValidUtf8(BaseName(file)) + ":" + std::to_string(number);
    } else if (has_function_) {
      goroutine->frames.back().file = ToValidUtf8(file);
      goroutine->frames.back().line = number;
    } else {
      return;
    }
    is_creator_ = has_function_ = false;
    Keep("\t" + ToValidUtf8(file) + ":" + std::to_string(number));
  }

  void Keep(std::string_view line) {
    if (line.empty() && (result_.text.empty() || result_.text.ends_with("\n\n"))) return;
    result_.text += ToValidUtf8(line);
    result_.text += '\n';
  }

  GoTraceback result_;
  bool was_blank_ = false;
  bool in_panic_ = false;
  bool in_goroutine_ = false;
  bool has_function_ = false;  // the next place is that of the last frame
  bool is_creator_ = false;    // it is where the goroutine was started
};

}  // namespace

GoTraceback ReadGoTraceback(std::string_view text) { return Reader().Read(text); }

void AddGoTraceback(const RuntimeReport& report, int32_t tid, ManagedFacts* facts) {
  GoTraceback traceback = ReadGoTraceback(report.text);
  facts->reports.push_back({Language::kGo, report.title, std::move(traceback.text)});
  for (size_t i = 0; i < traceback.goroutines.size(); ++i) {
    GoTracebackGoroutine& goroutine = traceback.goroutines[i];
    ManagedTask task;
    task.kind = ManagedTaskKind::kGoroutine;
    task.id = goroutine.id;
    task.state = goroutine.state;
    task.created_by = goroutine.created_by;
    task.creator_id = goroutine.creator_id;
    ManagedStack stack;
    stack.language = Language::kGo;
    stack.frames = std::move(goroutine.frames);
    if (i == 0) {
      task.tid = tid;
      ManagedThread& thread = facts->threads[tid];
      thread.name = "goroutine " + std::to_string(goroutine.id);
      thread.stacks.push_back(std::move(stack));
    } else {
      task.stack = static_cast<int32_t>(facts->task_stacks.size());
      facts->task_stacks.push_back(std::move(stack));
    }
    facts->tasks.push_back(std::move(task));
  }
}

}  // namespace stackd
