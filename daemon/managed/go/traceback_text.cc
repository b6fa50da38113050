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

// What the runtime says of itself, in front of the goroutines.
bool IsOfRuntime(std::string_view line) {
  return StartsWithAny(line, {"fatal error: ", "runtime: ", "[signal ", "SIG", "unexpected fault address ",
                              "runtime stack:", "panic: runtime error: ", "\tpanic: runtime error: "});
}

// "panic: runtime error: index out of range [5] with length 3": the numbers are the program's.
std::string WithoutIndices(std::string_view line) {
  if (line.find("panic: runtime error: ") == line.npos) return std::string(line);
  const size_t open = line.find(" [");
  return std::string(line.substr(0, open)) + (open == line.npos ? "" : " [...]");
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
    if (line.empty()) {
      in_goroutine_ = false;
      has_function_ = false;
      return Keep("");
    }
    if (line.starts_with("goroutine ") && line.ends_with(":")) return BeginGoroutine(line);
    if (in_goroutine_) return AddToGoroutine(line);
    if (IsOfRuntime(line)) return Keep(WithoutIndices(line));
    if (StartsWithAny(line, {"panic: ", "\tpanic: "})) Keep("panic: (its message is on the program's standard error)");
  }

  void BeginGoroutine(std::string_view line) {
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
    Keep(frame.function + "(...)");
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
