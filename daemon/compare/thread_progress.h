// How far each thread came between two dumps of one process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "daemon/compare/stack_difference.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// A thread in two dumps, and in those between them. What it points to belongs to the dumps.
struct ThreadProgress {
  int32_t tid = 0;
  const v1::Thread* before = nullptr;  // nullptr: it was not there
  const v1::Thread* after = nullptr;
  const v1::Stack* stack_before = nullptr;  // nullptr: it has none
  const v1::Stack* stack_after = nullptr;

  std::optional<int64_t> cpu_ns;  // used between the two; unset: not known
  int64_t own_cpu_ns = 0;         // of it, what the agent's handlers may have used
  double core_share = 0;          // of the time between

  StackDifference difference = StackDifference::kNone;  // the largest there was to `before`
  bool always_running = false;                          // in each dump it was on a processor, or waited for one
  bool retries = false;                                 // it was seen trying again
  size_t common_functions = 0;                          // from the thread's first one, those that it was in in each dump
  size_t inner_functions = 0;                           // how many more it was in, at most

  bool has_both_stacks() const { return stack_before != nullptr && stack_after != nullptr; }
  // It used more of the processor than the agent's handlers did, or is elsewhere.
  bool ran() const { return difference != StackDifference::kNone || cpu_ns.value_or(0) > own_cpu_ns; }
  v1::DumpComparison::Change change() const;
  const v1::Thread& last() const { return after != nullptr ? *after : *before; }
};

inline bool IsDeadlock(const v1::Finding& finding) {
  return finding.kind() == v1::Finding::DEADLOCK || finding.kind() == v1::Finding::SELF_DEADLOCK;
}

// By the dump's own findings: each waits for another of them, or for itself.
std::set<int32_t> ThreadsInCycles(const v1::Dump& dump);

// Progress of all threads, by tid.
std::vector<ThreadProgress> TrackThreads(const v1::Dump& before, const v1::Dump& after);

// Adds where the threads were in a dump between the two.
void TrackBetween(const v1::Dump& between, std::vector<ThreadProgress>* threads);

// From the beginning of one dump to the beginning of the other; 0 if the clock was set back.
int64_t TimeBetweenNs(const v1::Dump& before, const v1::Dump& after);

}  // namespace stackd
