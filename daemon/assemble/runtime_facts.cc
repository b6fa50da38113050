#include "daemon/assemble/runtime_facts.h"

#include <algorithm>
#include <string_view>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"

namespace stackd {
namespace {

// A traceback of 10,000 goroutines is for a file, not for a dump.
constexpr int kMaxReportLines = 4096;

void AddLines(std::string_view text, v1::RuntimeReport* report) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (report->lines_size() == kMaxReportLines) {
      report->add_lines("…");
      return;
    }
    report->add_lines(ToValidUtf8(text.substr(0, end)));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

}  // namespace

std::vector<RuntimeFrame> RuntimeFramesOf(const ManagedStack& stack) {
  std::vector<RuntimeFrame> frames;
  for (const ManagedFrame& frame : stack.frames) {
    if (frame.boundary) continue;
    frames.push_back({.function = frame.function,
                      .file = frame.file,
                      .line = frame.line,
                      .language = stack.language,
                      .pc_avma = frame.pc_avma});
  }
  return frames;
}

void AddRuntimes(const ManagedFacts& facts, v1::Dump* dump) {
  for (const RuntimeDescription& description : facts.runtimes) {
    v1::Runtime* runtime = dump->add_runtimes();
    runtime->set_language(static_cast<v1::Language>(description.language));
    runtime->set_name(ToValidUtf8(description.name));
    runtime->set_problem(ToValidUtf8(description.problem));
    if (!description.problem.empty()) dump->add_notes(ToValidUtf8(description.name + ": " + description.problem));
  }
  for (const RuntimeReport& raw : facts.reports) {
    v1::RuntimeReport* report = dump->add_reports();
    report->set_language(static_cast<v1::Language>(raw.language));
    report->set_title(ToValidUtf8(raw.title));
    AddLines(raw.text, report);
  }
  for (const std::string& note : facts.notes) dump->add_notes(ToValidUtf8(note));
}

void AddTasks(const ManagedFacts& facts, int first_task_stack, int first_native_task_stack, v1::Dump* dump) {
  dump->set_task_count(static_cast<int64_t>(facts.tasks.size()));
  dump->mutable_tasks()->Reserve(static_cast<int>(facts.tasks.size()));
  for (const ManagedTask& raw : facts.tasks) {
    v1::Task* task = dump->add_tasks();
    task->set_kind(static_cast<v1::Task::Kind>(raw.kind));
    task->set_id(raw.id);
    // Even an empty text costs a string, and there may be a hundred thousand tasks.
    if (!raw.name.empty()) task->set_name(ToValidUtf8(raw.name));
    task->set_state(ToValidUtf8(raw.state));
    if (!raw.wait_reason.empty()) task->set_wait_reason(ToValidUtf8(raw.wait_reason));
    if (raw.wait_ns >= 0) {
      task->mutable_wait_duration()->set_seconds(raw.wait_ns / kNsPerSecond);
      task->mutable_wait_duration()->set_nanos(static_cast<int32_t>(raw.wait_ns % kNsPerSecond));
    }
    task->set_tid(raw.tid);
    if (raw.stack >= 0 && static_cast<size_t>(raw.stack) < facts.task_stacks.size()) {
      task->set_stack(first_task_stack + raw.stack);
    }
    for (int32_t stack : raw.native_stacks) {
      if (stack < 0 || static_cast<size_t>(stack) >= facts.native_task_stacks.size()) continue;
      if (task->has_stack()) {
        task->add_other_stacks(first_native_task_stack + stack);
      } else {
        task->set_stack(first_native_task_stack + stack);
      }
    }
    task->set_created_by(ToValidUtf8(raw.created_by));
    task->set_creator_id(raw.creator_id);
  }
}

}  // namespace stackd
