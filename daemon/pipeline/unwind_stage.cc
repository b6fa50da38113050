#include "daemon/pipeline/unwind_stage.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "daemon/base/run_beside.h"
#include "daemon/managed/merge.h"
#include "daemon/pipeline/frame_budget.h"
#include "daemon/unwind/stored_jit_frames.h"

namespace stackd {
namespace {

// From here on a second unwinder pays for the thread that runs it.
constexpr size_t kThreadsPerUnwinder = 128;

// Finds what runtimes know of the thread; nullptr: none knows it.
const ManagedThread* ManagedOf(const Capture& capture, size_t thread) {
  const auto managed = capture.managed.threads.find(capture.threads[thread].tid);
  return managed == capture.managed.threads.end() ? nullptr : &managed->second;
}

const std::vector<ManagedStack>& ManagedStacksOf(const Capture& capture, size_t thread) {
  static const std::vector<ManagedStack> kNone;
  const ManagedThread* managed = ManagedOf(capture, thread);
  return managed == nullptr ? kNone : managed->stacks;
}

uint64_t StackPointerOf(const Capture& capture, size_t thread) {
  return capture.threads[thread].registers.value[Registers::kRsp];
}

// Equal for two stacks that went through the same instructions in the same way, wherever they lie in memory.
std::string StackKey(const NativeStack& stack) {
  std::string key;
  key.reserve(stack.frames.size() * 9 + 1);
  for (const NativeFrame& frame : stack.frames) {
    key.append(reinterpret_cast<const char*>(&frame.pc_avma), sizeof(frame.pc_avma));
    key.push_back(static_cast<char>(frame.origin));
  }
  key.push_back(static_cast<char>(stack.end));
  return key;
}

}  // namespace

std::unique_ptr<Unwinder> UnwindStage::TakeUnwinder() {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Unwinder>();
  auto unwinder = std::move(idle_.back());
  idle_.pop_back();
  return unwinder;
}

void UnwindStage::GiveBack(std::unique_ptr<Unwinder> unwinder) {
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(unwinder));
}

std::vector<NativeStack> UnwindStage::Unwind(const Capture& capture) {
  std::vector<NativeStack> result(capture.threads.size());
  std::atomic<size_t> next = 0;
  std::atomic<int64_t> frames = 0;
  auto work = [&] {
    std::unique_ptr<Unwinder> unwinder = TakeUnwinder();
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < result.size();) {
      const ThreadCapture& thread = capture.threads[i];
      if (!thread.has_stack) continue;
      const ManagedThread* managed = ManagedOf(capture, i);
      StoredJitFrames jit(managed == nullptr ? std::span<const JitFrame>() : managed->jit_frames);
      result[i] = unwinder->Unwind(thread.registers, thread.stack, thread.stack_truncated, *capture.map,
                                   managed == nullptr || managed->jit_frames.empty() ? nullptr : &jit);
      ++measures_->stacks_by_end[static_cast<size_t>(result[i].end)];
      const bool has_crashed = capture.crash && capture.crash->tid == thread.tid;
      if (!has_crashed) CutIfMany(dumps_, &frames, &result[i]);
    }
    GiveBack(std::move(unwinder));
  };
  size_t workers = std::min<size_t>(capture.threads.size() / kThreadsPerUnwinder, std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < workers; ++i) others.push_back(RunBeside(work));
    work();
  }
  return result;
}

DistinctStacks Distinct(const Capture& capture, std::vector<NativeStack> unwound) {
  DistinctStacks result;
  result.of_thread.assign(unwound.size(), -1);
  ManagedKeys managed_keys;
  std::unordered_map<std::string, int> known;
  for (size_t i = 0; i < unwound.size(); ++i) {
    if (!capture.threads[i].has_stack && ManagedStacksOf(capture, i).empty()) continue;
    std::string key = StackKey(unwound[i]);
    key += managed_keys.Of(ManagedStacksOf(capture, i), StackPointerOf(capture, i), unwound[i]);
    auto [entry, is_new] = known.try_emplace(std::move(key), static_cast<int>(result.stacks.size()));
    if (is_new) {
      result.stacks.push_back({std::move(unwound[i]), {}});
      result.first_thread.push_back(i);
    }
    result.of_thread[i] = entry->second;
  }
  return result;
}

int CrashedStack(const Capture& capture, const DistinctStacks& distinct) {
  const int32_t tid = capture.crash ? capture.crash->tid : 0;
  const auto thread = std::ranges::find(capture.threads, tid, &ThreadCapture::tid);
  return thread == capture.threads.end() ? -1 : distinct.of_thread[static_cast<size_t>(thread - capture.threads.begin())];
}

void AddTaskStacks(const ManagedFacts& managed, DistinctStacks* distinct) {
  for (const NativeTaskStack& task : managed.native_task_stacks) {
    NativeStack native{.frames = {}, .end = task.cut ? StackEnd::kFrameLimit : StackEnd::kRoot};
    native.frames.reserve(task.return_avmas.size());
    for (uint64_t avma : task.return_avmas) {
      native.frames.push_back({.pc_avma = avma, .cfa_avma = 0, .origin = FrameOrigin::kCfi});
    }
    distinct->stacks.push_back({std::move(native), {}});
  }
}

void MergeManagedStacks(const Capture& capture, DistinctStacks* distinct) {
  for (size_t i = 0; i < distinct->first_thread.size(); ++i) {
    const size_t thread = distinct->first_thread[i];
    const std::vector<ManagedStack>& managed = ManagedStacksOf(capture, thread);
    if (!managed.empty()) MergeManaged(managed, StackPointerOf(capture, thread), &distinct->stacks[i]);
  }
}

}  // namespace stackd
