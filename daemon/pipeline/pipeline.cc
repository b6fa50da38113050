#include "daemon/pipeline/pipeline.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/analyze/crash/crash_cause.h"
#include "daemon/analyze/findings/finding.h"
#include "daemon/analyze/waits/wait.h"
#include "daemon/assemble/assemble.h"
#include "daemon/base/clock.h"
#include "daemon/base/run_beside.h"
#include "daemon/base/text.h"
#include "daemon/fingerprint/hang_fingerprint.h"
#include "daemon/log/log.h"
#include "daemon/managed/managed_reader.h"
#include "daemon/managed/merge.h"
#include "daemon/pipeline/dump_id.h"
#include "daemon/pipeline/crash_backlog.h"
#include "daemon/pipeline/frame_budget.h"
#include "daemon/resymbolize/earlier_stacks.h"
#include "daemon/resymbolize/module_finder.h"
#include "daemon/store/raw_capture.h"
#include "daemon/symbolize/imported_calls.h"
#include "daemon/unwind/stored_jit_frames.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {
namespace {

using SharedDump = std::shared_ptr<const v1::Dump>;
using Watchers = std::vector<std::shared_ptr<std::function<void(SharedDump)>>>;

// From here on a second unwinder pays for the thread that runs it.
constexpr size_t kThreadsPerUnwinder = 128;

// Part of a request's time that is kept for what comes behind the capture. Threads that never answer must not cost the
// names of those that did. A dump of 10,000 threads takes 25 ms there: listing those that did not answer, assembling,
// storing. A caller in a hurry would rather have fewer stacks than no answer.
int64_t NamingTimeNs(int64_t budget_ns) {
  int64_t least_ns = std::clamp<int64_t>(budget_ns * 5 / 8, 0, 30 * kNsPerMs);
  return std::clamp<int64_t>(budget_ns / 5, least_ns, kNsPerSecond / 2);
}

// Only the next crash waits for the names of a crash.
constexpr int64_t kNameCrashNs = 10 * kNsPerSecond;
constexpr int kFinishers = 2;
// At a start, the log names at most so many of the captures that were set aside.
constexpr size_t kMaxNamedSetAside = 16;
// Time to read the memory of the runtimes of a process that is held in its crash; the second where other processes wait for
// it. A whole dump of a JVM takes 20 ms on a free core, many times that where a pod has little of a busy one. At half of
// the hold (2 s) the process would write its crash to a file besides.
constexpr int64_t kReadManagedOfCrashNs = kNsPerSecond / 2;
constexpr int64_t kReadManagedInAHurryNs = 20 * kNsPerMs;

// A dump that is being made, and its result for all callers that wait for it.
struct Flight {
  explicit Flight(int64_t deadline) : deadline_ns(deadline) {}

  const int64_t deadline_ns;
  std::promise<Result<SharedDump>> promise;
  std::shared_future<Result<SharedDump>> dump = promise.get_future().share();
};

// Process and stack limit: a caller that wants deeper stacks is not served with shallow ones. A hang has a dump of its own,
// which says why it was taken, and so has an exception. A stored dump that is named anew stands here by its name, which
// looks like no process.
using FlightKey = std::tuple<std::string, uint32_t, Trigger, Quiet>;

// The stacks of a capture, equal ones once.
struct DistinctStacks {
  std::vector<int> of_thread;  // index into `stacks`, or -1
  std::vector<NamedStack> stacks;
  std::vector<size_t> first_thread;  // of each stack: the first that has it
};

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

LogField ContainerOf(const v1::Dump& dump) {
  const auto& place = dump.process().resource_attributes();
  const auto container = place.find("k8s.container.name");
  return LogField::IfKnown("k8s.container.name", container == place.end() ? "" : container->second);
}

void LogCrash(const v1::Dump& dump, bool stored) {
  Log(LogLevel::kWarning, "process crashed",
      {{"process", dump.process().display_name()},
       {"pid", dump.process().pid()},
       ContainerOf(dump),
       {"signal", dump.crash().signal_name()},
       {"explanation", dump.crash().explanation()},
       {"fingerprint", dump.crash().fingerprint()},
       {"dump", dump.name()},
       {"threads", dump.thread_counts().listed()},
       {"from_spool", dump.crash().from_spool() ? 1 : 0},
       {"stored", stored ? 1 : 0}});
}

// What is stored of a dump before its stacks are unwound.
v1::Dump HeaderOf(const Capture& capture, const std::string& id) {
  v1::Dump header = DumpHeader(capture, id);
  if (capture.crash) *header.mutable_crash() = ExplainCrash(capture, nullptr);
  return header;
}

std::string TimeInWords(int64_t wall_ns) {
  const time_t seconds = wall_ns / kNsPerSecond;
  tm utc;
  gmtime_r(&seconds, &utc);
  char text[64];
  return {text, strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &utc)};
}

