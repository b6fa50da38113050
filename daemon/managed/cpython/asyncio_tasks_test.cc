#include "daemon/managed/cpython/asyncio_tasks.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/unwind/testing/own_process.h"

// What the interpreter publishes, by section.
__attribute__((section(".PyRuntime"))) uint64_t runtime_table[89] = {1};
__attribute__((section(".AsyncioDebug"))) uint64_t asyncio_table[13] = {1};

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Objects with what is read of them: where each thing lies is in the tables.
struct Type {
  const char* name;
};
struct Text {
  const Type* type;
  uint64_t length;
  uint32_t state;
  char ascii[60];
};
struct Int {
  const Type* type;
  uint64_t tag;
  uint32_t digits[2];
};
struct Bytes {
  const Type* type;
  uint64_t size;
};
struct Code {
  const Type* type;
  const Text* file;
  const Text* name;
  const Bytes* lines;
  uint32_t first_line;
  uint32_t instructions[4];
};
struct Coroutine {
  const Type* type;
  struct {
    uint64_t code, instruction, stack_pointer;
  } frame;
  int8_t state;
  uint64_t awaited;
};
struct Node {
  Node *next, *previous;
};
struct Task {
  const void* name;
  const void* awaited_by;
  uint8_t awaited_by_is_set;
  const Coroutine* coroutine;
  Node node;
};
struct Set {
  const void* table;
  uint64_t mask;
};
struct Thread {
  const Thread* next;
  uint64_t native_id;
  const Task* running;
  Node tasks;
};
struct Interpreter {
  const Thread* threads;
  Node tasks;
};

constexpr int8_t kCreated = -3, kInAwait = -1, kExecuting = 0;

class AsyncioTasks : public testing::Test {
 protected:
  void SetUp() override {
    Fd memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(files_.SetMemory(&memory));
    memset(runtime_table, 0, sizeof(runtime_table));
    memset(asyncio_table, 0, sizeof(asyncio_table));
    memcpy(runtime_table, "xdebugpy", 8);
    runtime_table[1] = 0x030e0af0;
    const std::pair<int, size_t> of_runtime[] = {{9, offsetof(Interpreter, threads)},
                                                 {24, offsetof(Thread, next)},
                                                 {28, offsetof(Thread, native_id)},
                                                 {33, 0},
                                                 {34, 8},
                                                 {37, 16},
                                                 {40, offsetof(Code, file)},
                                                 {42, offsetof(Code, name)},
                                                 {43, offsetof(Code, lines)},
                                                 {44, offsetof(Code, first_line)},
                                                 {48, offsetof(Code, instructions)},
                                                 {51, 0},
                                                 {53, 0},
                                                 {64, offsetof(Set, table)},
                                                 {65, offsetof(Set, mask)},
                                                 {72, offsetof(Int, tag)},
                                                 {73, offsetof(Int, digits)},
                                                 {75, offsetof(Bytes, size)},
                                                 {76, sizeof(Bytes)},
                                                 {78, offsetof(Text, state)},
                                                 {79, offsetof(Text, length)},
                                                 {80, offsetof(Text, ascii)},
                                                 {85, offsetof(Coroutine, frame)},
                                                 {86, offsetof(Coroutine, state)}};
    for (auto [word, offset] : of_runtime) runtime_table[word] = offset;
    const std::pair<int, size_t> of_asyncio[] = {
        {1, offsetof(Task, name)},       {2, offsetof(Task, awaited_by)}, {4, offsetof(Task, awaited_by_is_set)},
        {5, offsetof(Task, coroutine)},  {6, offsetof(Task, node)},       {8, offsetof(Interpreter, tasks)},
        {11, offsetof(Thread, running)}, {12, offsetof(Thread, tasks)}};
    for (auto [word, offset] : of_asyncio) asyncio_table[word] = offset;
    Close(&thread_.tasks);
    Close(&interpreter_.tasks);
    interpreter_.threads = &thread_;
  }

  static void Close(Node* head) { head->next = head->previous = head; }

