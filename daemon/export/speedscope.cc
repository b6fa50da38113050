#include <optional>
#include <ranges>
#include <utility>

#include "daemon/config/version.h"
#include "daemon/export/export.h"
#include "daemon/export/flat_stack.h"
#include "daemon/export/piecewise.h"
#include "daemon/export/printable.h"

namespace stackd {
namespace {

// A string of JSON. "<" too is escaped, as JSON of the API has it: inside of a page no name begins an element.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (char c : PrintableBeginning(text)) {
    if (c == '<') {
      quoted += "\\u003c";
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// Members of a list, one after the other.
class List {
 public:
  explicit List(Piecewise* out) : out_(*out) {}
  void Add(std::string_view json) {
    out_ << (first_ ? "" : ",") << json;
    first_ = false;
  }

 private:
  Piecewise& out_;
  bool first_ = true;
};

// Threads or tasks with one stack.
struct Weighted {
  std::optional<size_t> root;  // the frame that stands for the name of the threads
  size_t stack;
  int64_t count;
};

class SpeedscopeWriter {
 public:
  SpeedscopeWriter(const v1::Dump& dump, const Sink& sink) : dump_(dump), out_(sink), frames_(&out_) {}

  void Run() {
    const v1::Process& process = dump_.process();
    out_ << R"({"$schema":"https://www.speedscope.app/file-format-schema.json","name":)"
         << Quoted(process.display_name() + " (pid " + std::to_string(process.pid()) + "), " + dump_.name())
         << R"(,"exporter":"stackd )" << kVersion << R"(","shared":{"frames":[)";
    AddGroups();
    AddThreadsWithoutStack();
    AddTasksWithoutStack();
    out_ << R"(]},"profiles":[)";
    WriteProfile("threads", threads_);
    if (!tasks_.empty()) {
      out_ << ",";
      WriteProfile("tasks", tasks_);
    }
    out_ << "]}";
  }

 private:
  // The index of a frame, which is written when it is first met.
  size_t Frame(std::string_view name, std::string_view file, int line) {
    std::string json = "{\"name\":" + Quoted(name);
    if (!file.empty()) json += ",\"file\":" + Quoted(file);
    if (line > 0) json += ",\"line\":" + std::to_string(line);
    const auto [entry, is_new] = index_of_frame_.try_emplace(json + "}", index_of_frame_.size());
    if (is_new) frames_.Add(entry->first);
    return entry->second;
  }

  size_t Frame(const FlatFrame& flat) {
    if (flat.frame == nullptr) return Frame(flat.name, "", 0);
    // Viewers colour frames by file.
    const v1::Frame& frame = *flat.frame;
    return frame.file().empty() ? Frame(flat.name, frame.module(), 0) : Frame(flat.name, frame.file(), frame.line());
  }

  size_t AddStack(const std::vector<FlatFrame>& innermost_first) {
    std::vector<size_t>& stack = stacks_.emplace_back();
    stack.reserve(innermost_first.size());
    for (const FlatFrame& frame : innermost_first | std::views::reverse) stack.push_back(Frame(frame));
    return stacks_.size() - 1;
  }

  void AddThreads(std::string_view name, size_t stack, int64_t count) {
    const size_t root = Frame(name.empty() ? "(no name)" : name, "", 0);
    threads_.push_back({.root = root, .stack = stack, .count = count});
  }

  void AddGroups() {
    const ThreadNames names = NamesOfThreads(dump_);
    for (const v1::StackGroup& group : dump_.groups()) {
      if (!out_.wanted()) return;
      if (group.is_agent()) continue;
      const size_t stack = AddStack(FlatFrames(group.stack()));
      for (const auto& [name, count] : CountsByName(group, names)) AddThreads(name, stack, count);
      if (group.task_count() > 0) tasks_.push_back({.root = {}, .stack = stack, .count = group.task_count()});
    }
  }

  void AddThreadsWithoutStack() {
    std::map<std::pair<std::string_view, std::string_view>, int64_t> counts;
    for (const v1::Thread& thread : dump_.threads()) {
      if (!thread.has_stack() && !thread.is_agent()) ++counts[{thread.state(), thread.name()}];
    }
    for (const auto& [key, count] : counts) AddThreads(key.second, AddStack({{NoStackInWords(key.first), nullptr}}), count);
  }

  void AddTasksWithoutStack() {
    std::map<std::string_view, int64_t> counts;
    for (const v1::Task& task : dump_.tasks()) {
      if (!task.has_stack()) ++counts[task.state()];
    }
    for (const auto& [state, count] : counts) {
      tasks_.push_back({.root = {}, .stack = AddStack({{NoStackInWords(state), nullptr}}), .count = count});
    }
  }

  void WriteProfile(std::string_view what, const std::vector<Weighted>& samples) {
    int64_t total = 0;
    for (const Weighted& sample : samples) total += sample.count;
    out_ << R"({"type":"sampled","name":)" << Quoted(dump_.process().display_name() + ": " + std::string(what))
         << R"(,"unit":"none","startValue":0,"endValue":)" << std::to_string(total) << R"(,"samples":[)";
    List lists(&out_);
    for (const Weighted& sample : samples) {
      if (!out_.wanted()) return;
      lists.Add("[");
      List frames(&out_);
      if (sample.root) frames.Add(std::to_string(*sample.root));
      for (size_t frame : stacks_[sample.stack]) frames.Add(std::to_string(frame));
      out_ << "]";
    }
    out_ << R"(],"weights":[)";
    List weights(&out_);
    for (const Weighted& sample : samples) weights.Add(std::to_string(sample.count));
    out_ << "]}";
  }

  const v1::Dump& dump_;
  Piecewise out_;
  List frames_;
  std::unordered_map<std::string, size_t> index_of_frame_;  // by its JSON
  std::vector<std::vector<size_t>> stacks_;                 // outermost first
  std::vector<Weighted> threads_, tasks_;
};

}  // namespace

void ExportSpeedscope(const v1::Dump& dump, const Sink& sink) { SpeedscopeWriter(dump, sink).Run(); }

}  // namespace stackd
