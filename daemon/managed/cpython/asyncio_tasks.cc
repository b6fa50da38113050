#include "daemon/managed/cpython/asyncio_tasks.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/managed/cpython/coroutine_chain.h"
#include "daemon/managed/cpython/cpython_objects.h"
#include "daemon/managed/cpython/task_finder.h"
#include "daemon/modules/address_map.h"

namespace stackd {
namespace {

// Words of Py_AsyncioModuleDebugOffsets: Modules/_asynciomodule.c of 3.14.10.
enum AsyncioWord : size_t {
  kTaskName = 1,
  kTaskAwaitedBy = 2,
  kTaskAwaitedByIsSet = 4,
  kTaskCoroutine = 5,
  kTaskNode = 6,
  kInterpreterTasks = 8,
  kThreadRunningTask = 11,
  kThreadTasks = 12,
  kAsyncioWords = 13,
};

constexpr size_t kMaxTasks = 100'000;
constexpr int kMaxThreads = 16384;
constexpr uint64_t kMaxAwaiters = 256;
// Limit for names and stacks.
constexpr uint64_t kMaxBytes = 64 << 20;

class TaskReader {
 public:
  TaskReader(const RuntimeInput& input, ManagedFacts* facts) : input_(input), objects_(*input.memory), facts_(facts) {}

  // False where there is no asyncio, or its tables are not what they should be.
  bool Open(uint32_t version) {
    if (version < CpythonObjects::kPublishesTasks) return objects_.OpenVersion(version);
    const uint64_t runtime_avma = SectionAvma(".PyRuntime", CpythonObjects::kWords * sizeof(uint64_t));
    const uint64_t asyncio_avma = SectionAvma(".AsyncioDebug", sizeof(asyncio_));
    return runtime_avma != 0 && asyncio_avma != 0 && objects_.Open(runtime_avma) &&
           objects_.ReadBytes(asyncio_avma, asyncio_.data(), sizeof(asyncio_)) &&
           std::ranges::all_of(asyncio_, CpythonObjects::IsOffset);
  }

  void Read(uint64_t interpreter_avma) {
    if (objects_.version() < CpythonObjects::kPublishesTasks) return ReadFound(interpreter_avma);
    uint64_t thread_avma = objects_.Pointer(interpreter_avma + objects_.offset(CpythonObjects::kInterpreterThreads));
    for (int i = 0; i < kMaxThreads && thread_avma != 0 && MayGoOn(); ++i) {
      running_task_avma_ = objects_.Pointer(thread_avma + asyncio_[kThreadRunningTask]);
      tid_ = objects_.Value<int32_t>(thread_avma + objects_.offset(CpythonObjects::kThreadNativeId));
      ReadList(thread_avma + asyncio_[kThreadTasks]);
      thread_avma = objects_.Pointer(thread_avma + objects_.offset(CpythonObjects::kThreadNext));
    }
    // Tasks of threads that have ended.
    running_task_avma_ = 0;
    ReadList(interpreter_avma + asyncio_[kInterpreterTasks]);
  }

  void Finish() {
    for (const auto& [waiter, awaited_avma] : waits_for_) {
      const auto awaited = index_.find(awaited_avma);
      if (awaited == index_.end()) continue;
      facts_->tasks[waiter].wait_reason = "awaits task " + facts_->tasks[awaited->second].name;
    }
    for (const auto& [waiter_avma, awaited] : awaited_) {
      const auto waiter = index_.find(waiter_avma);
      if (waiter == index_.end()) continue;
      ManagedTask& task = facts_->tasks[waiter->second];
      if (task.state != "waiting") continue;
      task.wait_reason = "awaits task " + facts_->tasks[awaited.first].name;
      if (awaited.others > 0) task.wait_reason += " and " + std::to_string(awaited.others) + " more";
    }
    if (is_cut_) {
      facts_->notes.push_back(
          "not all asyncio tasks were read: they changed meanwhile, there are too many, or time was up");
    }
    if (is_unknown_) {
      facts_->notes.push_back("asyncio's tasks are not known: sys.modules is not where this CPython should have it");
    }
    if (moving_ > 0) {
      facts_->notes.push_back(std::to_string(moving_) +
                              " asyncio tasks ran whenever they were looked at: they have no stack");
    }
  }

 private:
  struct Awaited {
    size_t first;  // of facts_->tasks
    int64_t others = 0;
  };

