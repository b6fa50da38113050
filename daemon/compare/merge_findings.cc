#include "daemon/compare/merge_findings.h"

#include <algorithm>
#include <utility>

#include "daemon/compare/thread_progress.h"

namespace stackd {
namespace {

// Sentences differ in addresses and counts, so it is the threads that tell.
bool IsTheSame(const v1::Finding& a, const v1::Finding& b) {
  if (a.kind() != b.kind()) return false;
  const std::set<int32_t> tids(a.tids().begin(), a.tids().end());
  return tids.empty() || b.tids().empty() || std::ranges::any_of(b.tids(), [&](int32_t tid) { return tids.contains(tid); });
}

bool IsIn(const v1::Finding& finding, const v1::Dump& dump) {
  return std::ranges::any_of(dump.findings(), [&](const v1::Finding& other) { return IsTheSame(finding, other); });
}

// A finding of unknown severity is no worse than a harmless one.
int Rank(const v1::Finding& finding) {
  return finding.severity() == v1::Finding::SEVERITY_UNSPECIFIED ? v1::Finding::HARMLESS : finding.severity();
}

// A deadlock whose threads run is none: locks changed hands while the dump looked at them.
bool CycleRan(const v1::Finding& finding, const std::set<int32_t>& ran) {
  if (!IsDeadlock(finding)) return false;
  return std::ranges::any_of(finding.edges(), [&](const auto& edge) { return ran.contains(edge.waiter_tid()); });
}

void Withdraw(const char* reason, v1::Finding* finding) {
  if (finding->severity() == v1::Finding::HANG) finding->set_severity(v1::Finding::SUSPICIOUS);
  finding->add_details(reason);
}

}  // namespace

std::vector<v1::Finding> MergeFindings(const v1::Dump& before, const v1::Dump& after, const std::set<int32_t>& ran,
                                       std::vector<v1::Finding> loops) {
  std::vector<v1::Finding> merged = std::move(loops);
  for (const v1::Finding& finding : after.findings()) {
    merged.push_back(finding);
    const bool in_both = IsIn(finding, before);
    merged.back().add_details(in_both ? "it is in both dumps" : "it is in the later dump only");
    if (in_both && CycleRan(finding, ran)) Withdraw("but a thread of the circle ran in between", &merged.back());
  }
  for (const v1::Finding& finding : before.findings()) {
    if (IsIn(finding, after)) continue;
    merged.push_back(finding);
    Withdraw("it was in the first dump only", &merged.back());
  }
  std::ranges::stable_sort(merged, {}, Rank);
  return merged;
}

}  // namespace stackd