class ScopedCount {
 public:
  explicit ScopedCount(std::atomic<int64_t>* count) : count_(count) { ++*count_; }
  ~ScopedCount() { --*count_; }

 private:
  std::atomic<int64_t>* count_;
};

}  // namespace

struct Pipeline::State {
  State(std::vector<std::string> file_dirs, ByteBudget* dumps) : modules(std::move(file_dirs)), dumps_budget(dumps) {}

  // What became of a capture, and how long each step took.
  struct Made {
    std::shared_ptr<v1::Dump> dump;
    std::vector<NamedStack> stacks;
    int64_t unwind_us;
    int64_t name_us;
    int64_t assemble_us;
    int64_t analyze_us;
  };

  Collector* collector;
  Symbolizer* symbolizer;
  ImportedCalls imported_calls;
  DumpStore* store;
  ModuleFinder modules;
  ManagedReader managed;
  ByteBudget* const dumps_budget;

  std::mutex mutex;
  DumpIds ids;
  std::map<FlightKey, std::shared_ptr<Flight>> flights;
  std::timed_mutex naming_anew;  // taken without the lock above
  // Kept from dump to dump, because their caches are warm.
  std::vector<std::unique_ptr<Unwinder>> idle_unwinders;
  Watchers watchers;
  std::function<std::map<int32_t, int64_t>(const std::string&)> before_capture;

  std::atomic<int64_t> running = 0, by_request = 0, by_hang = 0, by_crash = 0, by_self = 0, shared = 0, failed = 0,
                       named_anew = 0, partial = 0;
  std::atomic<int64_t> crashes_known = 0, crashes_reread = 0, set_aside = 0;
  PipelineMeasures measures;

  std::atomic<int64_t>& Captures(Trigger trigger, PipelineMeasures::Outcome outcome) {
    return measures.captures[static_cast<size_t>(trigger)][outcome];
  }
  std::atomic<int64_t> unstored = 0, unwound = 0, incomplete = 0, frames = 0, unnamed = 0;

  std::string NextId(int64_t wall_ns) {
    std::lock_guard lock(mutex);
    return ids.Next(wall_ns);
  }

  // The dump that is being made, or a new one that the caller must make and Land, if it may.
  Result<std::pair<std::shared_ptr<Flight>, bool>> Join(const FlightKey& key, int64_t deadline_ns,
                                                        const MayBegin& may_begin) {
    std::lock_guard lock(mutex);
    if (const auto found = flights.find(key); found != flights.end()) return std::pair(found->second, false);
    // With the lock held: no call may join what is then refused.
    if (may_begin) {
      if (Result<void> may = may_begin(); !may) return std::unexpected(std::move(may.error()));
    }
    return std::pair(flights.emplace(key, std::make_shared<Flight>(deadline_ns)).first->second, true);
  }

  std::function<std::map<int32_t, int64_t>(const std::string&)> BeforeCapture() {
    std::lock_guard lock(mutex);
    return before_capture;
  }

  void Land(const FlightKey& key) {
    std::lock_guard lock(mutex);
    flights.erase(key);
  }

  std::unique_ptr<Unwinder> TakeUnwinder() {
    std::lock_guard lock(mutex);
    if (idle_unwinders.empty()) return std::make_unique<Unwinder>();
    auto unwinder = std::move(idle_unwinders.back());
    idle_unwinders.pop_back();
    return unwinder;
  }

