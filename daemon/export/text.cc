#include <algorithm>
#include <functional>
#include <unordered_map>
#include <vector>

#include "daemon/export/export.h"
#include "daemon/export/piecewise.h"
#include "daemon/export/printable.h"
#include "daemon/export/text_stack.h"
#include "daemon/export/text_summary.h"
#include "daemon/export/wording.h"

namespace stackd {
namespace {

using ThreadsByTid = std::unordered_map<int32_t, const v1::Thread*>;
using TasksById = std::unordered_map<uint64_t, const v1::Task*>;

// `texts` in their order, each with the number of threads of the group that `text_of` gives it for. A dump whose threads
// were left out has no numbers.
std::vector<Counted> CountTexts(const google::protobuf::RepeatedPtrField<std::string>& texts, const v1::StackGroup& group,
                                const ThreadsByTid& threads, const std::function<std::string(const v1::Thread&)>& text_of) {
  std::unordered_map<std::string, int> counts;
  for (int32_t tid : group.tids()) {
    if (const auto thread = threads.find(tid); thread != threads.end()) ++counts[text_of(*thread->second)];
  }
  std::vector<Counted> counted;
  for (const std::string& text : texts) counted.push_back({text, counts.contains(text) ? counts[text] : 0});
  return counted;
}

std::string NamesInWords(const v1::StackGroup& group, const ThreadsByTid& threads) {
  auto names = CountTexts(group.thread_names(), group, threads, [](const v1::Thread& thread) { return thread.name(); });
  for (Counted& name : names) name.text = name.text.empty() ? "(no name)" : Printable(name.text);
  return CountedList(names);
}

std::string StatesInWords(const v1::StackGroup& group, const ThreadsByTid& threads) {
  const auto states = CountTexts(group.states(), group, threads, [](const v1::Thread& thread) { return thread.state(); });
  if (states.size() == 1) return Printable(states[0].text);
  // The words have parentheses of their own, so the numbers go first.
  constexpr size_t kMaxShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(states.size(), kMaxShown); ++i) {
    const Counted& state = states[i];
    text += (text.empty() ? "" : ", ") + (state.count > 0 ? Grouped(state.count) + " " : "") + Printable(state.text);
  }
  return states.size() > kMaxShown ? text + ", ..." : text;
}

std::string MostFrequentFirst(const std::unordered_map<std::string, int>& counts) {
  std::vector<Counted> texts;
  for (const auto& [text, count] : counts) texts.push_back({Printable(text), count});
  std::ranges::sort(
      texts, [](const Counted& a, const Counted& b) { return a.count != b.count ? a.count > b.count : a.text < b.text; });
  return CountedList(texts);
}

// What the threads of the group wait for, most frequent first; empty if they do not, or if their states have said it.
std::string WaitsInWords(const v1::StackGroup& group, const ThreadsByTid& threads) {
  std::unordered_map<std::string, int> counts;
  const google::protobuf::Duration* longest = nullptr;
  for (int32_t tid : group.tids()) {
    const auto found = threads.find(tid);
    if (found == threads.end() || !found->second->has_wait()) continue;
    const v1::Wait& wait = found->second->wait();
    if (wait.kind() == v1::Wait::SYSTEM_CALL) continue;
    ++counts[wait.explanation()];
    if (wait.has_duration() && (longest == nullptr || wait.duration().seconds() > longest->seconds())) {
      longest = &wait.duration();
    }
  }
  if (counts.empty()) return "";
  return MostFrequentFirst(counts) + (longest == nullptr ? "" : "; for " + InWords(*longest));
}

// "1 thread: worker", "10,000 goroutines", "1 thread and 3 goroutines: worker"
std::string MembersInWords(const v1::StackGroup& group, const ThreadsByTid& threads) {
  std::string text;
  if (group.thread_count() > 0) text = Count(group.thread_count(), "thread");
  if (group.task_count() > 0) {
    const v1::Language language =
        group.stack().frames().empty() ? v1::LANGUAGE_UNSPECIFIED : group.stack().frames(0).language();
    text += (text.empty() ? "" : " and ") + Count(group.task_count(), TaskNoun(language));
  }
  return group.thread_count() > 0 ? text + ": " + NamesInWords(group, threads) : text;
}

// Names say more than ids do. The name of a tokio task is that of a function, which its stack says.
bool HasNameOfItsOwn(const v1::Task& task) { return !task.name().empty() && task.kind() != v1::Task::TOKIO_TASK; }

// Empty if not all that are listed have names.
std::string TasksInWords(const v1::StackGroup& group, const TasksById& tasks) {
  constexpr int kMaxShown = 8;
  constexpr size_t kMaxBytes = 400;
  std::string text;
  int shown = 0;
  for (uint64_t id : group.task_ids()) {
    const auto found = tasks.find(id);
    if (found == tasks.end() || !HasNameOfItsOwn(*found->second)) return "";
    if (shown == kMaxShown || text.size() > kMaxBytes) continue;
    text += (shown == 0 ? "" : ", ") + Printable(found->second->name());
    ++shown;
  }
  const int64_t not_shown = group.task_count() - shown;
  return not_shown > 0 ? text + " and " + Grouped(not_shown) + " others" : text;
}

// "; the longest for about 312 s": Go notes no more than the times of collections. Of those that are listed, and empty if
// it is not known of any.
std::string TaskWaitsInWords(const v1::StackGroup& group, const TasksById& tasks) {
  const google::protobuf::Duration* longest = nullptr;
  for (uint64_t id : group.task_ids()) {
    const auto found = tasks.find(id);
    if (found == tasks.end() || !found->second->has_wait_duration()) continue;
    const google::protobuf::Duration& duration = found->second->wait_duration();
    if (longest == nullptr || duration.seconds() > longest->seconds()) longest = &duration;
  }
  if (longest == nullptr) return "";
  return (group.task_count() > 1 ? "; the longest for about " : "; for about ") + InWords(*longest);
}

// "created by main.serve at server.go:31", "the first 100 created at src/app.rs:31", most frequent first.
std::string CreatorsInWords(const v1::StackGroup& group, const TasksById& tasks) {
  std::unordered_map<std::string, int> counts;
  for (uint64_t id : group.task_ids()) {
    const auto found = tasks.find(id);
    if (found == tasks.end() || found->second->created_by().empty()) continue;
    // A tokio task has the place alone.
    ++counts[(found->second->kind() == v1::Task::TOKIO_TASK ? "at " : "by ") + found->second->created_by()];
  }
  if (counts.empty()) return "";
  const bool are_all = group.task_ids_size() == group.task_count();
  return (are_all ? "" : "the first " + Grouped(group.task_ids_size()) + " ") + "created " + MostFrequentFirst(counts);
}

void WriteIds(const v1::StackGroup& group, const TasksById& tasks, Piecewise* out) {
  if (group.tids_size() > 0) {
    *out << (group.tids_size() == 1 ? "  tid " : "  tids ") << Ranges({group.tids().begin(), group.tids().end()}) << "\n";
  }
  if (group.task_ids_size() == 0) return;
  if (const std::string named = TasksInWords(group, tasks); !named.empty()) {
    *out << "  named " << named << "\n";
    return;
  }
  *out << (group.task_count() == 1 ? "  id " : "  ids ") << Ranges({group.task_ids().begin(), group.task_ids().end()});
  const int64_t not_listed = group.task_count() - group.task_ids_size();
  *out << (not_listed > 0 ? " and " + Grouped(not_listed) + " others" : "") << "\n";
}

void WriteGroup(const v1::StackGroup& group, const ThreadsByTid& threads, const TasksById& tasks, Piecewise* out) {
  *out << "\n" << MembersInWords(group, threads) << "\n";
  WriteIds(group, tasks, out);
  if (!group.states().empty()) *out << "  " << StatesInWords(group, threads) << TaskWaitsInWords(group, tasks) << "\n";
  if (const std::string waits = WaitsInWords(group, threads); !waits.empty()) *out << "  " << waits << "\n";
  if (const std::string creators = CreatorsInWords(group, tasks); !creators.empty()) *out << "  " << creators << "\n";
  WriteStack(group.stack(), "  ", out);
}

// Writes the tasks that are in no group: they run, or have not said where they wait.
void WriteTasksWithoutStack(const v1::Dump& dump, v1::Task::Kind kind, std::string_view heading, Piecewise* out) {
  constexpr int kMaxShown = 20;
  int64_t count = 0;
  for (const v1::Task& task : dump.tasks()) {
    if (task.kind() != kind || task.has_stack()) continue;
    if (++count > kMaxShown) continue;
    if (count == 1) *out << "\n" << heading << ":\n";
    *out << "  id " << std::to_string(task.id()) << ": " << (task.name().empty() ? "(no name)" : Printable(task.name()))
         << (task.created_by().empty() ? "" : ", made at " + Printable(task.created_by())) << ": "
         << Printable(task.state()) << (task.tid() != 0 ? " on thread " + std::to_string(task.tid()) : "") << "\n";
  }
  if (count > kMaxShown) *out << "  and " << Grouped(count - kMaxShown) << " others\n";
}

void WriteCrashedThread(const v1::Dump& dump, const v1::Thread& thread, Piecewise* out) {
  *out << "\nThe thread that crashed: " << ThreadName(thread) << "\n  tid " << std::to_string(thread.tid()) << "\n";
  if (const v1::Stack* stack = StackOf(dump, thread)) {
    WriteStack(*stack, "  ", out);
  } else {
    *out << "  (no stack)\n";
  }
}

}  // namespace

