#include "daemon/assemble/assemble.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <unordered_map>

#include "daemon/analyze/crash/crash_cause.h"
#include "daemon/analyze/names/signal_name.h"
#include "daemon/assemble/expand_stack.h"
#include "daemon/assemble/notes.h"
#include "daemon/assemble/runtime_facts.h"
#include "daemon/assemble/thread_state.h"
#include "daemon/assemble/with_thread_names.h"
#include "daemon/base/clock.h"
#include "daemon/base/run_beside.h"
#include "daemon/base/text.h"
#include "daemon/fingerprint/crash_fingerprint.h"
#include "stackd/ring_abi.h"

namespace stackd {
namespace {

using google::protobuf::Duration;
using google::protobuf::Timestamp;

// Shallower stacks of live threads are shown as they are.
constexpr size_t kMaxUnfoldedFrames = 64;

// A group of 100,000 tasks lists so many of them: all have the same stack.
constexpr int kMaxTaskIds = 100;

// A negative number can only be a lie of the process; as a time it would be one that JSON does not have.
Duration ToDuration(int64_t ns) {
  ns = std::max<int64_t>(ns, 0);
  Duration duration;
  duration.set_seconds(ns / kNsPerSecond);
  duration.set_nanos(static_cast<int32_t>(ns % kNsPerSecond));
  return duration;
}

Timestamp ToTimestamp(int64_t wall_ns) {
  wall_ns = std::max<int64_t>(wall_ns, 0);
  Timestamp timestamp;
  timestamp.set_seconds(wall_ns / kNsPerSecond);
  timestamp.set_nanos(static_cast<int32_t>(wall_ns % kNsPerSecond));
  return timestamp;
}

v1::Process ToProto(const ProcessDescription& description) {
  v1::Process process;
  process.set_name("processes/" + ToValidUtf8(description.id));
  process.set_pid(description.pid);
  process.set_display_name(ToValidUtf8(description.display_name));
  process.set_executable(ToValidUtf8(description.executable));
  process.set_argv0(ToValidUtf8(description.argv0));
  process.set_hostname(ToValidUtf8(description.hostname));
  process.set_uid(description.uid);
  *process.mutable_start_time() = ToTimestamp(description.start_wall_ns);
  *process.mutable_connect_time() = ToTimestamp(description.connect_wall_ns);
  process.set_agent_abi_version(description.abi_version);
  process.set_share(static_cast<v1::Process::Share>(description.share));
  for (const std::string& limit : description.limits) process.add_limits(ToValidUtf8(limit));
  process.mutable_resource_attributes()->insert(description.resource_attributes.begin(),
                                                description.resource_attributes.end());
  return process;
}

v1::ThreadCounts CountByStatus(const std::vector<ThreadCapture>& threads) {
  const auto count = [&](ThreadStatus status) {
    return static_cast<int32_t>(std::ranges::count(threads, status, &ThreadCapture::status));
  };
  v1::ThreadCounts counts;
  counts.set_listed(static_cast<int32_t>(threads.size()));
  counts.set_captured(count(ThreadStatus::kCaptured));
  counts.set_signal_blocked(count(ThreadStatus::kSignalBlocked));
  counts.set_uninterruptible(count(ThreadStatus::kUninterruptible));
  counts.set_stopped(count(ThreadStatus::kStopped));
  counts.set_exited(count(ThreadStatus::kExited));
  counts.set_timed_out(count(ThreadStatus::kTimedOut));
  counts.set_ring_full(count(ThreadStatus::kRingFull));
  counts.set_signal_queue_full(count(ThreadStatus::kSignalQueueFull));
  counts.set_agent_fault(count(ThreadStatus::kAgentFault));
  counts.set_running(count(ThreadStatus::kRunning));
  return counts;
}

v1::PauseTimes PausesOf(const std::vector<ThreadCapture>& threads) {
  std::vector<int64_t> pauses_ns;
  v1::PauseTimes pauses;
  for (const ThreadCapture& thread : threads) {
    if (thread.status != ThreadStatus::kCaptured || thread.is_agent) continue;
    if (thread.read_asleep) {
      pauses.set_not_paused(pauses.not_paused() + 1);
    } else {
      pauses_ns.push_back(thread.pause_ns);
    }
  }
  if (pauses_ns.empty()) return pauses;
  std::ranges::sort(pauses_ns);
  // The smallest pause that at least this part of the threads did not exceed.
  const auto percentile = [&](size_t percent) { return pauses_ns[(pauses_ns.size() * percent + 99) / 100 - 1]; };
  *pauses.mutable_median() = ToDuration(percentile(50));
  *pauses.mutable_p99() = ToDuration(percentile(99));
  *pauses.mutable_max() = ToDuration(pauses_ns.back());
  return pauses;
}

const char* SymbolsInWords(SymbolQuality quality) {
  switch (quality) {
    case SymbolQuality::kNone:
      return "NONE";
    case SymbolQuality::kDynsym:
      return "DYNSYM";
    case SymbolQuality::kMiniDebugInfo:
      return "MINI_DEBUG_INFO";
    case SymbolQuality::kSymtab:
      return "SYMTAB";
    case SymbolQuality::kDwarf:
      return "DWARF";
  }
  return "NONE";
}

// Adds the files that occur in stacks, by address.
void AddModules(const AddressMap& map, const std::vector<const Mapping*>& used_mappings,
                const std::function<SymbolQuality(const Module&)>& quality, v1::Dump* dump) {
  // A file that is mapped in several parts is one module.
  std::unordered_map<std::string_view, const Mapping*> used_by_path;
  for (const Mapping* mapping : used_mappings) {
    if (!mapping->path.empty()) used_by_path.try_emplace(mapping->path, mapping);
  }
  for (const Mapping& first : map.mappings()) {
    const auto used = used_by_path.find(first.path);
    if (used == used_by_path.end()) continue;
    v1::Module* module = dump->add_modules();
    module->set_path(ToValidUtf8(first.path));
    module->set_address(Hex(first.start_avma));
    module->set_symbols(SymbolsInWords(SymbolQuality::kNone));
    if (const auto& file = used->second->module; file != nullptr) {
      module->set_build_id(HexOfBytes(file->build_id()));
      module->set_symbols(SymbolsInWords(quality(*file)));
    }
    used_by_path.erase(used);
  }
}

// Distinct texts, most frequent first; of equally frequent ones, that which came first.
class Frequency {
 public:
  void Add(const std::string& text) {
    // Among a hundred thousand tasks in one place, most are in the state of the one before them.
    if (counts_.empty() || *counts_[last_].text != text) {
      const auto [entry, is_new] = index_.try_emplace(text, counts_.size());
      if (is_new) counts_.push_back({&entry->first, 0});
      last_ = entry->second;
    }
    ++counts_[last_].count;
  }

