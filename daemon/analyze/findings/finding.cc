#include "daemon/analyze/findings/finding.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "daemon/analyze/findings/find_blocked_loops.h"
#include "daemon/analyze/findings/find_class_circles.h"
#include "daemon/analyze/findings/find_deadlocks.h"
#include "daemon/analyze/findings/find_exhausted_pools.h"
#include "daemon/analyze/findings/find_idle.h"
#include "daemon/analyze/findings/find_queues.h"
#include "daemon/analyze/findings/find_starved_executors.h"
#include "daemon/analyze/findings/find_starved_pools.h"
#include "daemon/analyze/findings/find_starved_tokio.h"
#include "daemon/analyze/findings/find_unwakeable.h"
#include "daemon/analyze/findings/find_waiting_goroutines.h"
#include "daemon/analyze/findings/wait_scene.h"
#include "daemon/base/printable.h"

namespace stackd {
namespace {

using Finding = v1::Finding;

// Limit for the findings of a dump, which goes through answers of bounded size. No reader needs more.
constexpr size_t kMaxFindings = 100;

// What made the daemon take the dump, where the waits alone do not show it.
void AddCause(const v1::Hang& hang, std::vector<Finding>* findings) {
  if (hang.cause() != v1::Hang::HEARTBEAT_MISSED && hang.cause() != v1::Hang::SPIN) return;
  Finding& finding = findings->emplace_back();
  finding.set_kind(hang.cause() == v1::Hang::SPIN ? Finding::SPINNING : Finding::HEARTBEAT_MISSED);
  finding.set_severity(Finding::HANG);
  finding.set_explanation(PrintableText(hang.explanation()));
  if (hang.tid() != 0) finding.add_tids(hang.tid());
}

bool IsWorse(const Finding& a, const Finding& b) {
  return std::make_tuple(a.severity(), a.kind(), -a.tids_size()) < std::make_tuple(b.severity(), b.kind(), -b.tids_size());
}

}  // namespace

void FindHangs(const Capture& capture, v1::Dump* dump) {
  std::vector<Finding> findings;
  WaitScene scene(capture, *dump);
  FindStopped(&scene, &findings);
  FindDeadlocks(&scene, &findings);
  FindClassCircles(&scene, &findings);
  // Before the queues: the lock of a pool says less than its name.
  FindExhaustedPools(&scene, &findings);
  FindStarvedTokio(&scene, &findings);
  FindQueues(&scene, &findings);
  FindBlockedLoops(&scene, &findings);
  FindStarvedPools(&scene, &findings);
  FindStarvedExecutors(&scene, &findings);
  FindUnwakeable(&scene, &findings);
  FindWaitingGoroutines(scene, &findings);
  AddCause(dump->hang(), &findings);
  FindIdle(&scene, &findings);

  std::ranges::stable_sort(findings, IsWorse);
  dump->clear_findings();
  for (size_t i = 0; i < findings.size() && i < kMaxFindings; ++i) *dump->add_findings() = std::move(findings[i]);
  if (findings.size() > kMaxFindings) {
    dump->add_notes(std::to_string(findings.size() - kMaxFindings) + " more findings, none worse, are left out");
  }
}

}  // namespace stackd
