#include "daemon/analyze/findings/find_starved_tokio.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "daemon/analyze/names/runtime_frame.h"

namespace stackd {
namespace {

using Finding = v1::Finding;
using Wait = v1::Wait;

// A worker is in the first as long as its runtime lives, and in the second as long as a task runs on it. One that said
// before that it would block has given its tasks to another. As of tokio 1.0 to 1.52.
constexpr std::string_view kWorker = "tokio::runtime::scheduler::multi_thread::worker::run";
constexpr std::string_view kTask = "tokio::runtime::scheduler::multi_thread::worker::Context::run_task";
constexpr std::string_view kGivesWay = "tokio::runtime::scheduler::multi_thread::worker::block_in_place";

struct Worker {
  bool is_one = false;
  bool is_in_task = false;
};

Worker Look(const WaitScene& scene, const v1::Thread& thread) {
  const v1::Stack* stack = scene.StackOf(thread);
  Worker worker;
  if (stack == nullptr || thread.is_agent()) return worker;
  for (const v1::Frame& frame : stack->frames()) {
    const std::string function = PlainFunctionOf(frame);
    if (function.starts_with(kGivesWay)) return {};
    worker.is_in_task |= function == kTask;
    worker.is_one |= function == kWorker;
  }
  return worker;
}

// Whether another thread of the process has to end the wait, and time does not.
bool WaitsForProcess(const v1::Thread& thread) {
  if (!thread.has_wait() || thread.wait().timed()) return false;
  switch (thread.wait().kind()) {
    case Wait::CONDITION_VARIABLE:
    case Wait::SEMAPHORE:
    case Wait::JOIN:
    case Wait::BARRIER:
    case Wait::ATOMIC:
    case Wait::FUTEX:
    case Wait::FUTURE:
      return true;
    default:
      return IsLockWait(thread.wait().kind());
  }
}

Finding Describe(const std::vector<const v1::Thread*>& workers, WaitScene* scene) {
  const bool is_helpless =
      std::ranges::none_of(scene->dump().threads(), [scene](const v1::Thread& thread) { return scene->MayAct(thread); });
  Finding finding;
  finding.set_kind(Finding::STARVED_POOL);
  finding.set_severity(is_helpless ? Finding::HANG : Finding::SUSPICIOUS);
  const v1::Thread& first = *workers[0];
  const std::string who = workers.size() == 1
                              ? "the only worker of tokio waits inside of a task: "
                              : "all " + std::to_string(workers.size()) + " workers of tokio wait inside of tasks, as ";
  finding.set_explanation(who + scene->NameAndPlace(first) + ", which " + first.wait().explanation() +
                          ": none is left to run another task");
  for (const v1::Thread* worker : workers) {
    finding.add_tids(worker->tid());
    // The queue of a lock says more, and is told too.
    if (!IsLockWait(worker->wait().kind())) scene->SetExplained(worker->tid());
  }
  return finding;
}

}  // namespace

void FindStarvedTokio(WaitScene* scene, std::vector<Finding>* findings) {
  std::vector<const v1::Thread*> workers;
  for (const v1::Thread& thread : scene->dump().threads()) {
    const Worker worker = Look(*scene, thread);
    if (!worker.is_one) continue;
    // A deadlock that has a worker is the cause, and is told.
    if (!worker.is_in_task || !WaitsForProcess(thread) || scene->IsExplained(thread.tid())) return;
    workers.push_back(&thread);
  }
  if (!workers.empty()) findings->push_back(Describe(workers, scene));
}

}  // namespace stackd
