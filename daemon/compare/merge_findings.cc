#include "daemon/compare/merge_findings.h"

#include <algorithm>
#include <set>
#include <utility>

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

}  // namespace

std::vector<v1::Finding> MergeFindings(const v1::Dump& before, const v1::Dump& after, std::vector<v1::Finding> loops) {
  std::vector<v1::Finding> merged = std::move(loops);
  for (const v1::Finding& finding : after.findings()) {
    merged.push_back(finding);
    merged.back().add_details(IsIn(finding, before) ? "it is in both dumps" : "it is in the later dump only");
  }
  for (const v1::Finding& finding : before.findings()) {
    if (IsIn(finding, after)) continue;
    merged.push_back(finding);
    merged.back().add_details("it was in the first dump only");
  }
  std::ranges::stable_sort(merged, {}, Rank);
  return merged;
}

}  // namespace stackd
