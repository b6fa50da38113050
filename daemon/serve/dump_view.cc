#include "daemon/serve/dump_view.h"

#include <string>
#include <string_view>
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

int32_t AddGroups(const v1::Dump& dump, Budget* budget, v1::Dump* answer) {
  int32_t omitted = 0;
  for (const v1::StackGroup& group : dump.groups()) {
    // The first that does not fit ends it: skipping large ones for small ones would break "largest first".
    if (omitted == 0 && budget->Take(group.ByteSizeLong())) {
      *answer->add_groups() = group;
    } else {
      ++omitted;
    }
  }
  return omitted;
}

// Threads, with the stacks they refer to as long as those fit. Returns how many threads were left out.
int32_t AddThreads(const v1::Dump& dump, Budget* budget, v1::Dump* answer, int32_t* without_stack) {
  std::vector<int32_t> new_index(static_cast<size_t>(dump.stacks_size()), -1);
  for (const v1::Thread& thread : dump.threads()) {
    if (!budget->Take(thread.ByteSizeLong())) return dump.threads_size() - answer->threads_size();
    *answer->add_threads() = thread;
  }
  bool full = false;
  for (v1::Thread& thread : *answer->mutable_threads()) {
    if (!thread.has_stack()) continue;
    int32_t old = thread.stack();
    if (old < 0 || old >= dump.stacks_size()) {
      thread.clear_stack();
      continue;
    }
    int32_t& index = new_index[static_cast<size_t>(old)];
    full = full || (index < 0 && !budget->Take(dump.stacks(old).ByteSizeLong()));
    if (index < 0 && !full) {
      index = answer->stacks_size();
      *answer->add_stacks() = dump.stacks(old);
    }
    if (index >= 0) {
      thread.set_stack(index);
    } else {
      thread.clear_stack();
      ++*without_stack;
    }
  }
  return 0;
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
  int32_t without_stack = 0;
  AddFindings(dump, budget, answer);
  for (const v1::FingerprintFrame& frame : dump.crash().fingerprint_frames()) {
    if (budget->Take(frame.ByteSizeLong())) *answer->mutable_crash()->add_fingerprint_frames() = frame;
  }
  int32_t groups = AddGroups(dump, budget, answer);
  int32_t threads = AddThreads(dump, budget, answer, &without_stack);
  AddModules(dump, budget, answer);
  answer->set_omitted_group_count(groups);
  if (groups == 0 && threads == 0 && without_stack == 0) return;
  answer->add_notes(std::to_string(groups) + " of " + std::to_string(dump.groups_size()) + " groups, " +
                    std::to_string(threads) + " threads and the stacks of " + std::to_string(without_stack) +
                    " more are left out to keep this answer below 4 MiB; " + HowToGetTheRest(dump));
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
  if (dump.has_hang()) *basic.mutable_hang() = dump.hang();
  for (const v1::Finding& finding : dump.findings()) *basic.add_findings() = Sentence(finding);
  return basic;
}

v1::Dump ViewOf(const v1::Dump& dump, v1::DumpView view, size_t budget_bytes) {
  v1::Dump answer = BasicView(dump);
  size_t spent_bytes = answer.ByteSizeLong() + kReserveBytes;
  Budget budget(budget_bytes > spent_bytes ? budget_bytes - spent_bytes : 0);
  if (view == v1::DUMP_VIEW_TEXT) AddText(dump, &budget, &answer);
  if (view == v1::DUMP_VIEW_FULL || view == v1::DUMP_VIEW_UNSPECIFIED) AddContent(dump, &budget, &answer);
  return answer;
}

}  // namespace stackd