  template <typename Visit>
  void MostFrequentFirst(Visit visit) {
    std::ranges::stable_sort(counts_, std::greater(), &Counted::count);
    for (const Counted& counted : counts_) visit(*counted.text);
  }

 private:
  struct Counted {
    const std::string* text;
    int count;
  };
  std::unordered_map<std::string, size_t> index_;
  std::vector<Counted> counts_;
  size_t last_ = 0;
};

// The threads and tasks with equal function names in their stacks, as indices into Dump.threads and Dump.tasks.
struct Group {
  std::string fingerprint;
  std::vector<int> threads = {};
  std::vector<int> tasks = {};
  int32_t smallest_tid = std::numeric_limits<int32_t>::max();

  size_t size() const { return threads.size() + tasks.size(); }
};

class GroupsByStack {
 public:
  explicit GroupsByStack(const std::vector<std::string>& fingerprints)
      : fingerprints_(fingerprints), group_of_stack_(fingerprints.size(), -1) {}

  Group* Of(int stack) {
    int& group = group_of_stack_[stack];
    if (group < 0) {
      const auto [entry, is_new] = group_of_fingerprint_.try_emplace(fingerprints_[stack], groups_.size());
      if (is_new) groups_.push_back({.fingerprint = fingerprints_[stack]});
      group = static_cast<int>(entry->second);
    }
    return &groups_[group];
  }

  std::vector<Group> Take() { return std::move(groups_); }