  // 0 if no module has it.
  uint64_t SectionAvma(std::string_view name, uint64_t size_bytes) const {
    for (const Mapping& mapping : input_.capture.map->mappings()) {
      const Section* section = mapping.module == nullptr ? nullptr : mapping.module->FindSection(name);
      if (section != nullptr && section->size_bytes >= size_bytes) return mapping.bias + section->svma;
    }
    return 0;
  }

  bool MayGoOn() {
    is_cut_ = is_cut_ || MonotonicNs() >= input_.deadline_ns || used_bytes_ + objects_.used_bytes() > kMaxBytes;
    return !is_cut_;
  }

  // Before 3.14.
  void ReadFound(uint64_t interpreter_avma) {
    const FoundTasks found = FindTasks(&objects_, interpreter_avma, kMaxTasks, input_.deadline_ns);
    is_cut_ = is_cut_ || found.is_cut;
    is_unknown_ = is_unknown_ || found.is_unknown;
    asyncio_[kTaskCoroutine] = found.coroutine_offset;
    asyncio_[kTaskName] = found.coroutine_offset + sizeof(uint64_t);
    for (const uint64_t task_avma : found.avmas) {
      if (MayGoOn()) AddTask(task_avma);
    }
  }

  // A ring of nodes, each {next, previous}, around one that is no task's.
  void ReadList(uint64_t head_avma) {
    struct Node {
      uint64_t next_avma, previous_avma;
    };
    uint64_t at_avma = head_avma;
    Node node = objects_.Value<Node>(head_avma);
    while (node.next_avma != 0 && node.next_avma != head_avma && MayGoOn()) {
      const Node next = objects_.Value<Node>(node.next_avma);
      if (next.previous_avma != at_avma || ++nodes_ > kMaxTasks) {
        is_cut_ = true;
        return;
      }
      at_avma = node.next_avma;
      node = next;
      AddTask(at_avma - asyncio_[kTaskNode]);
    }
  }

  void AddTask(uint64_t task_avma) {
    if (!index_.try_emplace(task_avma, facts_->tasks.size()).second) return;
    const uint64_t coroutine_avma = objects_.Pointer(task_avma + asyncio_[kTaskCoroutine]);
    const uint64_t name_avma = objects_.Pointer(task_avma + asyncio_[kTaskName]);
    const std::optional<CoroutineChain> chain = coroutines_.ReadStanding(coroutine_avma);
    ManagedTask task;
    task.kind = ManagedTaskKind::kAsyncioTask;
    task.id = task_avma;
    task.name = TaskName(name_avma);
    const bool is_published = objects_.version() >= CpythonObjects::kPublishesTasks;
    if (!is_published && IsOver(task_avma, coroutine_avma, name_avma, chain)) {
      index_.erase(task_avma);
      return;
    }
    used_bytes_ += sizeof(task) + task.name.size();
    AddCoroutines(chain, &task);
    if (task_avma == running_task_avma_) {
      task.state = "running";
      task.tid = tid_;
    }
    if (is_published) {
      ReadAwaiters(task_avma, facts_->tasks.size());
    } else if (task.state == "waiting") {
      waits_for_[facts_->tasks.size()] = objects_.Pointer(task_avma + asyncio_[kTaskCoroutine] - sizeof(uint64_t));
    }
    facts_->tasks.push_back(std::move(task));
  }

  // Whether a task that was found has ended, before it was read or meanwhile. Another object may be in its place.
  bool IsOver(uint64_t task_avma, uint64_t coroutine_avma, uint64_t name_avma, const std::optional<CoroutineChain>& chain) {
    if (objects_.Value<uint32_t>(task_avma) == 0) return true;  // ob_refcnt
    const bool is_same = objects_.Pointer(task_avma + asyncio_[kTaskCoroutine]) == coroutine_avma &&
                         objects_.Pointer(task_avma + asyncio_[kTaskName]) == name_avma;
    if (!is_same || coroutine_avma == 0) return true;
    return chain && chain->links.empty() && coroutines_.IsCoroutine(coroutine_avma);
  }

  // The task's string, or its number if the program has not named it.
  std::string TaskName(uint64_t name_avma) {
    const std::string type = objects_.TypeName(name_avma);
    if (type == "int") return "Task-" + std::to_string(objects_.Number(name_avma));
    return type == "str" ? objects_.Text(name_avma) : "(a task without a name)";
  }

  void AddCoroutines(const std::optional<CoroutineChain>& chain, ManagedTask* task) {
    if (!chain) {
      ++moving_;
      task->state = "running";
      return;
    }
    if (chain->links.empty()) {
      task->state = "(in no coroutine that could be read)";
      return;
    }
    const CoroutineState last = chain->links.back().state;
    task->state = last == CoroutineState::kCreated     ? "not started"
                  : last == CoroutineState::kExecuting ? "running"
                                                       : "waiting";
    if (task->state == "waiting") task->wait_reason = WaitReason(chain->awaited_avma);
    task->stack = StackOf(*chain);
  }