  const Text* MakeText(const std::string& ascii) {
    Text& text = texts_.emplace_back(Text{&str_, ascii.size(), 1 << 2 | 1 << 5 | 1 << 6, {}});
    memcpy(text.ascii, ascii.data(), ascii.size());
    return &text;
  }

  const Coroutine* MakeCoroutine(const std::string& name, const void* awaited, int8_t state = kInAwait) {
    codes_.push_back({&code_, MakeText("shop.py"), MakeText(name), &no_lines_, 12, {}});
    Coroutine& made = coroutines_.emplace_back();
    made.type = &coroutine_;
    // The low bits count references.
    made.frame = {Address(&codes_.back()) | 1, Address(codes_.back().instructions), Address(&made + 1)};
    made.state = state;
    made.awaited = Address(awaited) | 1;
    return &made;
  }

  Task* AddTask(const void* name, const Coroutine* coroutine, Node* head) {
    Task& task = tasks_.emplace_back();
    task.name = name;
    task.coroutine = coroutine;
    task.node = {head, head->previous};
    head->previous->next = &task.node;
    head->previous = &task.node;
    return &task;
  }

  ManagedFacts Read() {
    Capture capture;
    capture.map = OwnAddressMap();
    const RuntimeInput input = {
        .capture = capture, .memory = &files_, .deadline_ns = MonotonicNs() + 60'000'000'000, .reports = {}};
    ManagedFacts facts;
    AddAsyncioTasks(input, 0x30e, {Address(&interpreter_)}, &facts);
    return facts;
  }

  static std::vector<std::string> Functions(const ManagedFacts& facts, const ManagedTask& task) {
    std::vector<std::string> functions;
    if (task.stack < 0) return functions;
    for (const ManagedFrame& frame : facts.task_stacks.at(static_cast<size_t>(task.stack)).frames) {
      functions.push_back(frame.function.str() + " " + frame.file.str() + ":" + std::to_string(frame.line));
    }
    return functions;
  }

  const Type str_{"str"}, int_{"int"}, code_{"code"}, coroutine_{"coroutine"}, future_{"_asyncio.FutureIter"};
  const Bytes no_lines_{nullptr, 0};
  const Type* a_future_ = &future_;
  std::deque<Text> texts_;
  std::deque<Code> codes_;
  std::deque<Coroutine> coroutines_;
  std::deque<Task> tasks_;
  Thread thread_{};
  Interpreter interpreter_{};
  ProcessFiles files_;
};

TEST_F(AsyncioTasks, HaveNamesAndTheCoroutinesThatTheyWaitIn) {
  const Coroutine* inner = MakeCoroutine("fetch", &a_future_);
  AddTask(MakeText("order-1"), MakeCoroutine("order", inner), &thread_.tasks);
  const Int number{&int_, 1 << 3, {17, 0}};
  AddTask(&number, MakeCoroutine("main", nullptr, kCreated), &interpreter_.tasks);
  const ManagedFacts facts = Read();
  ASSERT_EQ(facts.tasks.size(), 2u);
  EXPECT_EQ(facts.tasks[0].name, "order-1");
  EXPECT_EQ(facts.tasks[0].state, "waiting");
  EXPECT_EQ(facts.tasks[0].wait_reason, "awaits a future");
  EXPECT_THAT(Functions(facts, facts.tasks[0]), ElementsAre("fetch shop.py:12", "order shop.py:12"));
  EXPECT_EQ(facts.tasks[1].name, "Task-17");
  EXPECT_EQ(facts.tasks[1].state, "not started");
  EXPECT_THAT(facts.notes, ElementsAre());
}

TEST_F(AsyncioTasks, TheOneThatRunsHasItsThread) {
  thread_.native_id = 7;
  thread_.running = AddTask(MakeText("runs"), MakeCoroutine("main", nullptr, kExecuting), &thread_.tasks);
  const ManagedFacts facts = Read();
  ASSERT_EQ(facts.tasks.size(), 1u);
  EXPECT_EQ(facts.tasks[0].state, "running");
  EXPECT_EQ(facts.tasks[0].tid, 7);
}

TEST_F(AsyncioTasks, SayWhichTasksTheyAwait) {
  Task* one = AddTask(MakeText("one"), MakeCoroutine("work", &a_future_), &thread_.tasks);
  Task* two = AddTask(MakeText("two"), MakeCoroutine("work", &a_future_), &thread_.tasks);
  const Task* alone = AddTask(MakeText("alone"), MakeCoroutine("wait", &a_future_), &thread_.tasks);
  const Task* gathers = AddTask(MakeText("gathers"), MakeCoroutine("gather", &a_future_), &thread_.tasks);
  struct Entry {
    const void* key;
    uint64_t hash;
  };
  const Entry entries[4] = {{nullptr, 0}, {gathers, 1}, {nullptr, 0}, {alone, 2}};
  const Set awaiters{entries, 3};
  one->awaited_by = &awaiters;
  one->awaited_by_is_set = 1;
  two->awaited_by = gathers;
  const ManagedFacts facts = Read();
  ASSERT_EQ(facts.tasks.size(), 4u);
  EXPECT_EQ(facts.tasks[0].wait_reason, "awaits a future");
  EXPECT_EQ(facts.tasks[2].wait_reason, "awaits task one");
  EXPECT_EQ(facts.tasks[3].wait_reason, "awaits task one and 1 more");
}

TEST_F(AsyncioTasks, AListThatIsTornIsCutAndTheDumpSaysSo) {
  AddTask(MakeText("one"), MakeCoroutine("work", &a_future_), &thread_.tasks);
  Task* two = AddTask(MakeText("two"), MakeCoroutine("work", &a_future_), &thread_.tasks);
  two->node.next = &tasks_.front().node;  // round and round, without the head
  const ManagedFacts facts = Read();
  EXPECT_EQ(facts.tasks.size(), 2u);
  EXPECT_THAT(facts.notes, ElementsAre(HasSubstr("not all asyncio tasks were read")));
}

TEST_F(AsyncioTasks, ACoroutineThatAwaitsItselfHasAnEnd) {
  const Coroutine* made = MakeCoroutine("snake", nullptr);
  coroutines_.back().awaited = Address(made);
  AddTask(MakeText("circle"), made, &thread_.tasks);
  const ManagedFacts facts = Read();
  ASSERT_EQ(facts.tasks.size(), 1u);
  EXPECT_EQ(Functions(facts, facts.tasks[0]).size(), 256u);
}

TEST_F(AsyncioTasks, WhatCannotBeReadIsSaid) {
  const auto* nowhere = reinterpret_cast<const Coroutine*>(8);
  AddTask(nowhere, nowhere, &thread_.tasks);
  AddTask(MakeText("odd"), MakeCoroutine("work", &a_future_), &thread_.tasks);
  coroutines_.back().frame.code = 8;
  const ManagedFacts facts = Read();
  ASSERT_EQ(facts.tasks.size(), 2u);
  EXPECT_EQ(facts.tasks[0].name, "(a task without a name)");
  EXPECT_EQ(facts.tasks[0].stack, -1);
  EXPECT_THAT(Functions(facts, facts.tasks[1]), ElementsAre("(a coroutine whose code could not be read) :0"));
}

TEST_F(AsyncioTasks, NothingIsBelievedOfATableThatIsAnother) {
  AddTask(MakeText("one"), MakeCoroutine("work", &a_future_), &thread_.tasks);
  ASSERT_EQ(Read().tasks.size(), 1u);
  for (auto [word, value] : {std::pair<int, uint64_t>{0, 1}, {1, 0x030d0af0}, {1, 0x030e00a7}, {2, 1}, {43, 1 << 30}}) {
    const uint64_t before = std::exchange(runtime_table[word], value);
    EXPECT_TRUE(Read().tasks.empty()) << word;
    runtime_table[word] = before;
  }
  asyncio_table[6] = 1 << 30;
  EXPECT_TRUE(Read().tasks.empty());
}

}  // namespace
}  // namespace stackd
