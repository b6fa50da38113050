// Unwinds the threads of a capture, many at once, and finds equal stacks.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "daemon/base/byte_budget.h"
#include "daemon/capture/capture.h"
#include "daemon/capture/named_stack.h"
#include "daemon/pipeline/pipeline_counters.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {

// The stacks of a capture, equal ones once.
struct DistinctStacks {
  std::vector<int> of_thread;  // index into `stacks`, or -1
  std::vector<NamedStack> stacks;
  std::vector<size_t> first_thread;  // of each stack: the first that has it
};

// `unwound` has one for each thread.
DistinctStacks Distinct(const Capture& capture, std::vector<NativeStack> unwound);
// Finds the stack of the thread that crashed; -1: none.
int CrashedStack(const Capture& capture, const DistinctStacks& distinct);
// Adds the stacks of tasks behind those of threads. They were unwound in the process, by the thread that ran the task.
void AddTaskStacks(const ManagedFacts& managed, DistinctStacks* distinct);
// Puts in the frames of runtimes. After naming, because an interpreter is found by the names of its functions.
void MergeManagedStacks(const Capture& capture, DistinctStacks* distinct);

// Thread-safe.
class UnwindStage {
 public:
  // `dumps`: the memory for dumps; nullptr: there is no limit.
  UnwindStage(PipelineMeasures* measures, const ByteBudget* dumps) : measures_(measures), dumps_(dumps) {}

  // Gives a stack for each thread.
  std::vector<NativeStack> Unwind(const Capture& capture);

 private:
  std::unique_ptr<Unwinder> TakeUnwinder();
  void GiveBack(std::unique_ptr<Unwinder> unwinder);

  PipelineMeasures* const measures_;
  const ByteBudget* const dumps_;
  std::mutex mutex_;
  // Kept from dump to dump, because their caches are warm.
  std::vector<std::unique_ptr<Unwinder>> idle_;
};

}  // namespace stackd
