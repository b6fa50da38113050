#include "daemon/serve/requests/dump_view.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/export/export.h"

namespace stackd {
namespace {

// Tag and length that stand before a field's content.
constexpr size_t kFieldOverheadBytes = 6;
// For the notes that say what was left out.
constexpr size_t kReserveBytes = 4096;

// What may still be added to an answer.
class Budget {
 public:
  explicit Budget(size_t bytes) : left_bytes_(bytes) {}

  bool Take(size_t content_bytes) {
    size_t bytes = content_bytes + kFieldOverheadBytes;
    if (bytes > left_bytes_) return false;
    left_bytes_ -= bytes;
    return true;
  }

 private:
  size_t left_bytes_;
};

std::string HowToGetTheRest(const v1::Dump& dump) {
  return "all of it: stackctl export " + dump.name() + ", or grpcurl -plaintext -d '{\"name\": \"" + dump.name() +
         "\"}' 127.0.0.1:7443 stackd.v1.Stackd/ExportDump";
}

// A group without what only one process has.
v1::StackGroup WithoutIds(const v1::StackGroup& group) {
  v1::StackGroup shared;
  shared.set_thread_count(group.thread_count());
  shared.set_fingerprint(group.fingerprint());
  *shared.mutable_stack() = group.stack();
  *shared.mutable_states() = group.states();
  shared.set_task_count(group.task_count());
  shared.set_is_agent(group.is_agent());
  for (v1::Frame& frame : *shared.mutable_stack()->mutable_frames()) frame.clear_address();
  return shared;
}

int32_t AddGroups(const v1::Dump& dump, bool with_ids, Budget* budget, v1::Dump* answer) {
  int32_t omitted = 0;
  for (const v1::StackGroup& stored : dump.groups()) {
    const v1::StackGroup group = with_ids ? stored : WithoutIds(stored);
    // The first that does not fit ends it: skipping large ones for small ones would break "largest first".
    if (omitted == 0 && budget->Take(group.ByteSizeLong())) {
      *answer->add_groups() = group;
    } else {
      ++omitted;
    }
  }
  return omitted;
}

// The stacks of an answer: those that its threads and tasks refer to, as long as they fit.
class AnswerStacks {
 public:
  AnswerStacks(const v1::Dump& dump, Budget* budget, v1::Dump* answer)
      : dump_(dump), budget_(*budget), answer_(*answer), new_index_(static_cast<size_t>(dump.stacks_size()), -1) {}

  // Gives `user`, a thread or a task, its stack's index in the answer, and takes it away if the stack does not fit.
  template <typename User>
  void Refer(User* user) {
    if (!user->has_stack()) return;
    const int32_t old = user->stack();
    user->clear_stack();
    if (old < 0 || old >= dump_.stacks_size()) return;
    int32_t& index = new_index_[static_cast<size_t>(old)];
    full_ = full_ || (index < 0 && !budget_.Take(dump_.stacks(old).ByteSizeLong()));
    if (index < 0 && !full_) {
      index = answer_.stacks_size();
      *answer_.add_stacks() = dump_.stacks(old);
    }
    if (index < 0) {
      ++without_stack_;
    } else {
      user->set_stack(index);
    }
  }

  // Does so for the other stacks of a task, and drops those that do not fit.
  void ReferOthers(v1::Task* task) {
    const std::vector<int32_t> old(task->other_stacks().begin(), task->other_stacks().end());
    task->clear_other_stacks();
    for (int32_t stack : old) {
      v1::Task other;
      other.set_stack(stack);
      Refer(&other);
      if (other.has_stack()) task->add_other_stacks(other.stack());
    }
  }

  int32_t without_stack() const { return without_stack_; }
  // Whether a stack did not fit: what refers to a stack that is not there yet has none.
  bool full() const { return full_; }

