#include "daemon/pipeline/stages.h"

#include <algorithm>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>

#include "daemon/analyze/findings/finding.h"
#include "daemon/analyze/waits/wait.h"
#include "daemon/assemble/assemble.h"
#include "daemon/base/clock.h"
#include "daemon/base/run_beside.h"
#include "daemon/base/text.h"
#include "daemon/fingerprint/hang_fingerprint.h"
#include "daemon/managed/merge.h"
#include "daemon/pipeline/frame_budget.h"
#include "daemon/unwind/stored_jit_frames.h"

namespace stackd {
namespace {

// From here on a second unwinder pays for the thread that runs it.
constexpr size_t kThreadsPerUnwinder = 128;

// nullptr: no runtime knows the thread.
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

// -1: none.
int CrashedStack(const Capture& capture, const DistinctStacks& distinct) {
  const int32_t tid = capture.crash ? capture.crash->tid : 0;
  const auto thread = std::ranges::find(capture.threads, tid, &ThreadCapture::tid);
  return thread == capture.threads.end() ? -1 : distinct.of_thread[static_cast<size_t>(thread - capture.threads.begin())];
}

// Gives back `held` with the last that has the dump.
std::shared_ptr<v1::Dump> Holding(HeldBytes held, std::shared_ptr<v1::Dump> dump) {
  auto both = std::make_shared<std::pair<HeldBytes, std::shared_ptr<v1::Dump>>>(std::move(held), std::move(dump));
  return {both, both->second.get()};
}

// Behind naming: an interpreter is found by the names of its functions.
void Merge(const Capture& capture, DistinctStacks* distinct) {
  for (size_t i = 0; i < distinct->first_thread.size(); ++i) {
    const size_t thread = distinct->first_thread[i];
    const std::vector<ManagedStack>& managed = ManagedStacksOf(capture, thread);
    if (!managed.empty()) MergeManaged(managed, StackPointerOf(capture, thread), &distinct->stacks[i]);
  }
}

// Adds the stacks of tasks behind those of threads. They were unwound in the process, by the thread that ran the task.
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

std::shared_ptr<const SourceLocation> OutsideOfFiles() {
  static const auto location = std::make_shared<const SourceLocation>(
      SourceLocation{{}, "no ELF file is mapped here: code made at run time, or a file that could not be had"});
  return location;
}

void KeepLonger(const EarlierStacks& earlier, const Capture& capture, std::vector<NativeStack>* unwound) {
  for (size_t i = 0; i < unwound->size(); ++i) {
    NativeStack& stack = (*unwound)[i];
    if (capture.threads[i].has_stack) stack = earlier.Longer(capture.threads[i].tid, std::move(stack));
  }
}

void KeepBetter(const EarlierStacks& earlier, std::vector<NamedStack>* stacks) {
  for (NamedStack& stack : *stacks) {
    for (size_t i = 0; i < stack.locations.size(); ++i) {
      stack.locations[i] = earlier.Better(stack.native.frames[i], std::move(stack.locations[i]));
    }
  }
}

// Appends the functions that people would be shown.
void AppendFunctions(const NamedStack& stack, std::vector<std::string>* functions) {
  auto calls = stack.runtime_calls.begin();
  for (size_t i = 0; i <= stack.locations.size(); ++i) {
    bool replaced = i == stack.locations.size();
    for (; calls != stack.runtime_calls.end() && calls->native_frame <= i; ++calls) {
      for (const RuntimeFrame& frame : calls->frames) functions->push_back(frame.function);
      replaced = replaced || calls->replaces;
    }
    if (replaced) continue;
    if (stack.locations[i]->frames.empty()) functions->emplace_back();
    for (const SourceFrame& frame : stack.locations[i]->frames) functions->push_back(frame.function);
  }
}

}  // namespace

std::unique_ptr<Unwinder> Stages::TakeUnwinder() {
  std::lock_guard lock(mutex_);
  if (idle_unwinders_.empty()) return std::make_unique<Unwinder>();
  auto unwinder = std::move(idle_unwinders_.back());
  idle_unwinders_.pop_back();
  return unwinder;
}

void Stages::GiveBack(std::unique_ptr<Unwinder> unwinder) {
  std::lock_guard lock(mutex_);
  idle_unwinders_.push_back(std::move(unwinder));
}

std::vector<NativeStack> Stages::Unwind(const Capture& capture) {
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
      if (!has_crashed) CutIfMany(dumps_budget_, &frames, &result[i]);
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

// Asks for each address once, however many stacks go through it.
void Stages::Name(const Capture& capture, int64_t deadline_ns, std::vector<NamedStack>* stacks) {
  std::vector<AddressQuery> queries;
  std::unordered_map<uint64_t, size_t> query_of_avma;
  std::vector<size_t> query_of_frame;
  constexpr size_t kNoQuery = SIZE_MAX;
  for (const NamedStack& stack : *stacks) {
    for (const NativeFrame& frame : stack.native.frames) {
      const uint64_t avma = frame.lookup_avma();
      const auto [entry, is_new] = query_of_avma.try_emplace(avma, kNoQuery);
      if (is_new) {
        const Mapping* mapping = capture.map->Find(avma);
        if (mapping != nullptr && mapping->module != nullptr) {
          entry->second = queries.size();
          queries.push_back({mapping->module, avma - mapping->bias});
        }
      }
      query_of_frame.push_back(entry->second);
    }
  }
  auto locations = symbolizer_->Symbolize(queries, deadline_ns);
  auto query = query_of_frame.begin();
  for (NamedStack& stack : *stacks) {
    for (size_t i = 0; i < stack.native.frames.size(); ++i, ++query) {
      stack.locations.push_back(*query == kNoQuery ? OutsideOfFiles() : locations[*query]);
    }
    NameByCalls(capture, &stack);
  }
}

// What no symbol covers has the name that it was called by, if that was from another file.
void Stages::NameByCalls(const Capture& capture, NamedStack* stack) {
  const std::vector<NativeFrame>& frames = stack->native.frames;
  for (size_t i = 0; i + 1 < frames.size(); ++i) {
    const NativeFrame& caller = frames[i + 1];
    const bool behind_gap = stack->native.omitted_bytes > 0 && i + 1 == stack->native.omitted_before;
    const bool called =
        caller.lookup_avma() != caller.pc_avma && !behind_gap && frames[i].origin != FrameOrigin::kSignalFrame;
    if (!stack->locations[i]->frames.empty() || frames[i].is_signal_trampoline || !called) continue;
    const Mapping* own = capture.map->Find(frames[i].lookup_avma());
    const Mapping* from = capture.map->Find(caller.lookup_avma());
    const bool between_files = own != nullptr && from != nullptr && own->module != nullptr && from->module != nullptr &&
                               own->module != from->module;
    if (!between_files) continue;
    std::string function = imported_calls_.Name(from->module, caller.pc_avma - from->bias);
    // The worker alone reads mangled names: the author of a hostile file may have written them.
    if (function.empty() || function.starts_with("_Z") || function.starts_with("_R")) continue;
    auto location = std::make_shared<SourceLocation>();
    location->frames.push_back({.function = ToValidUtf8(function)});
    stack->locations[i] = std::move(location);
  }
}

std::vector<std::string> Stages::NameVariables(const std::vector<DataAddress>& addresses, int64_t deadline_ns) {
  std::vector<AddressQuery> queries;
  for (const DataAddress& address : addresses) queries.push_back({address.module, address.svma});
  return symbolizer_->NameVariables(queries, deadline_ns);
}

MadeDump Stages::MakeDump(const Capture& capture, int64_t deadline_ns, const std::string& id,
                          const EarlierStacks* earlier) {
  const int64_t begin_ns = MonotonicNs();
  std::vector<NativeStack> unwound = Unwind(capture);
  if (earlier != nullptr) KeepLonger(*earlier, capture, &unwound);
  DistinctStacks distinct = Distinct(capture, std::move(unwound));
  const int64_t unwound_ns = MonotonicNs();
  AddTaskStacks(capture.managed, &distinct);
  std::string cut;
  HeldBytes held = FitFrames(dumps_budget_, CrashedStack(capture, distinct), &distinct.stacks, &cut);
  Name(capture, deadline_ns, &distinct.stacks);
  if (earlier != nullptr) KeepBetter(*earlier, &distinct.stacks);
  Merge(capture, &distinct);
  const int64_t named_ns = MonotonicNs();
  auto dump = AssembleDump(
      capture, distinct.of_thread, distinct.stacks, [this](const Module& module) { return symbolizer_->Quality(module); },
      id);
  const int64_t assembled_ns = MonotonicNs();
  ExplainWaits(
      capture, [&](const std::vector<DataAddress>& addresses) { return NameVariables(addresses, deadline_ns); },
      dump.get());
  FindHangs(capture, dump.get());
  if (capture.hang) AddHangFingerprint(capture.hang->loop_function, dump.get());
  if (!cut.empty()) dump->add_notes(cut);
  dump->set_stored(true);
  measures_->unwind.Observe(unwound_ns - begin_ns);
  measures_->symbolize.Observe(named_ns - unwound_ns);
  return {.dump = Holding(std::move(held), std::move(dump)),
          .stacks = std::move(distinct.stacks),
          .unwind_us = (unwound_ns - begin_ns) / 1000,
          .name_us = (named_ns - unwound_ns) / 1000,
          .assemble_us = (assembled_ns - named_ns) / 1000,
          .analyze_us = (MonotonicNs() - assembled_ns) / 1000};
}

std::vector<std::string> Stages::FunctionsOf(const Capture& capture, int64_t deadline_ns) {
  DistinctStacks distinct = Distinct(capture, Unwind(capture));
  Name(capture, deadline_ns, &distinct.stacks);
  Merge(capture, &distinct);
  std::vector<std::string> functions;
  for (const int stack : distinct.of_thread) {
    if (stack >= 0) AppendFunctions(distinct.stacks[static_cast<size_t>(stack)], &functions);
  }
  return functions;
}

}  // namespace stackd