void ExportText(const v1::Dump& dump, const Sink& sink) {
  Piecewise out(sink);
  WriteHeading(dump, &out);
  WriteFindings(dump, &out);
  ThreadsByTid threads;
  for (const v1::Thread& thread : dump.threads()) threads.emplace(thread.tid(), &thread);
  TasksById tasks;
  for (const v1::Task& task : dump.tasks()) tasks.emplace(task.id(), &task);
  const v1::Thread* crashed = CrashedThread(dump);
  if (crashed != nullptr) WriteCrashedThread(dump, *crashed, &out);
  for (const v1::StackGroup& group : dump.groups()) {
    if (!out.wanted()) return;
    const bool shown =
        crashed != nullptr && group.tids_size() == 1 && group.tids(0) == crashed->tid() && group.task_count() == 0;
    if (shown || group.is_agent()) continue;
    WriteGroup(group, threads, tasks, &out);
  }
  WriteTasksWithoutStack(dump, v1::Task::TOKIO_TASK, "Tasks without a stack", &out);
  WriteTasksWithoutStack(dump, v1::Task::VIRTUAL_THREAD, "Virtual threads that run, on the stacks of their threads", &out);
  if (dump.omitted_group_count() > 0) {
    out << "\n" << Count(dump.omitted_group_count(), "smaller group") << " left out: export the dump to see all\n";
  }
  WriteNotCaptured(dump, &out);
  WriteHarmless(dump, &out);
  WriteNotes(dump, &out);
}

}  // namespace stackd
