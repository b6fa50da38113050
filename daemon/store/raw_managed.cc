#include "daemon/store/raw_managed.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace stackd {
namespace {

// RawManaged::frame_flags
constexpr uint32_t kBoundary = 1, kInlined = 2;

class Writer {
 public:
  explicit Writer(store::RawManaged* raw) : raw_(*raw) { IndexOf(""); }

  void Write(const ManagedFacts& facts) {
    Reserve(facts);
    for (const RuntimeDescription& runtime : facts.runtimes) Write(runtime, raw_.add_runtimes());
    for (const auto& [tid, thread] : facts.threads) Write(tid, thread, raw_.add_threads());
    for (const ManagedStack& stack : facts.task_stacks) Write(stack, raw_.add_task_stacks());
    for (const NativeTaskStack& stack : facts.native_task_stacks) {
      store::RawNativeTaskStack* raw = raw_.add_native_task_stacks();
      raw->mutable_return_avmas()->Add(stack.return_avmas.begin(), stack.return_avmas.end());
      raw->set_cut(stack.cut);
    }
    for (const ManagedTask& task : facts.tasks) Write(task, raw_.add_tasks());
    raw_.mutable_stuck_goroutines()->Assign(facts.stuck_goroutines.begin(), facts.stuck_goroutines.end());
    for (const ManagedWait& wait : facts.waits) Write(wait, raw_.add_waits());
    for (const RuntimeReport& report : facts.reports) Write(report, raw_.add_reports());
    for (const std::string& note : facts.notes) raw_.add_notes(IndexOf(note));
  }

 private:
  void Reserve(const ManagedFacts& facts) {
    size_t frames = 0;
    for (const auto& [tid, thread] : facts.threads) {
      for (const ManagedStack& stack : thread.stacks) frames += stack.frames.size();
    }
    for (const ManagedStack& stack : facts.task_stacks) frames += stack.frames.size();
    const auto count = static_cast<int>(frames);
    raw_.mutable_frame_functions()->Reserve(count);
    raw_.mutable_frame_files()->Reserve(count);
    raw_.mutable_frame_lines()->Reserve(count);
    raw_.mutable_frame_anchors_avma()->Reserve(count);
    raw_.mutable_frame_pcs_avma()->Reserve(count);
    raw_.mutable_frame_flags()->Reserve(count);
  }

  // The index of `text` in the table of texts.
  uint32_t IndexOf(std::string_view text) {
    const auto [entry, is_new] = index_.try_emplace(text, static_cast<uint32_t>(raw_.texts_size()));
    if (is_new) raw_.add_texts(std::string(text));
    return entry->second;
  }

  // One field of tasks or frames, of which there may be a hundred thousand: most say what the one before them did.
  struct Column {
    std::string_view text;
    uint32_t index = 0;
  };

  uint32_t IndexOf(std::string_view text, Column* column) {
    if (text.empty()) return 0;
    if (text != column->text) *column = {text, IndexOf(text)};
    return column->index;
  }

  void Write(const RuntimeDescription& runtime, store::RawRuntime* raw) {
    raw->set_language(static_cast<int32_t>(runtime.language));
    raw->set_name(IndexOf(runtime.name));
    raw->set_problem(IndexOf(runtime.problem));
  }

  void Write(int32_t tid, const ManagedThread& thread, store::RawManagedThread* raw) {
    raw->set_tid(tid);
    raw->set_name(IndexOf(thread.name));
    raw->set_holds_gil(thread.holds_gil);
    for (const ManagedStack& stack : thread.stacks) Write(stack, raw->add_stacks());
    for (const JitFrame& frame : thread.jit_frames) {
      store::RawJitFrame* jit = raw->add_jit_frames();
      jit->set_pc_avma(frame.pc_avma);
      jit->set_sp_avma(frame.sp_avma);
      jit->set_cfa_avma(frame.cfa_avma);
      jit->set_caller_rbp(frame.caller_rbp);
      jit->set_overrides(frame.overrides);
    }
  }

