#include "daemon/analyze/find_starved_pools.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>

#include "daemon/analyze/wait_function.h"
#include "daemon/analyze/wait_words.h"

namespace stackd {
namespace {

using Finding = v1::Finding;
using Wait = v1::Wait;

constexpr size_t kMinPool = 2;

bool IsForWorkOrResult(const Wait& wait) {
  switch (wait.kind()) {
    case Wait::CONDITION_VARIABLE:
    case Wait::SEMAPHORE:
    case Wait::ATOMIC:
    case Wait::BARRIER:
    case Wait::FUTURE:
    case Wait::JOIN:
    case Wait::FUTEX:
      return true;
    default:
      return false;
  }
}

// A call of something whose type the caller does not know: what a loop does to run a task.
bool IsErasedCall(std::string_view function) {
  constexpr std::string_view kCalls[] = {"std::function<",
                                         "std::_Function_handler<",
                                         "std::packaged_task<",
                                         "std::__future_base::_Task_state<",
                                         "std::move_only_function<",
                                         "std::__1::function<",
                                         "absl::AnyInvocable<",
                                         "folly::Function<",
                                         "boost::function",
                                         "{vtable.shim}",
                                         "core::ops::function::FnOnce"};
  return std::ranges::any_of(kCalls, [&](std::string_view call) { return function.find(call) != function.npos; });
}

// True if the wait is not that of the loop which a pool's thread idles in: between the thread's first function and the
// wait, a task was called. A future or a thread's end is what tasks wait for, too.
bool IsInsideTask(const v1::Stack& stack, const Wait& wait) {
  int root = stack.frames_size() - 1;
  const auto is_program = [&](int i) { return !stack.frames(i).function().empty() && !IsLibraryFrame(stack.frames(i)); };
  while (root >= 0 && !is_program(root)) --root;
  const int innermost = FindProgramFrame(stack, 0);
  if (innermost < 0 || innermost >= root) return false;
  if (wait.kind() == Wait::FUTURE || wait.kind() == Wait::JOIN) return true;
  for (int i = innermost; i < root; ++i) {
    if (IsErasedCall(stack.frames(i).function())) return true;
  }
  return false;
}

struct Pool {
  std::vector<const v1::Thread*> threads;
  bool is_starved = true;
};

// Whether a thread outside the pool could go on and help: it runs, or something from outside may wake it.
bool CouldHelp(const v1::Thread& thread) { return !thread.has_wait() || !EndsFromInside(thread.wait()); }

Finding Describe(WaitScene* scene, const std::string& root, const Pool& pool, bool helpless) {
  Finding finding;
  finding.set_kind(Finding::STARVED_POOL);
  finding.set_severity(helpless ? Finding::HANG : Finding::SUSPICIOUS);
  const v1::Thread& first = *pool.threads[0];
  finding.set_explanation("all " + std::to_string(pool.threads.size()) + " threads of the pool that runs " + root +
                          " wait inside of a task, as " + scene->NameAndPlace(first) + ", which " +
                          first.wait().explanation() + "; none is left to run another task");
  if (helpless) finding.add_details("no other thread of the process runs or can be woken from outside");
  for (const v1::Thread* thread : pool.threads) {
    finding.add_tids(thread->tid());
    scene->SetExplained(thread->tid());
  }
  return finding;
}

}  // namespace

void FindStarvedPools(WaitScene* scene, std::vector<Finding>* findings) {
  std::map<std::string, Pool> pools;
  std::map<std::pair<int, int>, bool> inside_task;  // by stack and kind of wait
  size_t helpers = 0;
  for (const v1::Thread& thread : scene->dump().threads()) {
    helpers += CouldHelp(thread) ? 1 : 0;
    const std::string& root = scene->Root(thread);
    const v1::Stack* stack = scene->StackOf(thread);
    if (root.empty() || stack == nullptr || thread.tid() == scene->dump().process().pid()) continue;
    Pool& pool = pools[root];
    pool.threads.push_back(&thread);
    const Wait& wait = thread.wait();
    if (!thread.has_wait() || wait.timed() || !IsForWorkOrResult(wait) || scene->IsExplained(thread.tid())) {
      pool.is_starved = false;
      continue;
    }
    const auto [inside, is_new] = inside_task.try_emplace({thread.stack(), wait.kind()});
    if (is_new) inside->second = IsInsideTask(*stack, wait);
    pool.is_starved = pool.is_starved && inside->second;
  }
  for (const auto& [root, pool] : pools) {
    if (pool.is_starved && pool.threads.size() >= kMinPool) findings->push_back(Describe(scene, root, pool, helpers == 0));
  }
}

}  // namespace stackd
