#include "daemon/managed/cpython/asyncio_tasks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"
#include "daemon/managed/cpython/line_table.h"
#include "daemon/managed/cpython/unicode.h"

namespace stackd {
namespace {

constexpr uint32_t kVersion = 0x30e;

// Words of _Py_DebugOffsets, which _PyRuntime begins with: Include/internal/pycore_debug_offsets.h of 3.14.10.
enum RuntimeWord : size_t {
  kCookie = 0,
  kHexVersion = 1,
  kFreeThreaded = 2,
  kInterpreterThreads = 9,
  kThreadNext = 24,
  kThreadNativeId = 28,
  kFrameExecutable = 33,
  kFrameInstruction = 34,
  kFrameStackPointer = 37,
  kCodeFile = 40,
  kCodeName = 42,
  kCodeLines = 43,
  kCodeFirstLine = 44,
  kCodeInstructions = 48,
  kObjectType = 51,
  kTypeName = 53,
  kSetTable = 64,
  kSetMask = 65,
  kLongTag = 72,
  kLongDigits = 73,
  kBytesSize = 75,
  kBytesData = 76,
  kTextState = 78,
  kTextLength = 79,
  kTextAsciiBytes = 80,
  kGeneratorFrame = 85,
  kGeneratorState = 86,
  kRuntimeWords = 89,
};
// Of Py_AsyncioModuleDebugOffsets: Modules/_asynciomodule.c of the same.
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
constexpr uint64_t kCookieValue = 0x7970677562656478;  // "xdebugpy"
constexpr uint64_t kMaxOffset = 4 << 20;

// _PyFrameState of pycore_frame.h.
enum FrameState : int8_t { kCreated = -3, kSuspendedInAwait = -1, kExecuting = 0, kCompleted = 1 };

// A pointer on a coroutine's stack may have its low bits in use.
constexpr uint64_t kTagBits = 3;

constexpr size_t kMaxTasks = 100'000;
constexpr int kMaxThreads = 16384;
constexpr int kMaxAwaits = 256;
constexpr uint64_t kMaxAwaiters = 256;
constexpr size_t kMaxCode = 16384;
constexpr size_t kMaxTypes = 256;
constexpr uint64_t kMaxTextBytes = 1024;
constexpr uint64_t kMaxTableBytes = 32 << 10;

struct Function {
  std::string name;
  std::string file;
  std::string lines;
  uint32_t first_line = 0;
};

class TaskReader {
 public:
  TaskReader(const RuntimeInput& input, ManagedFacts* facts) : input_(input), memory_(*input.memory), facts_(facts) {}

  // False where there is no asyncio, or its tables are not what they should be.
  bool Open() {
    return ReadTable(".PyRuntime", runtime_) && ReadTable(".AsyncioDebug", asyncio_) && runtime_[kCookie] == kCookieValue &&
           runtime_[kHexVersion] >> 16 == kVersion && runtime_[kFreeThreaded] == 0 &&
           std::ranges::all_of(runtime_.begin() + kFreeThreaded, runtime_.end(), IsOffset) &&
           std::ranges::all_of(asyncio_, IsOffset);
  }

  void Read(uint64_t interpreter_avma) {
    uint64_t thread_avma = Word(interpreter_avma + runtime_[kInterpreterThreads]);
    for (int i = 0; i < kMaxThreads && thread_avma != 0 && !is_cut_; ++i) {
      running_task_avma_ = Word(thread_avma + asyncio_[kThreadRunningTask]);
      tid_ = static_cast<int32_t>(Word(thread_avma + runtime_[kThreadNativeId]));
      ReadList(thread_avma + asyncio_[kThreadTasks]);
      thread_avma = Word(thread_avma + runtime_[kThreadNext]);
    }
    // Of threads that have ended.
    running_task_avma_ = 0;
    ReadList(interpreter_avma + asyncio_[kInterpreterTasks]);
  }

  void Finish() {
    for (const auto& [waiter_avma, awaited] : awaited_) {
      const auto waiter = index_.find(waiter_avma);
      if (waiter == index_.end()) continue;
      ManagedTask& task = facts_->tasks[waiter->second];
      if (task.state == "waiting") task.wait_reason = "task " + facts_->tasks[awaited].name;
    }
    if (is_cut_) facts_->notes.push_back("not all asyncio tasks could be read: they changed meanwhile, or time was up");
  }

 private:
  static bool IsOffset(uint64_t value) { return value < kMaxOffset; }

  template <size_t N>
  bool ReadTable(std::string_view section, std::array<uint64_t, N>& words) {
    for (const Mapping& mapping : input_.capture.map->mappings()) {
      const Section* found = mapping.module == nullptr ? nullptr : mapping.module->FindSection(section);
      if (found == nullptr || found->size_bytes < sizeof(words)) continue;
      return ReadBytes(mapping.bias + found->svma, words.data(), sizeof(words));
    }
    return false;
  }

