#include "daemon/analyze/findings/find_starved_executors.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "daemon/analyze/names/runtime_frame.h"
#include "daemon/analyze/waits/wait_function.h"

namespace stackd {
namespace {

using Finding = v1::Finding;
using Wait = v1::Wait;

// As of OpenJDK 8 to 26, some of which do not tell files.
constexpr LibraryFunction kFutureTask[] = {{"java.util.concurrent.FutureTask.get", ""}};
constexpr LibraryFunction kCompletableFuture[] = {{"java.util.concurrent.CompletableFuture.get", ""},
                                                  {"java.util.concurrent.CompletableFuture.join", ""}};
constexpr LibraryFunction kThreadPoolExecutor = {"java.util.concurrent.ThreadPoolExecutor.runWorker", ""};
// As of CPython 3.8 to 3.14.
constexpr LibraryFunction kFuture[] = {{"result", "concurrent/futures/_base.py"},
                                       {"exception", "concurrent/futures/_base.py"}};

// A way to wait for a result in a task of an executor.
struct Executor {
  std::string_view name;
  LibraryFunction works;                        // a worker is in it as long as it lives
  std::span<const LibraryFunction> for_result;  // waits for one
  LibraryFunction brings;                       // a thread that brings a result is in it; empty: any thread may
};

constexpr Executor kExecutors[] = {
    {"Java's ThreadPoolExecutor", kThreadPoolExecutor, kFutureTask, {"java.util.concurrent.FutureTask.run", ""}},
    {"Java's ThreadPoolExecutor", kThreadPoolExecutor, kCompletableFuture, {}},
    {"Python's ThreadPoolExecutor", {"_worker", "concurrent/futures/thread.py"}, kFuture, {}},
};

bool HasCallOf(const v1::Stack& stack, const LibraryFunction& function) {
  return std::ranges::any_of(stack.frames(), [&](const v1::Frame& frame) { return IsCallOf(frame, function); });
}

// A thread of the VM's looks after garbage now and then; it brings no results.
constexpr LibraryFunction kCleaner = {"jdk.internal.ref.CleanerImpl.run", ""};
// Workers of such pools may carry virtual threads, whose stacks are not known while they wait.
constexpr LibraryFunction kCarrier = {"java.util.concurrent.ForkJoinWorkerThread.run", ""};

// Whether a thread that is no worker may bring the result that others wait for. One that waits for connections or
// signals has none to bring.
bool MayBring(const WaitScene& scene, const v1::Thread& thread, const v1::Stack& stack, const Executor& executor) {
  if (HasCallOf(stack, kCarrier)) return true;
  if (!executor.brings.name.empty()) return HasCallOf(stack, executor.brings);
  const Wait::Kind kind = thread.wait().kind();
  if (!scene.MayAct(thread) || kind == Wait::ACCEPT || kind == Wait::SIGNAL) return false;
  return std::ranges::any_of(stack.frames(), IsOfRuntime) && !HasCallOf(stack, kCleaner);
}

// Whether the worker waits for a result in a task; its own functions are farther out than the task.
bool WaitsForResult(const WaitScene& scene, const v1::Thread& thread, const v1::Stack& stack, const Executor& executor) {
  if (!thread.has_wait() || thread.wait().timed() || scene.IsExplained(thread.tid())) return false;
  for (const v1::Frame& frame : stack.frames()) {
    if (IsCallOf(frame, executor.works)) return false;
    if (std::ranges::any_of(executor.for_result, [&](const auto& function) { return IsCallOf(frame, function); }))
      return true;
  }
  return false;
}

// The workers that wait; none unless each of them does and no other thread may bring a result.
std::vector<const v1::Thread*> StarvedWorkers(const WaitScene& scene, const Executor& executor) {
  std::vector<const v1::Thread*> workers;
  for (const v1::Thread& thread : scene.dump().threads()) {
    if (thread.is_agent() || thread.status() == v1::Thread::EXITED) continue;
    const v1::Stack* stack = scene.StackOf(thread);
    if (stack == nullptr) {
      return {};  // what it does is not known
    } else if (!HasCallOf(*stack, executor.works)) {
      if (MayBring(scene, thread, *stack, executor)) return {};
    } else if (WaitsForResult(scene, thread, *stack, executor)) {
      workers.push_back(&thread);
    } else {
      return {};
    }
  }
  return workers;
}

// "Demand.answer at Demand.java:12": the innermost function that asks for the result.
std::string PlaceOf(const v1::Stack& stack, const Executor& executor) {
  const auto& frames = stack.frames();
  const auto is_of_result = [&](const v1::Frame& frame) {
    return std::ranges::any_of(executor.for_result, [&](const auto& function) { return IsCallOf(frame, function); });
  };
  const auto asked = std::find_if(frames.begin(), frames.end(), is_of_result);
  const auto caller = std::find_if(asked, frames.end(), [&](const v1::Frame& frame) {
    // A frame that one of Java stands for has no name.
    return IsOfRuntime(frame) && !frame.function().empty() && !is_of_result(frame);
  });
  return caller == frames.end() ? "" : WaitScene::FrameInWords(*caller);
}

Finding Describe(const std::vector<const v1::Thread*>& workers, const Executor& executor, WaitScene* scene) {
  const v1::Thread& first = *workers[0];
  const std::string place = PlaceOf(*scene->StackOf(first), executor);
  const std::string name = scene->Name(first.tid()) + (place.empty() ? "" : " in " + place);
  const std::string of = " of " + std::string(executor.name);
  Finding finding;
  finding.set_kind(Finding::STARVED_POOL);
  finding.set_severity(Finding::SUSPICIOUS);
  finding.set_explanation((workers.size() == 1
                               ? "the only worker" + of + " waits inside of a task for the result of another: " + name
                               : "all " + std::to_string(workers.size()) + " workers" + of +
                                     " wait inside of tasks for results of others, as " + name) +
                          ": none is left to run another task");
  finding.add_details("who is to bring a result is recorded nowhere: no thread does, as far as can be seen");
  for (const v1::Thread* worker : workers) {
    finding.add_tids(worker->tid());
    scene->SetExplained(worker->tid());
  }
  return finding;
}

}  // namespace

void FindStarvedExecutors(WaitScene* scene, std::vector<Finding>* findings) {
  for (const Executor& executor : kExecutors) {
    const std::vector<const v1::Thread*> workers = StarvedWorkers(*scene, executor);
    if (!workers.empty()) findings->push_back(Describe(workers, executor, scene));
  }
}

}  // namespace stackd