 private:
  const v1::Dump& dump_;
  Budget& budget_;
  v1::Dump& answer_;
  std::vector<int32_t> new_index_;
  bool full_ = false;
  int32_t without_stack_ = 0;
};

// Returns how many were left out.
int32_t AddThreads(const v1::Dump& dump, Budget* budget, AnswerStacks* stacks, v1::Dump* answer) {
  for (const v1::Thread& thread : dump.threads()) {
    if (!budget->Take(thread.ByteSizeLong())) break;
    *answer->add_threads() = thread;
  }
  for (v1::Thread& thread : *answer->mutable_threads()) stacks->Refer(&thread);
  return dump.threads_size() - answer->threads_size();
}

// Adds tasks of small groups first: the largest say the same a thousand times. Each comes with its stack, until one does
// not fit. Returns how many were left out.
int64_t AddTasks(const v1::Dump& dump, Budget* budget, AnswerStacks* stacks, v1::Dump* answer) {
  std::vector<int64_t> users(static_cast<size_t>(dump.stacks_size()));
  const auto users_of = [&](const v1::Task& task) -> int64_t* {
    const bool known = task.has_stack() && task.stack() >= 0 && task.stack() < dump.stacks_size();
    return known ? &users[static_cast<size_t>(task.stack())] : nullptr;
  };
  for (const v1::Task& task : dump.tasks()) {
    if (int64_t* count = users_of(task)) ++*count;
  }
  std::vector<std::pair<int64_t, int>> by_users;
  for (int i = 0; i < dump.tasks_size(); ++i) {
    const int64_t* count = users_of(dump.tasks(i));
    by_users.emplace_back(count == nullptr ? 0 : *count, i);
  }
  std::ranges::sort(by_users);
  std::vector<std::pair<int, v1::Task>> chosen;
  for (const auto& [count, i] : by_users) {
    if (stacks->full() || !budget->Take(dump.tasks(i).ByteSizeLong())) break;
    chosen.emplace_back(i, dump.tasks(i));
    stacks->Refer(&chosen.back().second);
    stacks->ReferOthers(&chosen.back().second);
  }
  std::ranges::sort(chosen, {}, &std::pair<int, v1::Task>::first);
  for (auto& [i, task] : chosen) *answer->add_tasks() = std::move(task);
  return dump.tasks_size() - answer->tasks_size();
}

void AddReports(const v1::Dump& dump, Budget* budget, v1::Dump* answer) {
  for (const v1::RuntimeReport& report : dump.reports()) {
    if (budget->Take(report.ByteSizeLong())) *answer->add_reports() = report;
  }
}

void AddModules(const v1::Dump& dump, Budget* budget, v1::Dump* answer) {
  for (const v1::Module& module : dump.modules()) {
    if (budget->Take(module.ByteSizeLong())) *answer->add_modules() = module;
  }
}

// A finding without the threads concerned, which may be thousands.
v1::Finding Sentence(const v1::Finding& finding) {
  v1::Finding sentence;
  sentence.set_kind(finding.kind());
  sentence.set_severity(finding.severity());
  sentence.set_explanation(finding.explanation());
  return sentence;
}

// Returns how many lines were left out.
int64_t AddLines(const v1::Dump& dump, Budget* budget, v1::Dump* answer) {
  std::string line;
  int64_t omitted = 0;
  auto add = [&] {
    if (omitted == 0 && budget->Take(line.size())) {
      *answer->add_lines() = line;
    } else {
      ++omitted;
    }
    line.clear();
  };
  ExportText(dump, [&](std::string_view piece) {
    for (size_t end; (end = piece.find('\n')) != std::string_view::npos; piece.remove_prefix(end + 1)) {
      line += piece.substr(0, end);
      add();
    }
    line += piece;
    return true;
  });
  if (!line.empty()) add();
  return omitted;
}

void AddText(const v1::Dump& dump, Budget* budget, v1::Dump* answer) {
  int64_t omitted_lines = AddLines(dump, budget, answer);
  if (omitted_lines == 0) return;
  answer->set_omitted_group_count(dump.groups_size());
  std::string note =
      std::to_string(omitted_lines) + " lines are left out to keep this answer below 4 MiB; " + HowToGetTheRest(dump);
  answer->add_lines("note: " + note);
  answer->add_notes(note);
}

void AddFindings(const v1::Dump& dump, Budget* budget, v1::Dump* answer) {
  for (int i = 0; i < dump.findings_size(); ++i) {
    if (budget->Take(dump.findings(i).ByteSizeLong())) *answer->mutable_findings(i) = dump.findings(i);
  }
}

void AddContent(const v1::Dump& dump, Budget* budget, v1::Dump* answer) {
  AnswerStacks stacks(dump, budget, answer);
  AddFindings(dump, budget, answer);
  for (const v1::FingerprintFrame& frame : dump.crash().fingerprint_frames()) {
    if (budget->Take(frame.ByteSizeLong())) *answer->mutable_crash()->add_fingerprint_frames() = frame;
  }
  for (const v1::FingerprintFrame& frame : dump.hang().fingerprint_frames()) {
    if (budget->Take(frame.ByteSizeLong())) *answer->mutable_hang()->add_fingerprint_frames() = frame;
  }
  int32_t groups = AddGroups(dump, true, budget, answer);
  int32_t threads = AddThreads(dump, budget, &stacks, answer);
  AddModules(dump, budget, answer);
  AddReports(dump, budget, answer);
  // Last, because there may be a hundred thousand.
  int64_t tasks = AddTasks(dump, budget, &stacks, answer);
  answer->set_omitted_group_count(groups);
  if (groups == 0 && threads == 0 && tasks == 0 && stacks.without_stack() == 0) return;
  answer->add_notes(std::to_string(groups) + " of " + std::to_string(dump.groups_size()) + " groups, " +
                    std::to_string(threads) + " threads" + (tasks > 0 ? ", " + std::to_string(tasks) + " tasks" : "") +
                    " and the stacks of " + std::to_string(stacks.without_stack()) +
                    " more are left out to keep this answer below 4 MiB; " + HowToGetTheRest(dump));
}

void AddGroupsAlone(const v1::Dump& dump, Budget* budget, v1::Dump* answer) {
  AddFindings(dump, budget, answer);
  answer->set_omitted_group_count(AddGroups(dump, false, budget, answer));
  if (answer->omitted_group_count() == 0) return;
  answer->add_notes(std::to_string(answer->omitted_group_count()) + " of " + std::to_string(dump.groups_size()) +
                    " groups are left out to keep this answer below 4 MiB; " + HowToGetTheRest(dump));
}

}  // namespace

v1::Dump BasicView(const v1::Dump& dump) {
  v1::Dump basic;
  basic.set_name(dump.name());
  if (dump.has_process()) *basic.mutable_process() = dump.process();
  basic.set_trigger(dump.trigger());
  basic.set_state(dump.state());
  if (dump.has_create_time()) *basic.mutable_create_time() = dump.create_time();
  if (dump.has_capture_duration()) *basic.mutable_capture_duration() = dump.capture_duration();
  if (dump.has_thread_counts()) *basic.mutable_thread_counts() = dump.thread_counts();
  if (dump.has_pause()) *basic.mutable_pause() = dump.pause();
  *basic.mutable_notes() = dump.notes();
  basic.set_stored(dump.stored());
  if (dump.has_crash()) {
    *basic.mutable_crash() = dump.crash();
    basic.mutable_crash()->clear_fingerprint_frames();
  }
  if (dump.has_hang()) {
    *basic.mutable_hang() = dump.hang();
    basic.mutable_hang()->clear_fingerprint_frames();
  }
  *basic.mutable_runtimes() = dump.runtimes();
  basic.set_task_count(dump.task_count());
  for (const v1::Finding& finding : dump.findings()) *basic.add_findings() = Sentence(finding);
  return basic;
}

v1::Dump ViewOf(const v1::Dump& dump, v1::DumpView view, size_t budget_bytes) {
  v1::Dump answer = BasicView(dump);
  size_t spent_bytes = answer.ByteSizeLong() + kReserveBytes;
  Budget budget(budget_bytes > spent_bytes ? budget_bytes - spent_bytes : 0);
  if (view == v1::DUMP_VIEW_GROUPS) AddGroupsAlone(dump, &budget, &answer);
  if (view == v1::DUMP_VIEW_TEXT) AddText(dump, &budget, &answer);
  if (view == v1::DUMP_VIEW_FULL || view == v1::DUMP_VIEW_UNSPECIFIED) AddContent(dump, &budget, &answer);
  return answer;
}

}  // namespace stackd