  void GiveBack(std::unique_ptr<Unwinder> unwinder) {
    std::lock_guard lock(mutex);
    idle_unwinders.push_back(std::move(unwinder));
  }

  std::vector<NativeStack> Unwind(const Capture& capture);
  void Name(const Capture& capture, int64_t deadline_ns, std::vector<NamedStack>* stacks);
  void NameByCalls(const Capture& capture, NamedStack* stack);
  std::vector<std::string> NameVariables(const std::vector<DataAddress>& addresses, int64_t deadline_ns);
  // What came of a call, or of the one that it shared, whose deadline that is.
  struct Shared {
    Result<SharedDump> dump;
    int64_t deadline_ns;
  };
  Shared Share(const FlightKey& key, int64_t deadline_ns, const MayBegin& may_begin,
               const std::function<Result<SharedDump>()>& make);
  Result<SharedDump> Make(const std::string& process_id, const CaptureRequest& request);
  // What runtimes know of the process just captured, and which of the circles that their locks make are some.
  void ReadManaged(int64_t deadline_ns, const std::shared_ptr<Capture>& capture) const;
  // What `earlier` knows of the capture stays, if it is given.
  Made Assemble(const Capture& capture, int64_t deadline_ns, const std::string& id, const EarlierStacks* earlier = nullptr);
  // `packed` is the dump. True if it is stored now.
  bool Store(const std::shared_ptr<v1::Dump>& dump, Result<PackedDump> packed, const Result<void>& raw_stored);
  void FinishCrash(UnfinishedCrash crash);
  bool FinishCrash(const Capture& capture, const std::string& id, const Result<void>& raw_stored);
  Result<std::shared_ptr<Capture>> ReadCapture(const std::string& dump_name);
  Result<SharedDump> MakeAnew(const std::string& name, int64_t deadline_ns);
  void Count(const Capture& capture, const v1::Dump& dump, const std::vector<NamedStack>& stacks);
  void Tell(const SharedDump& dump);
};

std::vector<NativeStack> Pipeline::State::Unwind(const Capture& capture) {
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
      ++measures.stacks_by_end[static_cast<size_t>(result[i].end)];
      const bool has_crashed = capture.crash && capture.crash->tid == thread.tid;
      if (!has_crashed) CutIfMany(dumps_budget, &frames, &result[i]);
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
void Pipeline::State::Name(const Capture& capture, int64_t deadline_ns, std::vector<NamedStack>* stacks) {
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
  auto locations = symbolizer->Symbolize(queries, deadline_ns);
  auto query = query_of_frame.begin();
  for (NamedStack& stack : *stacks) {
    for (size_t i = 0; i < stack.native.frames.size(); ++i, ++query) {
      stack.locations.push_back(*query == kNoQuery ? OutsideOfFiles() : locations[*query]);
    }
    NameByCalls(capture, &stack);
  }
}

// What no symbol covers has the name that it was called by, if that was from another file.
void Pipeline::State::NameByCalls(const Capture& capture, NamedStack* stack) {
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
    std::string function = imported_calls.Name(from->module, caller.pc_avma - from->bias);
    // The worker alone reads mangled names: the author of a hostile file may have written them.
    if (function.empty() || function.starts_with("_Z") || function.starts_with("_R")) continue;
    auto location = std::make_shared<SourceLocation>();
    location->frames.push_back({.function = ToValidUtf8(function)});
    stack->locations[i] = std::move(location);
  }
}

std::vector<std::string> Pipeline::State::NameVariables(const std::vector<DataAddress>& addresses, int64_t deadline_ns) {
  std::vector<AddressQuery> queries;
  for (const DataAddress& address : addresses) queries.push_back({address.module, address.svma});
  return symbolizer->NameVariables(queries, deadline_ns);
}

