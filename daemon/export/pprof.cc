#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/export/export.h"
#include "daemon/export/flat_stack.h"
#include "daemon/export/piecewise.h"
#include "daemon/export/pprof_writer.h"
#include "daemon/export/text_summary.h"
#include "daemon/export/wording.h"

namespace stackd {
namespace {

// The language of the program: all others have calls to C in the end.
v1::Language LanguageOf(const v1::Stack& stack) {
  v1::Language language = v1::LANGUAGE_UNSPECIFIED;
  for (const v1::Frame& frame : stack.frames()) {
    if (frame.language() == v1::LANGUAGE_UNSPECIFIED) continue;
    language = frame.language();
    if (language != v1::C_CPP) break;
  }
  return language;
}

std::string_view KindInWords(v1::Task::Kind kind) {
  switch (kind) {
    case v1::Task::GOROUTINE:
      return TaskNoun(v1::GO);
    case v1::Task::VIRTUAL_THREAD:
      return TaskNoun(v1::JAVA);
    case v1::Task::ASYNCIO_TASK:
      return TaskNoun(v1::PYTHON);
    case v1::Task::TOKIO_TASK:
      return TaskNoun(v1::RUST);
    default:
      return TaskNoun(v1::LANGUAGE_UNSPECIFIED);
  }
}

class DumpWriter {
 public:
  DumpWriter(const v1::Dump& dump, const Sink& sink)
      : dump_(dump), out_(std::array{PprofValueType{"threads", "count"}}, sink), stacks_(dump.stacks_size()) {}

  void Run() {
    out_.SetTime(dump_.create_time().seconds() * kNsPerSecond + dump_.create_time().nanos(),
                 dump_.capture_duration().seconds() * kNsPerSecond + dump_.capture_duration().nanos());
    out_.AddComments(Comments());
    for (const v1::Module& module : dump_.modules()) out_.AddMapping(module);
    for (const v1::Thread& thread : dump_.threads()) {
      if (!out_.wanted()) return;
      if (!thread.is_agent()) AddThread(thread);
    }
    for (const v1::Task& task : dump_.tasks()) {
      if (!out_.wanted()) return;
      AddTask(task);
    }
    out_.Finish();
  }

 private:
  struct StackInProfile {
    std::vector<uint64_t> location_ids;
    std::string language;
  };

  // What the text formats say around the stacks.
  std::string Comments() const {
    std::string text;
    const Sink sink = [&](std::string_view piece) {
      text += piece;
      return true;
    };
    {
      Piecewise out(sink);
      WriteHeading(dump_, &out);
      WriteFindings(dump_, &out);
      WriteNotes(dump_, &out);
    }
    return text;
  }

  // nullptr: there is no such stack.
  const StackInProfile* StackAt(int index) {
    if (index < 0 || index >= dump_.stacks_size()) return nullptr;
    std::optional<StackInProfile>& stack = stacks_[index];
    if (!stack) {
      const v1::Language language = LanguageOf(dump_.stacks(index));
      stack = {out_.Locations(FlatFrames(dump_.stacks(index))),
               language == v1::LANGUAGE_UNSPECIFIED ? "" : LanguageInWords(language)};
    }
    return &*stack;
  }

  // A sample with the frames of `stack`, or with what stands for them.
  pprof::Sample* AddSample(const StackInProfile* stack, std::string_view state) {
    constexpr int64_t kOne = 1;
    std::vector<uint64_t> stand_in;
    const bool has_frames = stack != nullptr && !stack->location_ids.empty();
    if (!has_frames) stand_in = out_.Locations(std::array{FlatFrame{NoStackInWords(state), nullptr}});
    pprof::Sample* sample = out_.AddSample(has_frames ? stack->location_ids : stand_in, {&kOne, 1});
    out_.AddLabel("process", dump_.process().display_name(), sample);
    out_.AddLabel("state", state, sample);
    if (stack != nullptr) out_.AddLabel("language", stack->language, sample);
    return sample;
  }

  void AddThread(const v1::Thread& thread) {
    pprof::Sample* sample = AddSample(thread.has_stack() ? StackAt(thread.stack()) : nullptr, thread.state());
    out_.AddLabel("thread", thread.name(), sample);
    out_.AddNumber("tid", thread.tid(), sample);
    if (thread.has_wait()) out_.AddLabel("wait", v1::Wait::Kind_Name(thread.wait().kind()), sample);
  }

  // A task that waits in several places at once is in each of them, as in the groups of the text.
  void AddTask(const v1::Task& task) {
    std::vector<int> stacks(task.other_stacks().begin(), task.other_stacks().end());
    if (task.has_stack()) stacks.push_back(task.stack());
    std::ranges::sort(stacks);
    const auto [first, last] = std::ranges::unique(stacks);
    stacks.erase(first, last);
    if (stacks.empty()) AddTaskAt(nullptr, task);
    for (int stack : stacks) AddTaskAt(StackAt(stack), task);
  }

  void AddTaskAt(const StackInProfile* stack, const v1::Task& task) {
    pprof::Sample* sample = AddSample(stack, task.state());
    out_.AddLabel("task", KindInWords(task.kind()), sample);
    out_.AddLabel("task_name", task.name(), sample);
    out_.AddNumber("task_id", task.id(), sample);
    out_.AddNumber("tid", task.tid(), sample);
    out_.AddLabel("wait", task.wait_reason(), sample);
  }

  const v1::Dump& dump_;
  PprofWriter out_;
  std::vector<std::optional<StackInProfile>> stacks_;  // as the dump has them
};

}  // namespace

void ExportPprof(const v1::Dump& dump, const Sink& sink) { DumpWriter(dump, sink).Run(); }

}  // namespace stackd
