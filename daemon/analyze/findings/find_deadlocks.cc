#include "daemon/analyze/findings/find_deadlocks.h"

#include <map>
#include <string>

#include "daemon/analyze/waits/wait_graph.h"
#include "daemon/analyze/waits/wait_words.h"

namespace stackd {
namespace {

using Finding = v1::Finding;
using Wait = v1::Wait;

// No sentence names more threads.
constexpr size_t kMaxToldEdges = 4;

std::vector<WaitEdge> EdgesOf(const v1::Dump& dump) {
  std::vector<WaitEdge> edges;
  for (const v1::Thread& thread : dump.threads()) {
    if (!thread.has_wait() || thread.wait().owner() != Wait::KNOWN) continue;
    edges.push_back({thread.tid(), thread.wait().owner_tid(), 0});
  }
  return edges;
}

// "waits for mutex 0x12 (g_a in .bss of bank)", "waits for thread b (tid 2) to end"
std::string WaitInWords(const WaitScene& scene, const Wait& wait) {
  if (wait.kind() == Wait::JOIN) return "waits for " + scene.Name(wait.owner_tid()) + " to end";
  return ShortWait(wait, "");
}

std::string OwnerPart(const WaitScene& scene, const Wait& wait, int32_t waiter_tid) {
  if (wait.kind() == Wait::JOIN) return "";
  const std::string note = wait.owner_note().empty() ? "" : " (" + wait.owner_note() + ")";
  return HeldBy(wait) + (wait.owner_tid() == waiter_tid ? "itself" : scene.Name(wait.owner_tid())) + note;
}

std::string ExplainSelfDeadlock(WaitScene* scene, const v1::Thread& thread) {
  const Wait& wait = thread.wait();
  if (!wait.owner_note().empty()) {
    return scene->NameAndPlace(thread) + " waits for itself: it " + WaitInWords(*scene, wait) + ", which it has already (" +
           wait.owner_note() + ")";
  }
  return scene->NameAndPlace(thread) + " waits for itself: it " + WaitInWords(*scene, wait) + ", which it holds already";
}

// Which thread waits for what stands in the details.
std::string ExplainCycle(const WaitScene& scene, const std::vector<WaitEdge>& cycle) {
  std::string text = std::to_string(cycle.size()) + " threads wait for each other in a circle: ";
  for (size_t i = 0; i < cycle.size(); ++i) {
    if (i == kMaxToldEdges) return text + " and " + std::to_string(cycle.size() - kMaxToldEdges) + " more";
    text += (i > 0 ? ", " : "") + scene.Name(cycle[i].waiter_tid);
  }
  return text;
}

// The threads that are not in a cycle but wait for one that is, directly or not; by the lowest tid of the cycle.
std::map<int32_t, std::vector<int32_t>> WaitersBehind(const std::vector<WaitEdge>& edges,
                                                      const std::map<int32_t, int32_t>& cycle_of) {
  std::map<int32_t, int32_t> owner_of;
  for (const WaitEdge& edge : edges) owner_of.emplace(edge.waiter_tid, edge.owner_tid);
  std::map<int32_t, int32_t> leads_to = cycle_of;  // 0: to no cycle
  std::map<int32_t, std::vector<int32_t>> behind;
  for (const WaitEdge& edge : edges) {
    std::vector<int32_t> path;
    int32_t tid = edge.waiter_tid;
    while (!leads_to.contains(tid) && owner_of.contains(tid)) {
      path.push_back(tid);
      tid = owner_of[tid];
    }
    const int32_t cycle = leads_to.contains(tid) ? leads_to[tid] : 0;
    for (int32_t on_path : path) {
      leads_to[on_path] = cycle;
      if (cycle != 0) behind[cycle].push_back(on_path);
    }
  }
  return behind;
}

Finding DescribeCycle(WaitScene* scene, const std::vector<WaitEdge>& cycle, const std::vector<int32_t>& behind) {
  Finding finding;
  const bool is_self = cycle.size() == 1;
  finding.set_kind(is_self ? Finding::SELF_DEADLOCK : Finding::DEADLOCK);
  finding.set_severity(Finding::HANG);
  finding.set_explanation(is_self ? ExplainSelfDeadlock(scene, *scene->Find(cycle[0].waiter_tid))
                                  : ExplainCycle(*scene, cycle));
  for (const WaitEdge& edge : cycle) {
    const v1::Thread& thread = *scene->Find(edge.waiter_tid);
    const Wait& wait = thread.wait();
    Finding::Edge& added = *finding.add_edges();
    added.set_waiter_tid(edge.waiter_tid);
    added.set_owner_tid(edge.owner_tid);
    added.set_lock(wait.kind() == Wait::JOIN ? "end of " + scene->Name(edge.owner_tid) : WaitedThing(wait));
    added.set_kind(wait.kind());
    finding.add_tids(edge.waiter_tid);
    scene->SetExplained(edge.waiter_tid);
    if (!is_self) {
      finding.add_details(scene->NameAndPlace(thread) + " " + WaitInWords(*scene, wait) +
                          OwnerPart(*scene, wait, edge.waiter_tid));
    }
    if (wait.timed()) {
      finding.set_severity(Finding::SUSPICIOUS);
      finding.add_details(scene->Name(edge.waiter_tid) + " gives up after a time");
    }
  }
  if (!behind.empty()) {
    finding.add_details(MoreWaitInWords(behind.size()) + " for what these have");
  }
  for (int32_t tid : behind) {
    finding.add_tids(tid);
    scene->SetExplained(tid);
  }
  return finding;
}

}  // namespace

void FindDeadlocks(WaitScene* scene, std::vector<Finding>* findings) {
  const std::vector<WaitEdge> edges = EdgesOf(scene->dump());
  const std::vector<std::vector<WaitEdge>> cycles = FindCycles(edges);
  std::map<int32_t, int32_t> cycle_of;
  for (const auto& cycle : cycles) {
    for (const WaitEdge& edge : cycle) cycle_of[edge.waiter_tid] = cycle[0].waiter_tid;
  }
  const auto behind = WaitersBehind(edges, cycle_of);
  for (const auto& cycle : cycles) {
    const auto waiters = behind.find(cycle[0].waiter_tid);
    findings->push_back(DescribeCycle(scene, cycle, waiters == behind.end() ? std::vector<int32_t>() : waiters->second));
  }
}

}  // namespace stackd