 private:
  const std::vector<std::string>& fingerprints_;
  std::vector<int> group_of_stack_;
  std::unordered_map<std::string_view, size_t> group_of_fingerprint_;
  std::vector<Group> groups_;
};

template <typename Visit>
void ForEachStack(const v1::Task& task, Visit visit) {
  if (task.has_stack()) visit(task.stack());
  for (int stack : task.other_stacks()) visit(stack);
}

bool IsAgents(const v1::Dump& dump, const Group& group) {
  return group.tasks.empty() && std::ranges::all_of(group.threads, [&](int i) { return dump.threads(i).is_agent(); });
}

std::vector<Group> MakeGroups(const v1::Dump& dump, const std::vector<std::string>& fingerprints) {
  GroupsByStack by_stack(fingerprints);
  for (int i = 0; i < dump.threads_size(); ++i) {
    const v1::Thread& thread = dump.threads(i);
    if (!thread.has_stack()) continue;
    Group* group = by_stack.Of(thread.stack());
    group->threads.push_back(i);
    group->smallest_tid = std::min(group->smallest_tid, thread.tid());
  }
  for (int i = 0; i < dump.tasks_size(); ++i) {
    ForEachStack(dump.tasks(i), [&](int stack) {
      // A task that waits twice in one place is there once.
      std::vector<int>& tasks = by_stack.Of(stack)->tasks;
      if (tasks.empty() || tasks.back() != i) tasks.push_back(i);
    });
  }
  std::vector<Group> groups = by_stack.Take();
  std::ranges::stable_sort(groups, [&](const Group& a, const Group& b) {
    return std::make_tuple(IsAgents(dump, a), b.size(), a.smallest_tid) <
           std::make_tuple(IsAgents(dump, b), a.size(), b.smallest_tid);
  });
  // The thread that hangs is what the reader looks for.
  if (const int32_t tid = dump.hang().tid(); tid != 0) {
    std::ranges::stable_partition(groups, [&](const Group& group) {
      return std::ranges::any_of(group.threads, [&](int thread) { return dump.threads(thread).tid() == tid; });
    });
  }
  return groups;
}

// The stack that most threads and tasks of the group have.
int CommonestStack(const v1::Dump& dump, const Group& group, const std::vector<std::string>& fingerprints,
                   const std::vector<int>& users_of_stack) {
  std::vector<int> stacks;
  for (int thread : group.threads) stacks.push_back(dump.threads(thread).stack());
  for (int task : group.tasks) {
    ForEachStack(dump.tasks(task), [&](int stack) {
      if (fingerprints[stack] == group.fingerprint) stacks.push_back(stack);
    });
  }
  return *std::ranges::max_element(stacks, {}, [&](int stack) { return users_of_stack[stack]; });
}

std::vector<int> UsersOfStacks(const v1::Dump& dump) {
  std::vector<int> users(dump.stacks_size());
  for (const v1::Thread& thread : dump.threads()) {
    if (thread.has_stack()) ++users[thread.stack()];
  }
  for (const v1::Task& task : dump.tasks()) {
    ForEachStack(task, [&](int stack) { ++users[stack]; });
  }
  return users;
}

void AddTasks(const Group& group, const v1::Dump& dump, Frequency* states, v1::StackGroup* added) {
  added->set_task_count(static_cast<int64_t>(group.tasks.size()));
  for (int i : group.tasks) {
    const v1::Task& task = dump.tasks(i);
    if (added->task_ids_size() < kMaxTaskIds) added->add_task_ids(task.id());
    states->Add(task.wait_reason().empty() ? task.state() : task.wait_reason());
  }
}

void AddGroups(const std::vector<std::string>& fingerprints, v1::Dump* dump) {
  const std::vector<int> users_of_stack = UsersOfStacks(*dump);
  for (Group& group : MakeGroups(*dump, fingerprints)) {
    const int commonest = CommonestStack(*dump, group, fingerprints, users_of_stack);
    v1::StackGroup* added = dump->add_groups();
    added->set_thread_count(static_cast<int32_t>(group.threads.size()));
    added->set_is_agent(IsAgents(*dump, group));
    added->set_fingerprint(std::move(group.fingerprint));
    added->mutable_tids()->Reserve(added->thread_count());
    Frequency names, states;
    for (int i : group.threads) {
      const v1::Thread& thread = dump->threads(i);
      added->add_tids(thread.tid());
      names.Add(thread.name());
      states.Add(thread.state());
    }
    AddTasks(group, *dump, &states, added);
    names.MostFrequentFirst([&](const std::string& name) { added->add_thread_names(name); });
    states.MostFrequentFirst([&](const std::string& state) { added->add_states(state); });
    // Shared, not copied: the arena owns both.
    added->unsafe_arena_set_allocated_stack(dump->mutable_stacks(commonest));
  }
}

// What threads were doing, read from the code once for each place that some of them stand at.
class ThreadStates {
 public:
  ThreadStates(const Capture& capture, const AddressMap& map, const v1::Dump& dump)
      : capture_(capture), map_(map), dump_(dump) {}

