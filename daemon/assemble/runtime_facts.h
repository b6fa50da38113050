// What runtimes say beside stacks: which they are, what they schedule by themselves, their own reports.
#pragma once

#include <vector>

#include "daemon/capture/managed.h"
#include "daemon/capture/named_stack.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// The frames of a stack that only its runtime knows.
std::vector<RuntimeFrame> RuntimeFramesOf(const ManagedStack& stack);

// Runtimes, reports and notes.
void AddRuntimes(const ManagedFacts& facts, v1::Dump* dump);

// `first_task_stack`, `first_native_task_stack`: indices into Dump.stacks of the first of `facts.task_stacks` and of
// `facts.native_task_stacks`.
void AddTasks(const ManagedFacts& facts, int first_task_stack, int first_native_task_stack, v1::Dump* dump);

}  // namespace stackd