  std::string WaitReason(uint64_t awaited_avma) {
    const std::string type = objects_.TypeName(awaited_avma);
    if (type.empty()) return {};
    return type == "_asyncio.FutureIter" ? "awaits a future" : "awaits " + type;
  }

  int32_t StackOf(const CoroutineChain& chain) {
    std::string key;
    for (const CoroutineChain::Link& link : chain.links) {
      key.append(reinterpret_cast<const char*>(&link.code_avma), sizeof(link.code_avma));
      key.append(reinterpret_cast<const char*>(&link.position), sizeof(link.position));
    }
    const auto [known, is_new] = stacks_.try_emplace(std::move(key), static_cast<int32_t>(facts_->task_stacks.size()));
    if (!is_new) return known->second;
    ManagedStack stack;
    stack.language = Language::kPython;
    for (auto link = chain.links.rbegin(); link != chain.links.rend(); ++link) stack.frames.push_back(FrameOf(*link));
    used_bytes_ += known->first.size();
    for (const ManagedFrame& frame : stack.frames) used_bytes_ += sizeof(frame) + frame.function.size() + frame.file.size();
    facts_->task_stacks.push_back(std::move(stack));
    return known->second;
  }

  ManagedFrame FrameOf(const CoroutineChain::Link& link) {
    ManagedFrame frame;
    const CpythonObjects::Function* function = objects_.FunctionOf(link.code_avma);
    if (function == nullptr) {
      frame.function = "(a coroutine whose code could not be read)";
      return frame;
    }
    frame.function = function->name;
    frame.file = function->file;
    frame.line = function->LineAt(link.position);
    return frame;
  }

  // Reads what awaits the task: another task, or a set of tasks.
  void ReadAwaiters(uint64_t task_avma, size_t number) {
    const uint64_t awaiter_avma = objects_.Pointer(task_avma + asyncio_[kTaskAwaitedBy]);
    if (awaiter_avma == 0) return;
    if (objects_.Value<uint8_t>(task_avma + asyncio_[kTaskAwaitedByIsSet]) == 0) return AddAwaiter(awaiter_avma, number);
    // An entry is {key, hash}.
    const uint64_t table_avma = objects_.Pointer(awaiter_avma + objects_.offset(CpythonObjects::kSetTable));
    const uint64_t mask = objects_.Pointer(awaiter_avma + objects_.offset(CpythonObjects::kSetMask));
    for (uint64_t i = 0; i <= std::min(mask, kMaxAwaiters - 1); ++i) {
      AddAwaiter(objects_.Pointer(table_avma + 16 * i), number);
    }
  }

  void AddAwaiter(uint64_t awaiter_avma, size_t number) {
    if (awaiter_avma == 0 || awaited_.size() >= kMaxTasks) return;
    const auto [known, is_new] = awaited_.try_emplace(awaiter_avma, Awaited{.first = number});
    known->second.others += is_new ? 0 : 1;
  }

  const RuntimeInput& input_;
  CpythonObjects objects_;
  const CoroutineReader coroutines_{&objects_};
  ManagedFacts* facts_;
  std::array<uint64_t, kAsyncioWords> asyncio_ = {};
  uint64_t running_task_avma_ = 0;  // of the thread whose list is read
  int32_t tid_ = 0;                 // its
  bool is_cut_ = false;
  bool is_unknown_ = false;
  size_t nodes_ = 0;
  int64_t moving_ = 0;
  uint64_t used_bytes_ = 0;
  std::unordered_map<uint64_t, size_t> index_;      // places in facts_->tasks, by address
  std::unordered_map<uint64_t, Awaited> awaited_;   // by who awaits; before 3.14:
  std::unordered_map<size_t, uint64_t> waits_for_;  // of facts_->tasks: the future that each waits for
  std::unordered_map<std::string, int32_t> stacks_;
};

}  // namespace

void AddAsyncioTasks(const RuntimeInput& input, uint32_t version, const std::set<uint64_t>& interpreters,
                     ManagedFacts* facts) {
  if (input.memory == nullptr || input.capture.map == nullptr) return;
  TaskReader reader(input, facts);
  if (!reader.Open(version)) return;
  for (uint64_t interpreter_avma : interpreters) reader.Read(interpreter_avma);
  reader.Finish();
}

}  // namespace stackd