  const std::string& Of(const ThreadCapture& thread, int stack) {
    if (capture_.crash && capture_.crash->tid == thread.tid) {
      const bool is_exception = IsUnhandledException(*capture_.crash);
      return state_ = "crashed: " + (is_exception ? "unhandled exception" : SignalName(capture_.crash->signal_number));
    }
    if (thread.status != ThreadStatus::kCaptured || !thread.has_stack) {
      return state_ = StateFromStatus(thread, capture_.dump_signal);
    }
    const uint64_t pc_avma = thread.registers.value[Registers::kRip];
    std::string& state = by_pc_[pc_avma];
    // The innermost function follows from the program counter, so any of the stacks will do.
    if (state.empty()) state = StateFromStack(map_, pc_avma, stack < 0 ? nullptr : &dump_.stacks(stack));
    if (thread.kernel_state == 'S' && state == "running") return state_ = kInPageFault;
    return state;
  }

 private:
  const Capture& capture_;
  const AddressMap& map_;
  const v1::Dump& dump_;
  std::unordered_map<uint64_t, std::string> by_pc_;
  std::string state_;
};

void AddThreads(const Capture& capture, const AddressMap& map, const std::vector<int>& stack_of_thread, v1::Dump* dump) {
  ThreadStates states(capture, map, *dump);
  dump->mutable_threads()->Reserve(static_cast<int>(capture.threads.size()));
  for (size_t i = 0; i < capture.threads.size(); ++i) {
    const ThreadCapture& captured = capture.threads[i];
    v1::Thread* thread = dump->add_threads();
    thread->set_tid(captured.tid);
    const auto managed = capture.managed.threads.find(captured.tid);
    const bool has_own_name = managed != capture.managed.threads.end() && !managed->second.name.empty();
    thread->set_name(ToValidUtf8(has_own_name ? managed->second.name : captured.name));
    thread->set_holds_gil(managed != capture.managed.threads.end() && managed->second.holds_gil);
    thread->set_status(static_cast<v1::Thread::Status>(captured.status));
    thread->set_state(states.Of(captured, stack_of_thread[i]));
    if (captured.cpu_ns > 0) *thread->mutable_cpu_time() = ToDuration(captured.cpu_ns);
    if (captured.pause_ns > 0) *thread->mutable_pause() = ToDuration(captured.pause_ns);
    thread->set_read_asleep(captured.read_asleep);
    thread->set_is_agent(captured.is_agent);
    if (!captured.wait_channel.empty()) thread->set_wait_channel(ToValidUtf8(captured.wait_channel));
    if (stack_of_thread[i] >= 0) thread->set_stack(stack_of_thread[i]);
  }
}

std::vector<int> ThreadsOfStacks(const std::vector<int>& stack_of_thread, size_t stack_count) {
  std::vector<int> threads_of_stack(stack_count);
  for (int stack : stack_of_thread) {
    if (stack >= 0) ++threads_of_stack[stack];
  }
  return threads_of_stack;
}

v1::Hang ToProto(const HangCapture& hang, const std::vector<ThreadCapture>& threads) {
  v1::Hang result;
  result.set_cause(static_cast<v1::Hang::Cause>(hang.cause));
  result.set_explanation(ToValidUtf8(WithThreadNames(hang.explanation, threads)));
  result.set_tid(hang.tid);
  result.set_heartbeat(ToValidUtf8(hang.heartbeat));
  *result.mutable_duration() = ToDuration(hang.duration_ns);
  result.set_rule(ToValidUtf8(hang.rule));
  return result;
}

void FillHeader(const Capture& capture, const std::string& dump_id, v1::Dump* dump) {
  *dump->mutable_process() = ToProto(capture.process);
  dump->mutable_process()->set_thread_count(static_cast<int32_t>(capture.threads.size()));
  dump->set_name(dump->process().name() + "/dumps/" + dump_id);
  dump->set_trigger(static_cast<v1::Dump::Trigger>(capture.trigger));
  *dump->mutable_create_time() = ToTimestamp(capture.begin_wall_ns);
  *dump->mutable_capture_duration() = ToDuration(capture.duration_ns);
  *dump->mutable_thread_counts() = CountByStatus(capture.threads);
  *dump->mutable_pause() = PausesOf(capture.threads);
  if (capture.hang) *dump->mutable_hang() = ToProto(*capture.hang, capture.threads);
}

// What a reader of the crash must know about how it was recorded.
void NoteHowItWasRecorded(const CrashCapture& crash, v1::Dump* dump) {
  const std::string name = SignalName(crash.signal_number);
  if (crash.from_spool)
    dump->add_notes("no daemon was there: the process left a file, and only the thread that crashed is in it");
  if ((crash.flags & STACKD_CRASH_AGENT_FAULT) != 0) {
    dump->add_notes("the agent's handler met a fault of its own while it copied the stack, which is not whole");
  }
  if ((crash.flags & STACKD_CRASH_HANDLED) != 0) {
    dump->add_notes("the program's own handler was called for " + name + " and did not recover; this is the first fault");
  }
}

void AddCrash(const Capture& capture, const std::vector<NamedStack>& stacks, v1::Dump* dump) {
  const v1::Stack* stack = nullptr;
  uint64_t frame_begin_avma = 0;
  for (const v1::Thread& thread : dump->threads()) {
    if (thread.tid() != capture.crash->tid || !thread.has_stack()) continue;
    stack = &dump->stacks(thread.stack());
    const auto& frames = stacks[thread.stack()].native.frames;
    if (!frames.empty()) frame_begin_avma = frames[0].cfa_avma;
  }
  *dump->mutable_crash() = ExplainCrash(capture, stack, frame_begin_avma);
  AddCrashFingerprint(stack, dump->process().executable(), dump->mutable_crash());
  NoteHowItWasRecorded(*capture.crash, dump);
}

// Freeing a dump of a hundred thousand tasks takes as long as to answer with it. The thread that drops it last may not have
// answered yet, so it does not wait for that.
constexpr uint64_t kSmallDumpBytes = 1 << 20;

void Free(google::protobuf::Arena* arena) {
  const auto free = [arena] { delete arena; };
  if (arena->SpaceAllocated() < kSmallDumpBytes) return free();
  std::jthread other = RunBeside(free);
  if (other.joinable()) other.detach();
}

google::protobuf::ArenaOptions LargeBlocks() {
  google::protobuf::ArenaOptions options;
  options.start_block_size = 16 << 10;
  options.max_block_size = 256 << 10;
  return options;
}

}  // namespace

v1::Dump DumpHeader(const Capture& capture, const std::string& dump_id) {
  v1::Dump dump;
  FillHeader(capture, dump_id, &dump);
  return dump;
}

std::shared_ptr<v1::Dump> AssembleDump(const Capture& capture, const std::vector<int>& stack_of_thread,
                                       const std::vector<NamedStack>& stacks,
                                       const std::function<SymbolQuality(const Module&)>& quality,
                                       const std::string& dump_id) {
  std::shared_ptr<google::protobuf::Arena> arena(new google::protobuf::Arena(LargeBlocks()), Free);
  auto* dump = google::protobuf::Arena::CreateMessage<v1::Dump>(arena.get());
  FillHeader(capture, dump_id, dump);
  // A process that ended at once has left no map.
  static const AddressMap kNoMap({});
  const AddressMap& map = capture.map == nullptr ? kNoMap : *capture.map;
  StackExpander expander(map, arena.get());
  std::vector<std::string> fingerprints;
  fingerprints.reserve(stacks.size() + capture.managed.task_stacks.size());
  for (const NamedStack& stack : stacks) {
    size_t frames = stack.native.frames.size();
    for (const RuntimeCalls& calls : stack.runtime_calls) frames += calls.frames.size();
    const bool fold = capture.crash || frames > kMaxUnfoldedFrames;
    fingerprints.push_back(expander.Expand(stack, fold, dump->add_stacks()));
  }
  const int first_task_stack = dump->stacks_size();
  // The last of `stacks`.
  const int first_native_task_stack = first_task_stack - static_cast<int>(capture.managed.native_task_stacks.size());
  for (const ManagedStack& stack : capture.managed.task_stacks) {
    const bool fold = stack.frames.size() > kMaxUnfoldedFrames;
    fingerprints.push_back(expander.Expand(RuntimeFramesOf(stack), fold, dump->add_stacks()));
  }
  AddThreads(capture, map, stack_of_thread, dump);
  AddTasks(capture.managed, first_task_stack, first_native_task_stack, dump);
  AddGroups(fingerprints, dump);
  AddModules(map, expander.mappings(), quality, dump);

  if (capture.crash) AddCrash(capture, stacks, dump);
  dump->set_memory_read_bytes(capture.memory_read_bytes);
  for (const std::string& note : capture.notes) dump->add_notes(ToValidUtf8(note));
  AddRuntimes(capture.managed, dump);
  const std::vector<int> threads_of_stack = ThreadsOfStacks(stack_of_thread, dump->stacks_size());
  for (std::string& note : NotesOn(*dump, threads_of_stack)) dump->add_notes(std::move(note));
  const v1::ThreadCounts& counts = dump->thread_counts();
  const bool out_of_time = counts.timed_out() > 0 || counts.ring_full() > 0;
  dump->set_state(capture.partial || out_of_time ? v1::Dump::PARTIAL : v1::Dump::COMPLETE);
  return {std::move(arena), dump};
}

}  // namespace stackd