  void Write(const ManagedStack& stack, store::RawManagedStack* raw) {
    raw->set_language(static_cast<int32_t>(stack.language));
    raw->set_interpreter_function(IndexOf(stack.interpreter_function));
    raw->set_problem(IndexOf(stack.problem));
    raw->set_frame_count(static_cast<uint32_t>(stack.frames.size()));
    for (const ManagedFrame& frame : stack.frames) {
      raw_.add_frame_functions(IndexOf(frame.function, &functions_));
      raw_.add_frame_files(IndexOf(frame.file, &files_));
      raw_.add_frame_lines(frame.line);
      raw_.add_frame_anchors_avma(frame.anchor_avma);
      raw_.add_frame_pcs_avma(frame.pc_avma);
      raw_.add_frame_flags((frame.boundary ? kBoundary : 0) | (frame.inlined ? kInlined : 0));
    }
  }

  void Write(const ManagedTask& task, store::RawTask* raw) {
    raw->set_kind(static_cast<int32_t>(task.kind));
    raw->set_id(task.id);
    raw->set_name(IndexOf(task.name, &names_));
    raw->set_state(IndexOf(task.state, &states_));
    raw->set_wait_reason(IndexOf(task.wait_reason, &wait_reasons_));
    raw->set_wait_ns(task.wait_ns);
    raw->set_tid(task.tid);
    raw->set_stack(task.stack);
    raw->set_created_by(IndexOf(task.created_by, &creators_));
    raw->set_creator_id(task.creator_id);
    for (int32_t stack : task.native_stacks) raw->add_native_stacks(static_cast<uint32_t>(stack));
  }

  void Write(const ManagedWait& wait, store::RawManagedWait* raw) {
    raw->set_kind(static_cast<int32_t>(wait.kind));
    raw->set_waiter_tid(wait.waiter_tid);
    raw->set_owner_tid(wait.owner_tid);
    raw->set_lock_avma(wait.lock_avma);
    raw->set_lock(IndexOf(wait.lock));
  }

  void Write(const RuntimeReport& report, store::RawReport* raw) {
    raw->set_language(static_cast<int32_t>(report.language));
    raw->set_title(IndexOf(report.title));
    raw->set_text(report.text);
  }

  store::RawManaged& raw_;
  // By text in the facts, which outlive this.
  std::unordered_map<std::string_view, uint32_t> index_;
  Column functions_, files_, names_, states_, wait_reasons_, creators_;
};

// Takes what fits and remembers whether all did.
class Reader {
 public:
  explicit Reader(const store::RawManaged& raw) : raw_(raw) {
    const auto [least, most] =
        std::minmax({raw.frame_functions_size(), raw.frame_files_size(), raw.frame_lines_size(),
                     raw.frame_anchors_avma_size(), raw.frame_pcs_avma_size(), raw.frame_flags_size()});
    frame_count_ = least;
    fits_ = least == most;
  }

  bool Read(ManagedFacts* facts) {
    for (const store::RawRuntime& runtime : raw_.runtimes()) {
      facts->runtimes.push_back({LanguageOf(runtime.language()), Text(runtime.name()), Text(runtime.problem())});
    }
    for (const store::RawManagedThread& thread : raw_.threads()) Read(thread, &facts->threads[thread.tid()]);
    for (const store::RawManagedStack& stack : raw_.task_stacks()) facts->task_stacks.push_back(Stack(stack));
    for (const store::RawNativeTaskStack& stack : raw_.native_task_stacks()) {
      facts->native_task_stacks.push_back({{stack.return_avmas().begin(), stack.return_avmas().end()}, stack.cut()});
    }
    for (const store::RawTask& task : raw_.tasks()) facts->tasks.push_back(Task(task, *facts));
    facts->stuck_goroutines.assign(raw_.stuck_goroutines().begin(), raw_.stuck_goroutines().end());
    for (const store::RawManagedWait& wait : raw_.waits()) facts->waits.push_back(Wait(wait));
    for (const store::RawReport& report : raw_.reports()) {
      facts->reports.push_back({LanguageOf(report.language()), Text(report.title()), report.text()});
    }
    for (uint32_t note : raw_.notes()) facts->notes.push_back(Text(note));
    return fits_ && next_frame_ == frame_count_;
  }

 private:
  std::string Text(uint32_t index) {
    if (index < static_cast<uint32_t>(raw_.texts_size())) return raw_.texts(static_cast<int>(index));
    fits_ = false;
    return {};
  }

