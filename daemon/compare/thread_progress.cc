#include "daemon/compare/thread_progress.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "daemon/base/clock.h"
#include "daemon/compare/retry_function.h"

namespace stackd {
namespace {

// What the kernel spends in a thread on bringing the dump's signal to it and on resuming its system call. The time in the
// handler itself is known: Thread.pause.
constexpr int64_t kSignalCostNs = 100'000;

// Other dumps in between cost a thread time as well, and nothing here tells of them. They are those that stackd takes of a
// hang by itself, or another operator's. A thread in one cycle in both dumps has hardly run, so that much is allowed to
// it.
constexpr int64_t kOtherDumpsNs = 4'000'000;

// The largest time that JSON has.
constexpr int64_t kMaxSeconds = 253'402'300'799;

template <typename SecondsAndNanos>
int64_t InMostNs(const SecondsAndNanos& time) {
  return std::clamp<int64_t>(time.nanos(), 0, kNsPerSecond - 1);
}

// Nanoseconds of a Duration. A century is more than any thread has.
int64_t InNs(const google::protobuf::Duration& duration) {
  constexpr int64_t kMost = INT64_MAX / kNsPerSecond - 1;
  return std::clamp<int64_t>(duration.seconds(), 0, kMost) * kNsPerSecond + InMostNs(duration);
}

const v1::Stack* StackOf(const v1::Dump& dump, const v1::Thread& thread) {
  const bool known = thread.has_stack() && thread.stack() >= 0 && thread.stack() < dump.stacks_size();
  if (!known || FunctionCount(dump.stacks(thread.stack())) == 0) return nullptr;
  return &dump.stacks(thread.stack());
}

bool IsRunning(const v1::Thread& thread) { return thread.state() == "running"; }

bool InSystemCall(const v1::Thread& thread) { return thread.state().starts_with("in a system call"); }

void CompareCpu(int64_t between_ns, ThreadProgress* thread) {
  if (!thread->before->has_cpu_time() || !thread->after->has_cpu_time()) return;
  thread->cpu_ns = InNs(thread->after->cpu_time()) - InNs(thread->before->cpu_time());
  thread->own_cpu_ns = InNs(thread->before->pause()) + kSignalCostNs;
  if (between_ns == 0) return;
  thread->core_share = std::min(1.0, static_cast<double>(*thread->cpu_ns) / static_cast<double>(between_ns));
}

void CompareStacks(ThreadProgress* thread) {
  const v1::Stack &before = *thread->stack_before, &after = *thread->stack_after;
  thread->difference = DifferenceOf(before, after, InSystemCall(*thread->before) && InSystemCall(*thread->after));
  thread->always_running = IsRunning(*thread->before) && IsRunning(*thread->after);
  thread->retries = IsRetrying(before) || IsRetrying(after);
  thread->common_functions = CommonFunctions(before, after);
  thread->inner_functions = std::max(FunctionCount(before), FunctionCount(after)) - thread->common_functions;
}

void Compare(int64_t between_ns, ThreadProgress* thread) {
  if (thread->before == nullptr || thread->after == nullptr) return;
  CompareCpu(between_ns, thread);
  if (thread->cpu_ns.value_or(0) < 0) {
    // No thread gets younger: this is another one, with a number that was used again.
    *thread = {.tid = thread->tid, .after = thread->after, .stack_after = thread->stack_after};
  } else if (thread->has_both_stacks()) {
    CompareStacks(thread);
  }
}

void CompareBetween(const v1::Thread& between, const v1::Stack& stack, ThreadProgress* thread) {
  const size_t functions = std::max(thread->common_functions + thread->inner_functions, FunctionCount(stack));
  const bool in_system_call = InSystemCall(*thread->before) && InSystemCall(between);
  thread->difference = std::max(thread->difference, DifferenceOf(*thread->stack_before, stack, in_system_call));
  thread->always_running = thread->always_running && IsRunning(between);
  thread->retries = thread->retries || IsRetrying(stack);
  thread->common_functions = std::min(thread->common_functions, CommonFunctions(*thread->stack_before, stack));
  thread->inner_functions = functions - thread->common_functions;
  thread->own_cpu_ns += InNs(between.pause()) + kSignalCostNs;
}

}  // namespace

v1::DumpComparison::Change ThreadProgress::change() const {
  if (before == nullptr) return v1::DumpComparison::STARTED;
  if (after == nullptr) return v1::DumpComparison::ENDED;
  if (!has_both_stacks()) return v1::DumpComparison::NOT_KNOWN;
  if (difference == StackDifference::kFunctions) return v1::DumpComparison::MOVED;
  return ran() ? v1::DumpComparison::SAME_FRAMES : v1::DumpComparison::UNCHANGED;
}

int64_t TimeBetweenNs(const v1::Dump& before, const v1::Dump& after) {
  const auto seconds = [](const v1::Dump& dump) {
    return std::clamp<int64_t>(dump.create_time().seconds(), 0, kMaxSeconds);
  };
  constexpr int64_t kMost = INT64_MAX / kNsPerSecond - 1;
  const int64_t whole = std::clamp(seconds(after) - seconds(before), -kMost, kMost) * kNsPerSecond;
  return std::max<int64_t>(0, whole + InMostNs(after.create_time()) - InMostNs(before.create_time()));
}

std::set<int32_t> ThreadsInCycles(const v1::Dump& dump) {
  std::set<int32_t> tids;
  for (const v1::Finding& finding : dump.findings()) {
    if (!IsDeadlock(finding)) continue;
    for (const v1::Finding::Edge& edge : finding.edges()) tids.insert(edge.waiter_tid());
  }
  return tids;
}

std::vector<ThreadProgress> TrackThreads(const v1::Dump& before, const v1::Dump& after) {
  std::map<int32_t, ThreadProgress> by_tid;
  for (const v1::Thread& thread : before.threads()) {
    ThreadProgress& progress = by_tid[thread.tid()];
    progress.before = &thread;
    progress.stack_before = StackOf(before, thread);
  }
  for (const v1::Thread& thread : after.threads()) {
    ThreadProgress& progress = by_tid[thread.tid()];
    progress.after = &thread;
    progress.stack_after = StackOf(after, thread);
  }
  const int64_t between_ns = TimeBetweenNs(before, after);
  const std::set<int32_t> in_cycle_before = ThreadsInCycles(before), in_cycle_after = ThreadsInCycles(after);
  std::vector<ThreadProgress> threads;
  threads.reserve(by_tid.size());
  for (auto& [tid, thread] : by_tid) {
    thread.tid = tid;
    Compare(between_ns, &thread);
    if (in_cycle_before.contains(tid) && in_cycle_after.contains(tid)) thread.own_cpu_ns += kOtherDumpsNs;
    threads.push_back(thread);
  }
  return threads;
}

void TrackBetween(const v1::Dump& between, std::vector<ThreadProgress>* threads) {
  std::unordered_map<int32_t, const v1::Thread*> by_tid;
  for (const v1::Thread& thread : between.threads()) by_tid.emplace(thread.tid(), &thread);
  for (ThreadProgress& thread : *threads) {
    const auto found = by_tid.find(thread.tid);
    if (found == by_tid.end() || !thread.has_both_stacks()) continue;
    const v1::Stack* stack = StackOf(between, *found->second);
    if (stack != nullptr) CompareBetween(*found->second, *stack, &thread);
  }
}

}  // namespace stackd
