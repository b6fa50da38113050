#include "daemon/analyze/findings/find_starved_pools.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "daemon/analyze/code/code_loop.h"
#include "daemon/analyze/names/function_name.h"
#include "daemon/analyze/names/runtime_frame.h"
#include "daemon/analyze/waits/wait_function.h"

namespace stackd {
namespace {

using Finding = v1::Finding;
using Wait = v1::Wait;

constexpr size_t kMinPool = 2;
// Each has all stacks looked through.
constexpr size_t kMaxPools = 16;

// A call of something whose type the caller does not know: what a loop does to run a task.
bool IsErasedCall(std::string_view function) {
  constexpr std::string_view kCalls[] = {"std::function<",           "std::_Function_handler<",
                                         "std::packaged_task<",      "std::__future_base::_Task_state<",
                                         "std::move_only_function<", "std::__1::function<",
                                         "absl::AnyInvocable<",      "folly::Function<",
                                         "boost::function",          "{vtable.shim}"};
  return std::ranges::any_of(kCalls, [&](std::string_view call) { return function.find(call) != function.npos; });
}

// The threads that wait for a future. Other waits may as well be those of a pool's loop for its next task.
bool WaitsForResult(const WaitScene& scene, const v1::Thread& thread) {
  return thread.wait().kind() == Wait::FUTURE && !thread.wait().timed() && !scene.IsExplained(thread.tid());
}

// Finds the functions that run one task after the other.
class TaskLoops {
 public:
  explicit TaskLoops(const WaitScene& scene) : scene_(scene) {}

  // What runs the task that the thread waits in; "" if nothing does. What starts a thread calls its function once.
  std::string Of(const v1::Thread& thread) {
    const v1::Stack* stack = scene_.StackOf(thread);
    const int task = stack == nullptr ? -1 : FindProgramFrame(*stack, 0);
    if (task < 0) return "";
    int call = task + 1;
    while (call < stack->frames_size() && !IsErasedCall(stack->frames(call).function())) ++call;
    const ProgramFrames program(*stack);
    for (int i = call + 1; i < stack->frames_size(); ++i) {
      const v1::Frame& frame = stack->frames(i);
      if (program.Contains(frame) && IsInLoop(frame)) return PlainFunctionOf(frame);
    }
    return "";
  }

 private:
  bool IsInLoop(const v1::Frame& frame) {
    const auto [known, is_new] = is_in_loop_.try_emplace(frame.address());
    if (is_new && scene_.capture().map != nullptr && !frame.address().empty()) {
      known->second = IsCalledInLoop(*scene_.capture().map, std::stoull(frame.address(), nullptr, 16));
    }
    return known->second;
  }

  const WaitScene& scene_;
  std::map<std::string, bool> is_in_loop_;  // by the address where the call returns
};

// Threads that are parked wait for one thing, until the program ends. Tasks wait for the results of others.
bool WaitForSeveral(const std::vector<const v1::Thread*>& pool) {
  std::set<std::string_view> awaited;
  for (const v1::Thread* thread : pool) awaited.insert(thread->wait().address());
  return awaited.size() > 1;
}

// The threads that have `function` on their stacks.
std::vector<const v1::Thread*> ThreadsIn(const std::string& function, const WaitScene& scene) {
  std::vector<int> is_in(scene.dump().stacks_size(), -1);
  std::vector<const v1::Thread*> threads;
  for (const v1::Thread& thread : scene.dump().threads()) {
    const v1::Stack* stack = scene.StackOf(thread);
    if (stack == nullptr) continue;
    int& known = is_in[thread.stack()];
    if (known < 0) {
      known =
          std::ranges::any_of(stack->frames(), [&](const v1::Frame& frame) { return PlainFunctionOf(frame) == function; });
    }
    if (known > 0) threads.push_back(&thread);
  }
  return threads;
}

Finding Describe(WaitScene* scene, const std::string& loop, const std::vector<const v1::Thread*>& pool) {
  const bool helpless = std::ranges::none_of(scene->dump().threads(), [scene](const v1::Thread& thread) {
    return scene->MayAct(thread) || thread.wait().kind() == Wait::SIGNAL;
  });
  const v1::Thread& first = *pool[0];
  Finding finding;
  finding.set_kind(Finding::STARVED_POOL);
  finding.set_severity(helpless ? Finding::HANG : Finding::SUSPICIOUS);
  finding.set_explanation("all " + std::to_string(pool.size()) + " threads that run tasks in " + loop +
                          " wait inside of one for a result, as " + scene->NameAndPlace(first) + ", which " +
                          first.wait().explanation() + ": none is left to run another task");
  if (helpless) finding.add_details("no thread of the process runs or will be woken from outside");
  for (const v1::Thread* thread : pool) {
    finding.add_tids(thread->tid());
    scene->SetExplained(thread->tid());
  }
  return finding;
}

}  // namespace

void FindStarvedPools(WaitScene* scene, std::vector<Finding>* findings) {
  TaskLoops task_loops(*scene);
  std::map<std::string, size_t> loops;  // and how many threads wait in tasks of each
  for (const v1::Thread& thread : scene->dump().threads()) {
    if (!WaitsForResult(*scene, thread)) continue;
    const std::string loop = task_loops.Of(thread);
    if (!loop.empty() && (loops.contains(loop) || loops.size() < kMaxPools)) ++loops[loop];
  }
  for (const auto& [loop, waiting] : loops) {
    if (waiting < kMinPool) continue;
    const std::vector<const v1::Thread*> pool = ThreadsIn(loop, *scene);
    const bool all_wait = std::ranges::all_of(pool, [&](const auto* thread) { return WaitsForResult(*scene, *thread); });
    if (all_wait && WaitForSeveral(pool)) findings->push_back(Describe(scene, loop, pool));
  }
}

}  // namespace stackd