  template <typename Enum>
  Enum Known(int32_t value, Enum first, Enum last) {
    if (value >= static_cast<int32_t>(first) && value <= static_cast<int32_t>(last)) return static_cast<Enum>(value);
    fits_ = false;
    return first;
  }

  Language LanguageOf(int32_t value) { return Known(value, Language::kUnknown, Language::kLast); }

  void Read(const store::RawManagedThread& raw, ManagedThread* thread) {
    thread->name = Text(raw.name());
    thread->holds_gil = raw.holds_gil();
    for (const store::RawManagedStack& stack : raw.stacks()) thread->stacks.push_back(Stack(stack));
    for (const store::RawJitFrame& frame : raw.jit_frames()) {
      thread->jit_frames.push_back(
          {frame.pc_avma(), frame.sp_avma(), frame.cfa_avma(), frame.caller_rbp(), frame.overrides()});
    }
  }

  ManagedStack Stack(const store::RawManagedStack& raw) {
    ManagedStack stack{.language = LanguageOf(raw.language()),
                       .frames = {},
                       .interpreter_function = Text(raw.interpreter_function()),
                       .problem = Text(raw.problem())};
    if (raw.frame_count() > static_cast<uint32_t>(frame_count_ - next_frame_)) {
      fits_ = false;
      return stack;
    }
    stack.frames.reserve(raw.frame_count());
    for (const int end = next_frame_ + static_cast<int>(raw.frame_count()); next_frame_ < end; ++next_frame_) {
      stack.frames.push_back({.function = Text(raw_.frame_functions(next_frame_)),
                              .file = Text(raw_.frame_files(next_frame_)),
                              .line = raw_.frame_lines(next_frame_),
                              .anchor_avma = raw_.frame_anchors_avma(next_frame_),
                              .pc_avma = raw_.frame_pcs_avma(next_frame_),
                              .boundary = (raw_.frame_flags(next_frame_) & kBoundary) != 0,
                              .inlined = (raw_.frame_flags(next_frame_) & kInlined) != 0});
    }
    return stack;
  }

  ManagedTask Task(const store::RawTask& raw, const ManagedFacts& facts) {
    fits_ = fits_ && raw.stack() >= -1 && (raw.stack() < 0 || static_cast<size_t>(raw.stack()) < facts.task_stacks.size());
    std::vector<int32_t> native_stacks;
    for (uint32_t stack : raw.native_stacks()) {
      fits_ = fits_ && stack < facts.native_task_stacks.size();
      native_stacks.push_back(static_cast<int32_t>(stack));
    }
    return {.kind = Known(raw.kind(), ManagedTaskKind::kGoroutine, ManagedTaskKind::kTokioTask),
            .id = raw.id(),
            .name = Text(raw.name()),
            .state = Text(raw.state()),
            .wait_reason = Text(raw.wait_reason()),
            .wait_ns = raw.wait_ns(),
            .tid = raw.tid(),
            .stack = raw.stack(),
            .native_stacks = std::move(native_stacks),
            .created_by = Text(raw.created_by()),
            .creator_id = raw.creator_id()};
  }

  ManagedWait Wait(const store::RawManagedWait& raw) {
    return {.kind = Known(raw.kind(), ManagedLockKind::kGil, ManagedLockKind::kMonitor),
            .waiter_tid = raw.waiter_tid(),
            .owner_tid = raw.owner_tid(),
            .lock_avma = raw.lock_avma(),
            .lock = Text(raw.lock())};
  }

  const store::RawManaged& raw_;
  int frame_count_;
  int next_frame_ = 0;
  bool fits_;
};

}  // namespace

bool HasFacts(const ManagedFacts& facts) {
  return !facts.runtimes.empty() || !facts.threads.empty() || !facts.tasks.empty() || !facts.waits.empty() ||
         !facts.reports.empty() || !facts.notes.empty();
}

void SerializeManagedFacts(const ManagedFacts& facts, store::RawManaged* raw) { Writer(raw).Write(facts); }

bool ParseManagedFacts(const store::RawManaged& raw, ManagedFacts* facts) { return Reader(raw).Read(facts); }

}  // namespace stackd
