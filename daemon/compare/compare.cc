#include "daemon/compare/compare.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/compare/comparison_text.h"
#include "daemon/compare/merge_findings.h"
#include "daemon/compare/verdict.h"
#include "daemon/compare/words.h"
#include "daemon/export/printable.h"

namespace stackd {
namespace {

google::protobuf::Duration ToDuration(int64_t ns) {
  google::protobuf::Duration duration;
  duration.set_seconds(ns / kNsPerSecond);
  duration.set_nanos(static_cast<int32_t>(ns % kNsPerSecond));
  return duration;
}

// The place of a thread in the list: those of concern first, and what has changed before what has not.
auto Place(const JudgedThread& thread) {
  return std::tuple(RankOf(thread.verdict), -thread.progress.change(), thread.progress.tid);
}

void FillThread(const JudgedThread& judged, v1::DumpComparison::ThreadComparison* thread) {
  const ThreadProgress& progress = judged.progress;
  thread->set_tid(progress.tid);
  thread->set_name(progress.last().name());
  thread->set_change(progress.change());
  if (progress.cpu_ns.has_value()) *thread->mutable_cpu_time() = ToDuration(*progress.cpu_ns);
  thread->set_verdict(judged.verdict);
  std::string explanation = ProgressInWords(progress);
  if (progress.cpu_ns.value_or(0) > progress.own_cpu_ns) {
    explanation += "; used " + TimeInWords(*progress.cpu_ns) + ", " + ShareInWords(progress.core_share);
  }
  thread->set_explanation(std::move(explanation));
}

std::set<int32_t> ThreadsThatRan(const std::vector<ThreadProgress>& threads) {
  std::set<int32_t> ran;
  for (const ThreadProgress& thread : threads) {
    if (thread.ran()) ran.insert(thread.tid);
  }
  return ran;
}

}  // namespace

Result<DumpComparer> DumpComparer::Start(const v1::Dump& before, const v1::Dump& after) {
  const v1::Process &first = before.process(), &later = after.process();
  if (first.name() != later.name()) {
    return Error(Code::kFailedPrecondition,
                 "the two dumps are of different processes: " + Printable(first.name()) + " and " + Printable(later.name()),
                 "DIFFERENT_PROCESSES");
  }
  if (first.executable() != later.executable()) {
    return Error(Code::kFailedPrecondition,
                 "the process ran another program in between: first " + Printable(first.executable()) + ", then " +
                     Printable(later.executable()),
                 "DIFFERENT_PROCESSES");
  }
  for (const v1::Dump* dump : {&before, &after}) {
    if (!dump->threads().empty()) continue;
    return Error(Code::kFailedPrecondition, Printable(dump->name()) + " has no threads (yet): its stacks are not unwound");
  }
  return DumpComparer(before, after);
}

DumpComparer::DumpComparer(const v1::Dump& before, const v1::Dump& after)
    : before_(&before), after_(&after), threads_(TrackThreads(before, after)) {}

void DumpComparer::AddBetween(const v1::Dump& between) {
  TrackBetween(between, &threads_);
  ++dump_count_;
}

v1::DumpComparison DumpComparer::Finish() const {
  const int64_t between_ns = TimeBetweenNs(*before_, *after_);
  std::vector<v1::Finding> loops = FindLoops(threads_, between_ns);
  std::vector<JudgedThread> threads = JudgeThreads(*before_, *after_, loops, threads_);
  std::ranges::sort(threads, {}, Place);

  v1::DumpComparison comparison;
  comparison.set_before(before_->name());
  comparison.set_after(after_->name());
  *comparison.mutable_between() = ToDuration(between_ns);
  comparison.set_verdict(JudgeProcess(threads));
  for (v1::Finding& finding : MergeFindings(*before_, *after_, ThreadsThatRan(threads_), std::move(loops))) {
    *comparison.add_findings() = std::move(finding);
  }
  for (const JudgedThread& thread : threads) FillThread(thread, comparison.add_threads());
  comparison.set_explanation(ExplainComparison(comparison, threads));
  for (std::string& line : ComparisonLines(*after_, dump_count_, comparison, threads)) {
    comparison.add_lines(std::move(line));
  }
  return comparison;
}

}  // namespace stackd