  bool ReadBytes(uint64_t avma, void* bytes, size_t size_bytes) {
    return memory_.ReadSome(avma, {static_cast<uint8_t*>(bytes), size_bytes}) == size_bytes;
  }
  template <typename T>
  T Value(uint64_t avma) {
    T value;
    return ReadBytes(avma, &value, sizeof(value)) ? value : T{};
  }
  uint64_t Word(uint64_t avma) { return Value<uint64_t>(avma); }

  bool MayGoOn() {
    is_cut_ = is_cut_ || index_.size() >= kMaxTasks || MonotonicNs() >= input_.deadline_ns;
    return !is_cut_;
  }

  // A ring of nodes, each {next, previous}, around one that is no task's.
  void ReadList(uint64_t head_avma) {
    struct Node {
      uint64_t next_avma, previous_avma;
    };
    uint64_t at_avma = head_avma;
    for (Node node = Value<Node>(head_avma); node.next_avma != 0 && node.next_avma != head_avma && MayGoOn();) {
      const Node next = Value<Node>(node.next_avma);
      if (next.previous_avma != at_avma) {
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
    task.name = TaskName(Word(task_avma + asyncio_[kTaskName]));
    ManagedStack stack;
    stack.language = Language::kPython;
    task.state = ReadCoroutines(Word(task_avma + asyncio_[kTaskCoroutine]), &stack);
    if (task_avma == running_task_avma_) {
      task.state = "running";
      task.tid = tid_;
    }
    if (!stack.frames.empty()) task.stack = IndexOf(std::move(stack));
    ReadAwaiters(task_avma);
    facts_->tasks.push_back(std::move(task));
  }

  // A string, or the number of one that nobody has named.
  std::string TaskName(uint64_t name_avma) {
    const std::string type = TypeName(name_avma);
    if (type == "int") {
      constexpr int kDigitBits = 30;
      const uint64_t digits = Word(name_avma + runtime_[kLongTag]) >> 3;
      uint64_t number = Value<uint32_t>(name_avma + runtime_[kLongDigits]);
      if (digits > 1) number |= uint64_t{Value<uint32_t>(name_avma + runtime_[kLongDigits] + 4)} << kDigitBits;
      return "Task-" + std::to_string(number);
    }
    return type == "str" ? Text(name_avma) : "(a task without a name)";
  }

  std::string TypeName(uint64_t object_avma) {
    const uint64_t type_avma = object_avma == 0 ? 0 : Word(object_avma + runtime_[kObjectType]);
    const auto known = types_.find(type_avma);
    if (known != types_.end()) return known->second;
    std::array<char, 64> name = {};
    const uint64_t name_avma = type_avma == 0 ? 0 : Word(type_avma + runtime_[kTypeName]);
    if (name_avma != 0) memory_.ReadSome(name_avma, {reinterpret_cast<uint8_t*>(name.data()), name.size() - 1});
    if (types_.size() < kMaxTypes) types_.emplace(type_avma, name.data());
    return name.data();
  }

  std::string Text(uint64_t text_avma) {
    const auto length = Word(text_avma + runtime_[kTextLength]);
    const auto state = Value<uint32_t>(text_avma + runtime_[kTextState]);
    const uint32_t kind = state >> 2 & 7;
    const bool is_compact = (state >> 5 & 1) != 0, is_ascii = (state >> 6 & 1) != 0;
    if (!is_compact || (kind != 1 && kind != 2 && kind != 4)) return {};
    std::string characters(std::min(length, kMaxTextBytes / kind) * kind, '\0');
    // PyCompactUnicodeObject adds the length and the address of a copy in UTF-8.
    const uint64_t data_avma = text_avma + runtime_[kTextAsciiBytes] + (is_ascii ? 0 : 16);
    if (!ReadBytes(data_avma, characters.data(), characters.size())) return {};
    return ToValidUtf8(DecodeUnicode(characters, is_ascii ? 0 : kind));
  }

  std::string Bytes(uint64_t bytes_avma) {
    std::string bytes(std::min(Word(bytes_avma + runtime_[kBytesSize]), kMaxTableBytes), '\0');
    return ReadBytes(bytes_avma + runtime_[kBytesData], bytes.data(), bytes.size()) ? bytes : std::string();
  }

  // nullptr if it is no code object.
  const Function* FunctionOf(uint64_t code_avma) {
    const auto known = functions_.find(code_avma);
    if (known != functions_.end()) return &known->second;
    if (functions_.size() >= kMaxCode || TypeName(code_avma) != "code") return nullptr;
    Function function;
    function.name = Text(Word(code_avma + runtime_[kCodeName]));
    function.file = Text(Word(code_avma + runtime_[kCodeFile]));
    function.lines = Bytes(Word(code_avma + runtime_[kCodeLines]));
    function.first_line = Value<uint32_t>(code_avma + runtime_[kCodeFirstLine]);
    if (function.name.empty()) return nullptr;
    return &functions_.emplace(code_avma, std::move(function)).first->second;
  }

  // From the task's own to the one that it awaits, and so on. Returns what the task is doing.
  std::string ReadCoroutines(uint64_t coroutine_avma, ManagedStack* stack) {
    std::string state = "ended";
    for (int i = 0; i < kMaxAwaits && coroutine_avma != 0; ++i) {
      const std::string type = TypeName(coroutine_avma);
      if (type != "coroutine" && type != "generator" && type != "async_generator") break;
      const auto frame_state = Value<int8_t>(coroutine_avma + runtime_[kGeneratorState]);
      const uint64_t frame_avma = coroutine_avma + runtime_[kGeneratorFrame];
      if (frame_state >= kCompleted || !AddFrame(frame_avma, stack)) break;
      state = frame_state == kCreated ? "not started" : frame_state == kExecuting ? "running" : "waiting";
      if (frame_state != kSuspendedInAwait) break;
      const uint64_t top_avma = Word(frame_avma + runtime_[kFrameStackPointer]);
      coroutine_avma = top_avma < 8 ? 0 : Word(top_avma - 8) & ~kTagBits;
    }
    std::ranges::reverse(stack->frames);
    return state;
  }

  bool AddFrame(uint64_t frame_avma, ManagedStack* stack) {
    const uint64_t code_avma = Word(frame_avma + runtime_[kFrameExecutable]) & ~kTagBits;
    const Function* function = FunctionOf(code_avma);
    if (function == nullptr) return false;
    const uint64_t instruction_avma = Word(frame_avma + runtime_[kFrameInstruction]);
    const auto position = static_cast<int64_t>(instruction_avma - code_avma - runtime_[kCodeInstructions]);
    ManagedFrame frame;
    frame.function = function->name;
    frame.file = function->file;
    frame.line = LineOf(kVersion, function->first_line, function->lines, position);
    stack->frames.push_back(std::move(frame));
    return true;
  }

  int32_t IndexOf(ManagedStack stack) {
    std::string key;
    for (const ManagedFrame& frame : stack.frames) {
      key += frame.function + '\0' + frame.file + '\0' + std::to_string(frame.line) + '\0';
    }
    const auto [known, is_new] = stacks_.try_emplace(std::move(key), static_cast<int32_t>(facts_->task_stacks.size()));
    if (is_new) facts_->task_stacks.push_back(std::move(stack));
    return known->second;
  }

  // Who awaits the task: another one, or a set of them.
  void ReadAwaiters(uint64_t task_avma) {
    const size_t index = index_.at(task_avma);
    const uint64_t awaiter_avma = Word(task_avma + asyncio_[kTaskAwaitedBy]);
    if (awaiter_avma == 0) return;
    if (Value<uint8_t>(task_avma + asyncio_[kTaskAwaitedByIsSet]) == 0) {
      awaited_.try_emplace(awaiter_avma, index);
      return;
    }
    // An entry is {key, hash}.
    const uint64_t table_avma = Word(awaiter_avma + runtime_[kSetTable]);
    const uint64_t last = std::min(Word(awaiter_avma + runtime_[kSetMask]), kMaxAwaiters);
    for (uint64_t i = 0; i <= last; ++i) {
      const uint64_t key_avma = Word(table_avma + 16 * i);
      if (key_avma != 0) awaited_.try_emplace(key_avma, index);
    }
  }

  const RuntimeInput& input_;
  const ProcessFiles& memory_;
  ManagedFacts* facts_;
  std::array<uint64_t, kRuntimeWords> runtime_ = {};
  std::array<uint64_t, kAsyncioWords> asyncio_ = {};
  uint64_t running_task_avma_ = 0;
  int32_t tid_ = 0;
  bool is_cut_ = false;
  std::unordered_map<uint64_t, size_t> index_;    // tasks by address
  std::unordered_map<uint64_t, size_t> awaited_;  // by who awaits it: one of them
  std::unordered_map<uint64_t, std::string> types_;
  std::unordered_map<uint64_t, Function> functions_;
  std::map<std::string, int32_t> stacks_;
};

}  // namespace

void AddAsyncioTasks(const RuntimeInput& input, uint32_t version, const std::set<uint64_t>& interpreters,
                     ManagedFacts* facts) {
  if (version != kVersion || input.memory == nullptr || input.capture.map == nullptr) return;
  TaskReader reader(input, facts);
  if (!reader.Open()) return;
  for (uint64_t interpreter_avma : interpreters) reader.Read(interpreter_avma);
  reader.Finish();
}

}  // namespace stackd