bool Pipeline::State::Store(const std::shared_ptr<v1::Dump>& dump, Result<PackedDump> packed,
                            const Result<void>& raw_stored) {
  Result<void> stored = packed ? store->Put(std::move(*packed)) : std::unexpected(packed.error());
  if (stored) {
    // The finished dump is there; only naming it again later is lost.
    if (!raw_stored)
      Log(LogLevel::kWarning, "raw capture not stored", {{"dump", dump->name()}, {"err", raw_stored.error().message}});
    return true;
  }
  ++unstored;
  dump->set_stored(false);
  dump->add_notes("this dump is not stored, and this answer is the only copy: " + stored.error().message);
  Log(LogLevel::kError, "dump not stored", {{"dump", dump->name()}, {"err", stored.error().message}});
  return false;
}

void Pipeline::State::Count(const Capture& capture, const v1::Dump& dump, const std::vector<NamedStack>& stacks) {
  std::atomic<int64_t>* by_trigger[] = {nullptr, &by_request, &by_hang, &by_crash, &by_self};
  ++*by_trigger[static_cast<int>(capture.trigger)];
  const bool is_partial = dump.state() == v1::Dump::PARTIAL;
  if (is_partial) ++partial;
  ++Captures(capture.trigger, is_partial ? PipelineMeasures::kPartial : PipelineMeasures::kComplete);
  measures.capture.Observe(capture.duration_ns);
  for (const ThreadCapture& thread : capture.threads) unwound += thread.has_stack ? 1 : 0;
  for (const NamedStack& stack : stacks) {
    if (stack.native.end != StackEnd::kRoot) ++incomplete;
    frames += static_cast<int64_t>(stack.native.frames.size());
    unnamed += std::count_if(stack.locations.begin(), stack.locations.end(), [](const auto& location) {
      return location->frames.empty() || location->frames.back().function.empty();
    });
  }
}

void Pipeline::State::Tell(const SharedDump& dump) {
  Watchers current;
  {
    std::lock_guard lock(mutex);
    current = watchers;
  }
  // Called without the lock, so that a watcher may end its own watching.
  for (const auto& watcher : current) (*watcher)(dump);
}

Pipeline::State::Made Pipeline::State::Assemble(const Capture& capture, int64_t deadline_ns, const std::string& id,
                                                const EarlierStacks* earlier) {
  const int64_t begin_ns = MonotonicNs();
  std::vector<NativeStack> unwound = Unwind(capture);
  if (earlier != nullptr) KeepLonger(*earlier, capture, &unwound);
  DistinctStacks distinct = Distinct(capture, std::move(unwound));
  const int64_t unwound_ns = MonotonicNs();
  AddTaskStacks(capture.managed, &distinct);
  std::string cut;
  HeldBytes held = FitFrames(dumps_budget, CrashedStack(capture, distinct), &distinct.stacks, &cut);
  Name(capture, deadline_ns, &distinct.stacks);
  if (earlier != nullptr) KeepBetter(*earlier, &distinct.stacks);
  Merge(capture, &distinct);
  const int64_t named_ns = MonotonicNs();
  auto dump = AssembleDump(
      capture, distinct.of_thread, distinct.stacks, [this](const Module& module) { return symbolizer->Quality(module); },
      id);
  const int64_t assembled_ns = MonotonicNs();
  ExplainWaits(
      capture, [&](const std::vector<DataAddress>& addresses) { return NameVariables(addresses, deadline_ns); },
      dump.get());
  FindHangs(capture, dump.get());
  if (capture.hang) AddHangFingerprint(capture.hang->loop_function, dump.get());
  if (!cut.empty()) dump->add_notes(cut);
  dump->set_stored(true);
  measures.unwind.Observe(unwound_ns - begin_ns);
  measures.symbolize.Observe(named_ns - unwound_ns);
  return {.dump = Holding(std::move(held), std::move(dump)),
          .stacks = std::move(distinct.stacks),
          .unwind_us = (unwound_ns - begin_ns) / 1000,
          .name_us = (named_ns - unwound_ns) / 1000,
          .assemble_us = (assembled_ns - named_ns) / 1000,
          .analyze_us = (MonotonicNs() - assembled_ns) / 1000};
}

