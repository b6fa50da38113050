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
#include "daemon/managed/cpython/cpython_objects.h"
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

// _PyFrameState of pycore_frame.h.
enum FrameState : int8_t { kCreated = -3, kSuspendedInAwait = -1, kExecuting = 0, kCompleted = 1 };

// A pointer in a frame may have its low bits in use.
constexpr uint64_t kTagBits = 3;

constexpr size_t kMaxTasks = 100'000;
constexpr int kMaxThreads = 16384;
constexpr int kMaxAwaits = 256;
constexpr uint64_t kMaxAwaiters = 256;
// Limit for names and stacks.
constexpr uint64_t kMaxBytes = 64 << 20;
constexpr int kTries = 3;

// What a task awaits, from its own coroutine inward.
struct Chain {
  struct Link {
    uint64_t coroutine_avma, code_avma, instruction_avma;
    int8_t frame_state;
    bool operator==(const Link&) const = default;
  };
  std::vector<Link> links;
  uint64_t awaited_avma = 0;  // by the last one
  bool operator==(const Chain&) const = default;
};

class TaskReader {
 public:
  TaskReader(const RuntimeInput& input, ManagedFacts* facts) : input_(input), objects_(*input.memory), facts_(facts) {}

  // False where there is no asyncio, or its tables are not what they should be.
  bool Open() {
    const uint64_t runtime_avma = SectionAvma(".PyRuntime", CpythonObjects::kWords * sizeof(uint64_t));
    const uint64_t asyncio_avma = SectionAvma(".AsyncioDebug", sizeof(asyncio_));
    return runtime_avma != 0 && asyncio_avma != 0 && objects_.Open(runtime_avma) &&
           objects_.ReadBytes(asyncio_avma, asyncio_.data(), sizeof(asyncio_)) &&
           std::ranges::all_of(asyncio_, CpythonObjects::IsOffset);
  }

  void Read(uint64_t interpreter_avma) {
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
    ManagedTask task;
    task.kind = ManagedTaskKind::kAsyncioTask;
    task.id = task_avma;
    task.name = TaskName(objects_.Pointer(task_avma + asyncio_[kTaskName]));
    used_bytes_ += sizeof(task) + task.name.size();
    AddCoroutines(objects_.Pointer(task_avma + asyncio_[kTaskCoroutine]), &task);
    if (task_avma == running_task_avma_) {
      task.state = "running";
      task.tid = tid_;
    }
    ReadAwaiters(task_avma, facts_->tasks.size());
    facts_->tasks.push_back(std::move(task));
  }

  // The task's string, or its number if the program has not named it.
  std::string TaskName(uint64_t name_avma) {
    const std::string type = objects_.TypeName(name_avma);
    if (type == "int") return "Task-" + std::to_string(objects_.Number(name_avma));
    return type == "str" ? objects_.Text(name_avma) : "(a task without a name)";
  }

  void AddCoroutines(uint64_t coroutine_avma, ManagedTask* task) {
    const std::optional<Chain> chain = ReadStandingChain(coroutine_avma);
    if (!chain) {
      ++moving_;
      task->state = "running";
      return;
    }
    if (chain->links.empty()) {
      task->state = "(in no coroutine that could be read)";
      return;
    }
    const int8_t last = chain->links.back().frame_state;
    task->state = last == kCreated ? "not started" : last == kExecuting ? "running" : "waiting";
    if (task->state == "waiting") task->wait_reason = WaitReason(chain->awaited_avma);
    task->stack = StackOf(*chain);
  }

  // nullopt if the task went on at each of some looks.
  std::optional<Chain> ReadStandingChain(uint64_t coroutine_avma) {
    Chain before = ReadChain(coroutine_avma);
    for (int look = 0; look < kTries; ++look) {
      Chain again = ReadChain(coroutine_avma);
      if (again == before) return again;
      before = std::move(again);
    }
    return std::nullopt;
  }

  Chain ReadChain(uint64_t coroutine_avma) {
    Chain chain;
    chain.awaited_avma = coroutine_avma;
    while (chain.links.size() < kMaxAwaits && IsCoroutine(chain.awaited_avma)) {
      const uint64_t at_avma = std::exchange(chain.awaited_avma, 0);
      const uint64_t frame_avma = at_avma + objects_.offset(CpythonObjects::kGeneratorFrame);
      const Chain::Link link = {
          .coroutine_avma = at_avma,
          .code_avma = objects_.Pointer(frame_avma + objects_.offset(CpythonObjects::kFrameExecutable)) & ~kTagBits,
          .instruction_avma = objects_.Pointer(frame_avma + objects_.offset(CpythonObjects::kFrameInstruction)),
          .frame_state = objects_.Value<int8_t>(at_avma + objects_.offset(CpythonObjects::kGeneratorState))};
      if (link.frame_state >= kCompleted) break;
      chain.links.push_back(link);
      if (link.frame_state != kSuspendedInAwait) break;
      const uint64_t top_avma = objects_.Pointer(frame_avma + objects_.offset(CpythonObjects::kFrameStackPointer));
      chain.awaited_avma = objects_.Pointer(top_avma - sizeof(uint64_t)) & ~kTagBits;
    }
    return chain;
  }

  bool IsCoroutine(uint64_t object_avma) {
    const std::string type = objects_.TypeName(object_avma);
    return type == "coroutine" || type == "generator" || type == "async_generator";
  }

  std::string WaitReason(uint64_t awaited_avma) {
    const std::string type = objects_.TypeName(awaited_avma);
    if (type.empty()) return {};
    return type == "_asyncio.FutureIter" ? "awaits a future" : "awaits " + type;
  }

  int32_t StackOf(const Chain& chain) {
    std::string key;
    for (const Chain::Link& link : chain.links) {
      key.append(reinterpret_cast<const char*>(&link.code_avma), sizeof(link.code_avma));
      key.append(reinterpret_cast<const char*>(&link.instruction_avma), sizeof(link.instruction_avma));
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

  ManagedFrame FrameOf(const Chain::Link& link) {
    ManagedFrame frame;
    const CpythonObjects::Function* function = objects_.FunctionOf(link.code_avma);
    if (function == nullptr) {
      frame.function = "(a coroutine whose code could not be read)";
      return frame;
    }
    const uint64_t code_avma = link.code_avma + objects_.offset(CpythonObjects::kCodeInstructions);
    frame.function = function->name;
    frame.file = function->file;
    frame.line = function->LineAt(static_cast<int64_t>(link.instruction_avma - code_avma));
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
  ManagedFacts* facts_;
  std::array<uint64_t, kAsyncioWords> asyncio_ = {};
  uint64_t running_task_avma_ = 0;  // of the thread whose list is read
  int32_t tid_ = 0;                 // its
  bool is_cut_ = false;
  size_t nodes_ = 0;
  int64_t moving_ = 0;
  uint64_t used_bytes_ = 0;
  std::unordered_map<uint64_t, size_t> index_;     // places in facts_->tasks, by address
  std::unordered_map<uint64_t, Awaited> awaited_;  // by who awaits
  std::unordered_map<std::string, int32_t> stacks_;
};

}  // namespace

void AddAsyncioTasks(const RuntimeInput& input, uint32_t version, const std::set<uint64_t>& interpreters,
                     ManagedFacts* facts) {
  if (version != CpythonObjects::kVersion || input.memory == nullptr || input.capture.map == nullptr) return;
  TaskReader reader(input, facts);
  if (!reader.Open()) return;
  for (uint64_t interpreter_avma : interpreters) reader.Read(interpreter_avma);
  reader.Finish();
}

}  // namespace stackd
