#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/export/export.h"
#include "daemon/export/flat_stack.h"
#include "daemon/export/speedscope_writer.h"

namespace stackd {
namespace {

std::string TitleOf(const v1::Dump& dump) {
  const v1::Process& process = dump.process();
  return process.display_name() + " (pid " + std::to_string(process.pid()) + "), " + dump.name();
}

class DumpWriter {
 public:
  DumpWriter(const v1::Dump& dump, const Sink& sink)
      : dump_(dump),
        out_(TitleOf(dump), sink),
        threads_{.name = dump.process().display_name() + ": threads", .unit = "none"},
        tasks_{.name = dump.process().display_name() + ": tasks", .unit = "none"} {}

  void Run() {
    AddGroups();
    AddThreadsWithoutStack();
    AddTasksWithoutStack();
    std::vector<SpeedscopeProfile> profiles{std::move(threads_)};
    if (!tasks_.samples.empty()) profiles.push_back(std::move(tasks_));
    out_.Finish(profiles);
  }

 private:
  void AddThreads(std::string_view name, size_t stack, int64_t count) {
    threads_.samples.push_back({.root = out_.AddRoot(name.empty() ? "(no name)" : name), .stack = stack, .weight = count});
  }

  void AddGroups() {
    const ThreadNames names = NamesOfThreads(dump_);
    for (const v1::StackGroup& group : dump_.groups()) {
      if (!out_.wanted()) return;
      if (group.is_agent()) continue;
      const size_t stack = out_.AddStack(FlatFrames(group.stack()));
      for (const auto& [name, count] : CountsByName(group, names)) AddThreads(name, stack, count);
      if (group.task_count() > 0) tasks_.samples.push_back({.root = {}, .stack = stack, .weight = group.task_count()});
    }
  }

  void AddThreadsWithoutStack() {
    std::map<std::pair<std::string_view, std::string_view>, int64_t> counts;
    for (const v1::Thread& thread : dump_.threads()) {
      if (!thread.has_stack() && !thread.is_agent()) ++counts[{thread.state(), thread.name()}];
    }
    for (const auto& [key, count] : counts) {
      AddThreads(key.second, out_.AddStack({{NoStackInWords(key.first), nullptr}}), count);
    }
  }

  void AddTasksWithoutStack() {
    std::map<std::string_view, int64_t> counts;
    for (const v1::Task& task : dump_.tasks()) {
      if (!task.has_stack()) ++counts[task.state()];
    }
    for (const auto& [state, count] : counts) {
      const size_t stack = out_.AddStack({{NoStackInWords(state), nullptr}});
      tasks_.samples.push_back({.root = {}, .stack = stack, .weight = count});
    }
  }

  const v1::Dump& dump_;
  SpeedscopeWriter out_;
  SpeedscopeProfile threads_, tasks_;
};

}  // namespace

void ExportSpeedscope(const v1::Dump& dump, const Sink& sink) { DumpWriter(dump, sink).Run(); }

}  // namespace stackd