void Pipeline::State::ReadManaged(int64_t deadline_ns, const std::shared_ptr<Capture>& capture) const {
  managed.Read(deadline_ns, capture);
  const auto look = [&](const std::vector<ThreadWait>& sleeping, int64_t look_deadline_ns) {
    return managed.ReadWaits(capture, sleeping, look_deadline_ns);
  };
  collector->ConfirmWaits(capture->process.id, look, deadline_ns, capture.get());
}

Result<SharedDump> Pipeline::State::Make(const std::string& process_id, const CaptureRequest& request) {
  const int64_t start_ns = MonotonicNs();
  CaptureRequest capture_request = request;
  capture_request.deadline_ns -= NamingTimeNs(request.deadline_ns - start_ns);
  if (auto notice = BeforeCapture()) capture_request.unmoved_since_ns = notice(process_id);
  Result<std::shared_ptr<Capture>> captured = collector->CaptureProcess(process_id, capture_request);
  if (!captured) {
    ++failed;
    ++Captures(request.trigger, PipelineMeasures::kFailed);
    return std::unexpected(std::move(captured.error()));
  }
  const Capture& capture = **captured;
  const int64_t captured_ns = MonotonicNs();
  // A thread that never answers costs the frames of runtimes no more than half of the time that is left.
  const int64_t half_ns = (request.deadline_ns - MonotonicNs()) / 2;
  ReadManaged(std::max(capture_request.deadline_ns, MonotonicNs() + half_ns), *captured);
  if (request.trigger == Trigger::kSelf || request.exception) collector->SayDumpIsRead(process_id);
  const int64_t read_ns = MonotonicNs();
  if (capture.map != nullptr) modules.Learn(capture.process.uid, *capture.map);
  const std::string id = NextId(capture.begin_wall_ns);

  // The raw copy is on its way to the disk while this thread unwinds.
  Result<void> raw_stored;
  std::jthread raw_writer = RunBeside([&] { raw_stored = store->PutRaw(HeaderOf(capture, id), SerializeRaw(capture)); });
  Made made = Assemble(capture, request.deadline_ns, id);
  const std::shared_ptr<v1::Dump>& dump = made.dump;
  const int64_t assembled_ns = MonotonicNs();
  Result<PackedDump> packed = DumpStore::Pack(dump);
  const int64_t packed_ns = MonotonicNs();
  if (raw_writer.joinable()) raw_writer.join();
  bool stored = Store(dump, std::move(packed), raw_stored);
  const int64_t stored_ns = MonotonicNs();
  Count(capture, *dump, made.stacks);
  Log(LogLevel::kInfo, stored ? "dump stored" : "dump made",
      {{"process", dump->process().display_name()},
       ContainerOf(*dump),
       {"dump", dump->name()},
       {"threads", dump->thread_counts().listed()},
       {"captured", dump->thread_counts().captured()},
       {"stacks", dump->stacks_size()},
       {"groups", dump->groups_size()},
       {"capture_us", (captured_ns - start_ns) / 1000},
       {"runtimes_us", (read_ns - captured_ns) / 1000},
       {"unwind_us", made.unwind_us},
       {"name_us", made.name_us},
       {"assemble_us", made.assemble_us},
       {"analyze_us", made.analyze_us},
       {"pack_us", (packed_ns - assembled_ns) / 1000},
       {"store_us", (stored_ns - packed_ns) / 1000}});
  if (capture.crash) LogCrash(*dump, stored);
  if (stored) Tell(dump);
  return dump;
}

bool Pipeline::State::FinishCrash(const Capture& capture, const std::string& id, const Result<void>& raw_stored) {
  Made made = Assemble(capture, MonotonicNs() + kNameCrashNs, id);
  v1::Dump& dump = *made.dump;
  bool stored = Store(made.dump, DumpStore::Pack(made.dump), raw_stored);
  Count(capture, dump, made.stacks);
  if (capture.crash) LogCrash(dump, stored);
  if (stored) Tell(made.dump);
  return stored;
}

Result<std::shared_ptr<Capture>> Pipeline::State::ReadCapture(const std::string& dump_name) {
  auto bytes = store->GetRaw(dump_name);
  if (!bytes) return std::unexpected(bytes.error());
  auto raw = ParseRaw(*bytes);
  if (!raw) return std::unexpected(raw.error());
  ModuleFinder::Found found = modules.Find(*raw);
  auto capture = std::make_shared<Capture>(std::move(raw->capture));
  capture->map = std::move(found.map);
  if (!found.note.empty()) capture->notes.push_back(std::move(found.note));
  return capture;
}

void Pipeline::State::FinishCrash(UnfinishedCrash crash) {
  // Before a byte of it is looked at. A store that cannot note it says so when the dump is to be stored.
  (void)store->NoteAttempt(crash.dump_name);
  if (crash.capture == nullptr) {
    ++crashes_reread;
    auto capture = ReadCapture(crash.dump_name);
    if (!capture) {
      store->EndAttempt(crash.dump_name);
      Log(LogLevel::kError, "dump not finished", {{"dump", crash.dump_name}, {"err", capture.error().message}});
      return;
    }
    crash.capture = std::move(*capture);
  }
  const bool stored = FinishCrash(*crash.capture, crash.dump_name.substr(crash.dump_name.rfind('/') + 1), {});
  if (!stored) store->EndAttempt(crash.dump_name);
}

Pipeline::State::Shared Pipeline::State::Share(const FlightKey& key, int64_t deadline_ns, const MayBegin& may_begin,
                                               const std::function<Result<SharedDump>()>& make) {
  auto joined = Join(key, deadline_ns, may_begin);
  if (!joined) return {std::unexpected(std::move(joined.error())), deadline_ns};
  auto& [flight, is_first] = *joined;
  if (is_first) {
    Result<SharedDump> dump = make();
    Land(key);
    flight->promise.set_value(dump);
    return {std::move(dump), deadline_ns};
  }
  ++shared;
  std::chrono::nanoseconds left(std::max<int64_t>(0, deadline_ns - MonotonicNs()));
  if (flight->dump.wait_for(left) != std::future_status::ready) {
    return {Error(Code::kDeadlineExceeded,
                  "another call is making this dump and was not done by this call's deadline; it will be stored"),
            deadline_ns};
  }
  return {flight->dump.get(), flight->deadline_ns};
}

Result<SharedDump> Pipeline::State::MakeAnew(const std::string& name, int64_t deadline_ns) {
  std::unique_lock turn(naming_anew, std::chrono::nanoseconds(std::max<int64_t>(0, deadline_ns - MonotonicNs())));
  if (!turn) {
    return Error(Code::kDeadlineExceeded, "other dumps are being named anew and were not done by this call's deadline");
  }
  const int64_t start_ns = MonotonicNs();
  Result<v1::Dump> stored = store->Get(name);
  if (!stored) return std::unexpected(std::move(stored.error()));
  auto capture = ReadCapture(name);
  if (!capture) return std::unexpected(std::move(capture.error()));
  for (const Mapping& mapping : (*capture)->map->mappings()) {
    if (mapping.module != nullptr) symbolizer->Forget(*mapping.module);
  }
  const EarlierStacks earlier(*stored);
  std::shared_ptr<v1::Dump> dump = Assemble(**capture, deadline_ns, name.substr(name.rfind('/') + 1), &earlier).dump;
  dump->add_notes("unwound and named anew at " + TimeInWords(WallNs()));
  Result<PackedDump> packed = DumpStore::Pack(dump);
  Result<void> replaced = packed ? store->Replace(std::move(*packed)) : std::unexpected(packed.error());
  if (!replaced) return std::unexpected(std::move(replaced.error()));
  ++named_anew;
  Log(LogLevel::kInfo, "dump named anew",
      {{"process", dump->process().display_name()}, {"dump", name}, {"took_us", (MonotonicNs() - start_ns) / 1000}});
  return dump;
}

Pipeline::Pipeline(Collector* collector, Symbolizer* symbolizer, DumpStore* store, std::vector<std::string> file_dirs,
                   ByteBudget* dumps)
    : state_(std::make_shared<State>(std::move(file_dirs), dumps)) {
  state_->collector = collector;
  state_->symbolizer = symbolizer;
  state_->store = store;
  finisher_ = std::make_unique<Finisher>(
      kFinishers, [state = state_.get()](UnfinishedCrash crash) { state->FinishCrash(std::move(crash)); });
}

Pipeline::~Pipeline() { finisher_.reset(); }

void Pipeline::AddCrash(std::shared_ptr<Capture> capture, const std::function<void()>& release) {
  const int64_t read_managed_ns = state_->collector->HurriesCrashes() ? kReadManagedInAHurryNs : kReadManagedOfCrashNs;
  state_->ReadManaged(MonotonicNs() + read_managed_ns, capture);
  const std::string id = state_->NextId(capture->begin_wall_ns);
  const v1::Dump header = HeaderOf(*capture, id);
  Result<void> raw_stored = state_->store->PutRaw(header, SerializeRaw(*capture));
  if (raw_stored) {
    release();
    finisher_->Add({header.name(), std::move(capture)});
    return;
  }
  if (raw_stored.error().code == Code::kAlreadyExists) {
    ++state_->crashes_known;
    release();
    return;
  }
  Log(LogLevel::kError, "crash not stored", {{"dump", header.name()}, {"err", raw_stored.error().message}});
  // A file waits for better times. A process waits no longer than it can, and leaves a file; what is here is told at once.
  if (!capture->crash->from_spool && state_->FinishCrash(*capture, id, raw_stored)) release();
}

void Pipeline::FinishWhatWasLeft() {
  for (std::string& name : state_->store->Unfinished()) finisher_->Add({std::move(name), nullptr});
  for (std::string& name : state_->store->UnfinishedAndSuspect()) finisher_->AddLater({std::move(name), nullptr});
  const std::vector<std::string> set_aside = state_->store->SetAside();
  state_->set_aside = std::ssize(set_aside);
  for (size_t i = 0; i < std::min(set_aside.size(), kMaxNamedSetAside); ++i) {
    Log(LogLevel::kWarning, "a stored capture ended stackd more than once: it is set aside and not tried again",
        {{"dump", set_aside[i]}, {"count", std::ssize(set_aside)}});
  }
}

Result<SharedDump> Pipeline::CreateDump(const std::string& process_id, const CaptureRequest& request,
                                        const MayBegin& may_begin) {
  ScopedCount running(&state_->running);
  const Trigger reason = request.hang || request.exception ? request.trigger : Trigger::kRequest;
  const FlightKey key(process_id, request.max_stack_bytes, reason, request.quiet);
  while (true) {
    auto [dump, deadline_ns] =
        state_->Share(key, request.deadline_ns, may_begin, [&] { return state_->Make(process_id, request); });
    // What another call had no time for, this one may have.
    bool cut_short = dump && (*dump)->state() == v1::Dump::PARTIAL && deadline_ns < request.deadline_ns - kNsPerSecond;
    if (!cut_short) return dump;
  }
}

Result<std::vector<std::string>> Pipeline::FunctionsOf(const std::string& process_id, int32_t tid, int64_t deadline_ns) {
  const CaptureRequest request{.deadline_ns = deadline_ns - NamingTimeNs(deadline_ns - MonotonicNs()), .only_tid = tid};
  auto captured = state_->collector->CaptureProcess(process_id, request);
  if (!captured) return std::unexpected(std::move(captured.error()));
  Capture& capture = **captured;
  // Drops other threads of the process that answered, too. Before runtimes are asked: a thread that was late with an answer
  // still looks at threads.
  std::erase_if(capture.threads, [&](const ThreadCapture& thread) { return thread.tid != tid; });
  state_->managed.Read(request.deadline_ns, *captured, /*frames_only=*/true);
  DistinctStacks distinct = Distinct(capture, state_->Unwind(capture));
  state_->Name(capture, deadline_ns, &distinct.stacks);
  Merge(capture, &distinct);
  std::vector<std::string> functions;
  for (size_t i = 0; i < capture.threads.size(); ++i) {
    if (distinct.of_thread[i] >= 0) AppendFunctions(distinct.stacks[distinct.of_thread[i]], &functions);
  }
  return functions;
}

Result<std::optional<v1::Finding>> Pipeline::FindDeadlock(const std::string& process_id, int64_t deadline_ns) {
  // That a process might hang is no reason to interrupt it.
  const CaptureRequest request{.deadline_ns = deadline_ns - NamingTimeNs(deadline_ns - MonotonicNs()),
                               .quiet = Quiet::kOnly};
  auto captured = state_->collector->CaptureProcess(process_id, request);
  if (!captured) return std::unexpected(std::move(captured.error()));
  state_->ReadManaged(request.deadline_ns, *captured);
  const auto made = state_->Assemble(**captured, deadline_ns, /*id=*/"");
  for (v1::Finding finding : made.dump->findings()) {
    if (finding.severity() != v1::Finding::HANG) continue;
    if (finding.kind() == v1::Finding::DEADLOCK || finding.kind() == v1::Finding::SELF_DEADLOCK) return finding;
    if (finding.kind() != v1::Finding::OWNER_UNKNOWN) continue;
    const std::set<int32_t> waiters(finding.tids().begin(), finding.tids().end());
    for (const v1::Thread& thread : made.dump->threads()) {
      if (!thread.is_agent() && !waiters.contains(thread.tid())) finding.add_tids(thread.tid());
    }
    return finding;
  }
  return std::nullopt;
}

Result<std::vector<ManagedWait>> Pipeline::ReadLockWaits(const std::string& process_id, std::vector<ThreadWait> sleeping,
                                                         int64_t deadline_ns) {
  auto outline = state_->collector->Outline(process_id);
  if (!outline) return std::unexpected(std::move(outline.error()));
  auto waits = state_->managed.ReadWaits(*outline, std::move(sleeping), deadline_ns);
  if (!waits) return Error(Code::kUnavailable, "the memory of processes/" + process_id + " could not be read in time");
  return std::move(*waits);
}

Result<SharedDump> Pipeline::Resymbolize(const std::string& name, int64_t deadline_ns, const MayBegin& may_begin) {
  ScopedCount running(&state_->running);
  return state_
      ->Share({name, 0, Trigger::kRequest, Quiet::kNever}, deadline_ns, may_begin,
              [&] { return state_->MakeAnew(name, deadline_ns); })
      .dump;
}

void Pipeline::BeforeCapture(std::function<std::map<int32_t, int64_t>(const std::string&)> notice) {
  std::lock_guard lock(state_->mutex);
  state_->before_capture = std::move(notice);
}

std::shared_ptr<void> Pipeline::Watch(std::function<void(SharedDump)> watcher) {
  auto entry = std::make_shared<std::function<void(SharedDump)>>(std::move(watcher));
  {
    std::lock_guard lock(state_->mutex);
    state_->watchers.push_back(entry);
  }
  return std::shared_ptr<void>(entry.get(), [entry, weak = std::weak_ptr<State>(state_)](void*) {
    std::shared_ptr<State> state = weak.lock();
    if (state == nullptr) return;
    std::lock_guard lock(state->mutex);
    std::erase(state->watchers, entry);
  });
}

const PipelineMeasures& Pipeline::Measures() const { return state_->measures; }

std::map<std::string, int64_t> Pipeline::Counters() const {
  return {{"dumps_request", state_->by_request},
          {"dumps_hang", state_->by_hang},
          {"dumps_crash", state_->by_crash},
          {"dumps_self", state_->by_self},
          {"dumps_shared", state_->shared},
          {"dumps_failed", state_->failed},
          {"dumps_partial", state_->partial},
          {"dumps_unstored", state_->unstored},
          {"dumps_running", state_->running},
          {"crashes_known", state_->crashes_known},
          {"crashes_reread", state_->crashes_reread},
          {"captures_set_aside", state_->set_aside},
          {"crashes_waiting", static_cast<int64_t>(finisher_->waiting())},
          {"stacks_unwound", state_->unwound},
          {"stacks_incomplete", state_->incomplete},
          {"frames", state_->frames},
          {"frames_unnamed", state_->unnamed},
          {"dumps_named_anew", state_->named_anew}};
}

}  // namespace stackd
