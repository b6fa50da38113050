#include "daemon/export/export.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "daemon/export/piecewise.h"

namespace stackd {
namespace {

using google::protobuf::util::JsonStringToMessage;
using google::protobuf::util::MessageDifferencer;
using google::protobuf::util::MessageToJsonString;
using testing::HasSubstr;
using testing::Not;

std::string Export(void (*format)(const v1::Dump&, const Sink&), const v1::Dump& dump) {
  std::string text;
  format(dump, [&](std::string_view piece) {
    EXPECT_LE(piece.size(), 64u << 10);
    EXPECT_FALSE(piece.empty());
    text += piece;
    return true;
  });
  return text;
}

v1::Frame MakeFrame(const std::string& function, const std::string& file, int line, const std::string& module,
                    v1::Frame::Origin origin = v1::Frame::CFI) {
  v1::Frame frame;
  frame.set_function(function);
  frame.set_file(file);
  frame.set_line(line);
  frame.set_module(module);
  frame.set_address("0x7f1234567890");
  frame.set_module_offset("0x1890");
  frame.set_origin(origin);
  return frame;
}

v1::Stack MakeStack(const std::vector<v1::Frame>& frames, v1::Stack::End end = v1::Stack::ROOT) {
  v1::Stack stack;
  for (const v1::Frame& frame : frames) *stack.add_frames() = frame;
  stack.set_end(end);
  return stack;
}

void AddThread(int32_t tid, const std::string& name, const std::string& state, int stack, v1::Dump* dump) {
  v1::Thread* thread = dump->add_threads();
  thread->set_tid(tid);
  thread->set_name(name);
  thread->set_state(state);
  thread->set_status(v1::Thread::CAPTURED);
  if (stack >= 0) thread->set_stack(stack);
}

void AddGroup(const std::vector<int32_t>& tids, const std::vector<std::string>& names,
              const std::vector<std::string>& states, const v1::Stack& stack, v1::Dump* dump) {
  v1::StackGroup* group = dump->add_groups();
  group->set_thread_count(static_cast<int32_t>(tids.size()));
  group->mutable_tids()->Assign(tids.begin(), tids.end());
  for (const std::string& name : names) group->add_thread_names(name);
  for (const std::string& state : states) group->add_states(state);
  *group->mutable_stack() = stack;
}

// A dump with one of each thing that the formats show.
v1::Dump MakeDump() {
  v1::Dump dump;
  dump.set_name("processes/4711-123456/dumps/20261121T031502Z-1");
  dump.mutable_process()->set_name("processes/4711-123456");
  dump.mutable_process()->set_pid(4711);
  dump.mutable_process()->set_display_name("checkout");
  dump.mutable_process()->set_hostname("pod-7");
  dump.set_trigger(v1::Dump::REQUEST);
  dump.set_state(v1::Dump::PARTIAL);
  dump.set_stored(true);
  dump.mutable_create_time()->set_seconds(1795230902);
  dump.mutable_capture_duration()->set_nanos(9'800'000);
  dump.mutable_pause()->mutable_max()->set_nanos(41'000);
  dump.mutable_thread_counts()->set_listed(1006);
  dump.mutable_thread_counts()->set_captured(1003);
  dump.mutable_thread_counts()->set_signal_blocked(2);
  dump.mutable_thread_counts()->set_timed_out(1);
  dump.add_notes("1 of 1006 threads did not answer by the deadline");
  dump.add_notes("no function names for libfoo.so (1 frame): no symbols: build-id 1a2b was not found");

  const v1::Stack idle = MakeStack({
      MakeFrame("__futex_abstimed_wait_common", "./nptl/futex-internal.c", 57, "libc.so.6", v1::Frame::REGISTERS),
      MakeFrame("pthread_cond_wait", "./nptl/pthread_cond_wait.c", 618, "libc.so.6"),
      MakeFrame("Queue<std::function<void ()> >::Pop()", "/src/queue.h", 41, "checkout", v1::Frame::INLINED),
      MakeFrame("Worker::Run()", "/src/worker.cc", 88, "checkout"),
      MakeFrame("clone3", "", 0, "libc.so.6"),
  });
  v1::Frame unknown = MakeFrame("", "", 0, "libfoo.so");
  v1::Frame generated = MakeFrame("", "", 0, "[anon]");
  generated.clear_module_offset();
  const v1::Stack cut = MakeStack({generated, unknown}, v1::Stack::NO_UNWIND_INFO);
  const v1::Stack interrupted = MakeStack({
      MakeFrame("OnAlarm(int)", "/src/main.cc", 12, "checkout", v1::Frame::REGISTERS),
      MakeFrame("<signal handler called>", "", 0, "libc.so.6"),
      MakeFrame("Square(int)", "/src/math.h", 3, "checkout", v1::Frame::INLINED),
      MakeFrame("Fibonacci(int)", "/src/math.cc", 9, "checkout", v1::Frame::SIGNAL_FRAME),
      MakeFrame("Fibonacci(int)", "/src/math.cc", 10, "checkout"),
      MakeFrame("Fibonacci(int)", "/src/math.cc", 10, "checkout"),
      MakeFrame("Fibonacci(int)", "/src/math.cc", 10, "checkout"),
      MakeFrame("Fibonacci(int)", "/src/math.cc", 10, "checkout"),
      MakeFrame("Fibonacci(int)", "/src/math.cc", 10, "checkout"),
      MakeFrame("Even(int)", "/src/math.cc", 20, "checkout"),
      MakeFrame("Odd(int)", "/src/math.cc", 25, "checkout"),
      MakeFrame("Even(int)", "/src/math.cc", 20, "checkout"),
      MakeFrame("Odd(int)", "/src/math.cc", 25, "checkout"),
      MakeFrame("Even(int)", "/src/math.cc", 20, "checkout"),
      MakeFrame("Odd(int)", "/src/math.cc", 25, "checkout"),
      MakeFrame("Even(int)", "/src/math.cc", 20, "checkout"),
      MakeFrame("Odd(int)", "/src/math.cc", 25, "checkout"),
      MakeFrame("main", "/src/main.cc", 30, "checkout"),
  });
  for (const v1::Stack& stack : {idle, cut, interrupted}) *dump.add_stacks() = stack;

  AddThread(4711, "checkout", "running", 2, &dump);
  std::vector<int32_t> idle_tids;
  for (int32_t tid = 4712; tid <= 5711; ++tid) {
    idle_tids.push_back(tid == 5711 ? 5800 : tid);
    AddThread(idle_tids.back(), tid < 5710 ? "worker" : "worker-io", tid == 4800 ? "running" : "in a system call (futex)",
              0, &dump);
  }
  AddThread(5801, "", "running or in a system call", 1, &dump);
  AddThread(5802, "", "running or in a system call", 1, &dump);
  AddThread(5803, "node-signal", "blocks signal 34", -1, &dump);
  dump.mutable_threads()->rbegin()->set_status(v1::Thread::SIGNAL_BLOCKED);
  AddThread(5804, "node-signal", "blocks signal 34", -1, &dump);
  dump.mutable_threads()->rbegin()->set_status(v1::Thread::SIGNAL_BLOCKED);
  AddThread(5805, "\x1b[2Jevil\n", "did not answer by the deadline", -1, &dump);
  dump.mutable_threads()->rbegin()->set_status(v1::Thread::TIMED_OUT);

  AddGroup(idle_tids, {"worker", "worker-io"}, {"in a system call (futex)", "running"}, idle, &dump);
  AddGroup({5801, 5802}, {""}, {"running or in a system call"}, cut, &dump);
  AddGroup({4711}, {"checkout"}, {"running"}, interrupted, &dump);
  v1::Module* module = dump.add_modules();
  module->set_path("/src/checkout");
  module->set_symbols("DWARF");
  return dump;
}

// The same process, whose thread "walker" ran over its stack.
v1::Dump MakeCrashDump() {
  v1::Dump dump = MakeDump();
  dump.set_trigger(v1::Dump::CRASH);
  dump.set_state(v1::Dump::COMPLETE);
  v1::Stack stack = MakeStack({
      MakeFrame("memmove", "", 0, "libc.so.6", v1::Frame::REGISTERS),
      MakeFrame("walk(Node*)", "/src/tree.cc", 30, "checkout"),
      MakeFrame("Odd(int)", "/src/math.cc", 25, "checkout", v1::Frame::INLINED),
      MakeFrame("Even(int)", "/src/math.cc", 20, "checkout"),
      MakeFrame("start_thread", "", 0, "libc.so.6"),
      MakeFrame("clone3", "", 0, "libc.so.6"),
  });
  stack.mutable_frames(1)->set_repeat_count(65'412);
  stack.mutable_frames(1)->set_repeat_length(1);
  stack.mutable_frames(2)->set_repeat_count(9);
  stack.mutable_frames(2)->set_repeat_length(2);
  stack.set_omitted_bytes(8'307'000);
  stack.set_omitted_before(2);
  *dump.add_stacks() = stack;
  AddThread(5900, "walker", "crashed: SIGSEGV", 3, &dump);
  AddGroup({5900}, {"walker"}, {"crashed: SIGSEGV"}, stack, &dump);
  dump.mutable_groups()->DeleteSubrange(1, 2);
  v1::Crash* crash = dump.mutable_crash();
  crash->set_tid(5900);
  crash->set_explanation("stack overflow of thread walker: 8.0 MiB are used up (SIGSEGV, SEGV_ACCERR)");
  return dump;
}

void AddFinding(v1::Finding::Kind kind, v1::Finding::Severity severity, const std::string& explanation,
                const std::vector<std::string>& details, v1::Dump* dump) {
  v1::Finding* finding = dump->add_findings();
  finding->set_kind(kind);
  finding->set_severity(severity);
  finding->set_explanation(explanation);
  for (const std::string& detail : details) finding->add_details(detail);
}

// Two threads in a cycle, and a thousand that are idle, two of them otherwise than the rest.
v1::Dump MakeHangDump() {
  v1::Dump dump = MakeDump();
  dump.set_trigger(v1::Dump::HANG);
  dump.set_state(v1::Dump::COMPLETE);
  dump.mutable_hang()->set_explanation("2 threads wait for each other in a circle");
  const v1::Stack locked = MakeStack({
      MakeFrame("__lll_lock_wait", "", 0, "libc.so.6", v1::Frame::REGISTERS),
      MakeFrame("Transfer(Account&, Account&)", "/src/bank.cc", 41, "checkout"),
  });
  *dump.add_stacks() = locked;
  for (int32_t tid : {5901, 5902}) {
    AddThread(tid, "teller", "in a system call (futex)", 3, &dump);
    v1::Wait* wait = dump.mutable_threads()->rbegin()->mutable_wait();
    wait->set_kind(v1::Wait::MUTEX);
    wait->set_explanation("waits for mutex 0x" + std::to_string(tid) + " (heap)");
    wait->mutable_duration()->set_seconds(tid - 5890);
  }
  AddGroup({5901, 5902}, {"teller"}, {"in a system call (futex)"}, locked, &dump);
  for (v1::Thread& thread : *dump.mutable_threads()) {
    if (thread.stack() != 0 || !thread.has_stack()) continue;
    thread.mutable_wait()->set_kind(v1::Wait::CONDITION_VARIABLE);
    thread.mutable_wait()->set_explanation(thread.tid() < 5710 ? "waits on condition variable 0x40 (heap)"
                                                               : "waits on condition variable 0x80 (heap)");
  }
  AddFinding(v1::Finding::DEADLOCK, v1::Finding::HANG, "2 threads wait for each other in a circle: evil \x1b[2J",
             {"thread teller (tid 5901) waits", "thread teller (tid 5902) waits"}, &dump);
  AddFinding(v1::Finding::OWNER_BLOCKED, v1::Finding::SUSPICIOUS, "3 threads wait", {}, &dump);
  AddFinding(v1::Finding::IDLE, v1::Finding::HARMLESS, "1000 threads are idle: 1000 wait on condition variables",
             {"998 threads in Worker::Run: each waits"}, &dump);
  return dump;
}

// With STACKD_UPDATE_GOLDEN=1 in the environment the file is written instead, for review.
void ExpectGolden(const std::string& name, const std::string& actual) {
  const std::string path = "daemon/export/testdata/" + name;
  if (getenv("STACKD_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << actual;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path;
  EXPECT_EQ(actual, std::string(std::istreambuf_iterator<char>(file), {})) << path;
}

// `text` without the threads between the first few and the last few.
std::string WithoutMostThreads(const std::string& text) {
  const auto begin = text.find("\nThread 4 "), end = text.find("\nThread 1000 ");
  return text.substr(0, begin) + "\n[...]\n" + text.substr(end);
}

TEST(ExportText, ShowsGroupsLargestFirst) { ExpectGolden("groups.txt", Export(ExportText, MakeDump())); }

TEST(ExportTextByThread, ShowsThreadsInTheKernelsOrder) {
  ExpectGolden("threads.txt", WithoutMostThreads(Export(ExportTextByThread, MakeDump())));
}

TEST(ExportText, TheHeadLineSaysInWhichContainerOfWhichPod) {
  v1::Dump dump = MakeDump();
  auto& place = *dump.mutable_process()->mutable_resource_attributes();
  const auto heading = [&] {
    const std::string text = Export(ExportText, dump);
    return text.substr(0, text.find(':'));
  };
  place["k8s.node.name"] = "node-1";
  EXPECT_EQ(heading(), "checkout (pid 4711 on pod-7)");
  place["k8s.pod.name"] = "checkout-0";
  EXPECT_EQ(heading(), "checkout (pid 4711 in pod checkout-0 on node-1)");
  place["k8s.namespace.name"] = "shop";
  place["k8s.container.name"] = "app";
  EXPECT_EQ(heading(), "checkout (pid 4711 in container app of pod shop/checkout-0 on node-1)");
}

TEST(ExportFolded, HasALineForEachStackAndThreadName) { ExpectGolden("folded.txt", Export(ExportFolded, MakeDump())); }

TEST(ExportText, BeginsWithWhatCrashed) { ExpectGolden("crash.txt", Export(ExportText, MakeCrashDump())); }

TEST(ExportTextByThread, ShowsTheThreadThatCrashedFirst) {
  const std::string text = Export(ExportTextByThread, MakeCrashDump());
  ExpectGolden("crash_threads.txt", text.substr(0, text.find("\nThread 2 ")));
}

TEST(ExportText, BeginsWithWhatHangs) { ExpectGolden("hang.txt", Export(ExportText, MakeHangDump())); }

TEST(ExportTextByThread, BeginsWithWhatHangs) {
  const std::string text = Export(ExportTextByThread, MakeHangDump());
  EXPECT_THAT(text, HasSubstr("checkout (pid 4711 on pod-7) hangs: 2 threads wait"));
  EXPECT_THAT(text, HasSubstr("\nHANG: 2 threads wait for each other in a circle: evil \\x1b[2J\n"));
  EXPECT_THAT(text, HasSubstr("(tid 5901 \"teller\"): in a system call (futex)\nwaits for mutex 0x5901 (heap)\n"));
  EXPECT_THAT(text, HasSubstr("\nHarmless: 1000 threads are idle"));
}

TEST(ExportFolded, CountsRecursion) {
  EXPECT_THAT(Export(ExportFolded, MakeCrashDump()),
              HasSubstr("\ncheckout;walker;clone3;start_thread;Even(int) × 9;Odd(int) × 9;"
                        "[7.9 MiB of the stack are not shown here: not copied];walk(Node*) × 65,412;memmove 1\n"));
}

TEST(ExportText, ShowsTasksThatStandWhereTheThreadThatCrashedDoes) {
  v1::Dump dump;
  dump.mutable_crash()->set_tid(7);
  dump.add_threads()->set_tid(7);
  AddGroup({7}, {"worker"}, {}, MakeStack({MakeFrame("main.wait", "/src/main.go", 3, "server")}), &dump);
  EXPECT_THAT(Export(ExportText, dump), testing::Not(testing::HasSubstr("1 thread")));
  dump.mutable_groups(0)->set_task_count(3);
  EXPECT_THAT(Export(ExportText, dump), testing::HasSubstr("1 thread and 3 "));
}

TEST(ExportText, CallsTasksByTheirNamesWhereAllHaveOne) {
  v1::Dump dump;
  AddGroup({7}, {"worker"}, {}, MakeStack({MakeFrame("fetch", "/src/shop.py", 3, "")}), &dump);
  dump.mutable_groups(0)->set_task_count(12);
  for (uint64_t id = 1; id <= 10; ++id) {
    v1::Task* task = dump.add_tasks();
    task->set_id(id);
    task->set_name("fetch-" + std::to_string(id) + "\x1b");
    dump.mutable_groups(0)->add_task_ids(id);
  }
  EXPECT_THAT(Export(ExportText, dump), testing::HasSubstr("\n  named fetch-1\\x1b, fetch-2\\x1b, "));
  EXPECT_THAT(Export(ExportText, dump), testing::HasSubstr("fetch-8\\x1b and 4 others\n"));
  dump.mutable_tasks(9)->clear_name();
  EXPECT_THAT(Export(ExportText, dump), testing::HasSubstr("\n  ids 1-10 and 2 others\n"));
}

TEST(ExportText, ListsTasksThatHaveNoStack) {
  v1::Dump dump;
  for (uint64_t id = 1; id <= 25; ++id) {
    v1::Task* task = dump.add_tasks();
    task->set_kind(v1::Task::TOKIO_TASK);
    task->set_id(id);
    task->set_name("app::serve\x1b");
    task->set_created_by("src/app.rs:31");
    task->set_state("running");
    if (id == 1) task->set_tid(41);
    if (id == 2) task->set_stack(0);
  }
  const std::string text = Export(ExportText, dump);
  EXPECT_THAT(text, testing::HasSubstr("\nTasks without a stack:\n"
                                       "  id 1: app::serve\\x1b, made at src/app.rs:31: running on thread 41\n"
                                       "  id 3: app::serve\\x1b, made at src/app.rs:31: running\n"));
  EXPECT_THAT(text, testing::HasSubstr("\n  and 4 others\n"));
  for (v1::Task& task : *dump.mutable_tasks()) task.set_kind(v1::Task::GOROUTINE);
  EXPECT_THAT(Export(ExportText, dump), testing::Not(testing::HasSubstr("without a stack")));
}

TEST(ExportText, SaysOfTasksHowLongTheyWaitAndWhereTheyWereCreated) {
  v1::Dump dump;
  AddGroup({}, {}, {"chan receive"}, MakeStack({MakeFrame("main.serve", "/src/server.go", 3, "")}), &dump);
  v1::StackGroup* group = dump.mutable_groups(0);
  const auto add = [&](const char* created_by, int64_t waited_s) {
    v1::Task* task = dump.add_tasks();
    task->set_kind(v1::Task::GOROUTINE);
    task->set_id(17 + dump.tasks_size());
    task->set_created_by(created_by);
    if (waited_s > 0) task->mutable_wait_duration()->set_seconds(waited_s);
    group->add_task_ids(task->id());
    group->set_task_count(dump.tasks_size());
  };
  add("main.start at main.go:12\x1b", 0);
  EXPECT_THAT(Export(ExportText, dump),
              HasSubstr("\n  id 18\n  chan receive\n  created by main.start at main.go:12\\x1b\n  #0"));
  dump.mutable_tasks(0)->mutable_wait_duration()->set_seconds(312);
  EXPECT_THAT(Export(ExportText, dump), HasSubstr("\n  chan receive; for about 312 s\n"));
  add("main.start at main.go:12\x1b", 0);
  add("main.restart at main.go:40", 400);
  add("", 20);
  EXPECT_THAT(Export(ExportText, dump),
              HasSubstr("\n  chan receive; the longest for about 400 s\n"
                        "  created by main.start at main.go:12\\x1b (2), by main.restart at main.go:40 (1)\n"));
  group->set_task_count(9);
  EXPECT_THAT(Export(ExportText, dump), HasSubstr("\n  the first 4 created by main.start at main.go:12"));
}

TEST(ExportText, ListsVirtualThreadsWithTheThreadsThatRunThem) {
  v1::Dump dump;
  v1::Task* task = dump.add_tasks();
  task->set_kind(v1::Task::VIRTUAL_THREAD);
  task->set_id(30);
  task->set_name("order\x1b");
  task->set_state("running");
  task->set_tid(41);
  *dump.add_tasks() = *task;
  dump.mutable_tasks(1)->clear_name();
  EXPECT_THAT(Export(ExportText, dump), testing::HasSubstr("\nVirtual threads that run, on the stacks of their threads:\n"
                                                           "  id 30: order\\x1b: running on thread 41\n"
                                                           "  id 30: (no name): running on thread 41\n"));
}

TEST(ExportText, SaysOfManyStatesTheFirst) {
  v1::Dump dump;
  AddGroup({7}, {"worker"}, {}, MakeStack({MakeFrame("wait", "/src/shop.py", 3, "")}), &dump);
  for (int i = 1; i <= 8; ++i) dump.mutable_groups(0)->add_states("awaits task " + std::to_string(i));
  EXPECT_THAT(Export(ExportText, dump), testing::HasSubstr("awaits task 7, awaits task 8\n"));
  dump.mutable_groups(0)->add_states("awaits task 9");
  EXPECT_THAT(Export(ExportText, dump), testing::HasSubstr("awaits task 7, awaits task 8, ...\n"));
}

TEST(ExportText, ShowsACrashOfWhichNoStackIsKnown) {
  v1::Dump dump;
  dump.mutable_process()->set_display_name("orders");
  dump.mutable_process()->set_pid(7);
  dump.mutable_crash()->set_explanation("evil \x1b[2J");
  EXPECT_THAT(Export(ExportText, dump), testing::StartsWith("orders (pid 7) crashed: evil \\x1b[2J\n"));
  dump.mutable_crash()->set_tid(1);
  AddThread(1, "main", "crashed: SIGSEGV", -1, &dump);
  EXPECT_THAT(Export(ExportText, dump), HasSubstr("\nThe thread that crashed: main\n  tid 1\n  (no stack)\n"));
}

TEST(Exports, ReadAnyRepetitionThatADumpMayClaim) {
  for (int64_t count : {int64_t{-1}, int64_t{1}, int64_t{1} << 62}) {
    for (int32_t length : {-5, 0, 1, 2, 7, 1 << 30}) {
      v1::Dump dump = MakeCrashDump();
      for (v1::Stack* stack : {dump.mutable_stacks(3), dump.mutable_groups(1)->mutable_stack()}) {
        for (int i : {0, 2, 5}) {
          stack->mutable_frames(i)->set_repeat_count(count);
          stack->mutable_frames(i)->set_repeat_length(length);
        }
        stack->set_omitted_before(length);
      }
      for (const auto format : {ExportText, ExportTextByThread, ExportFolded}) {
        EXPECT_THAT(Export(format, dump), HasSubstr("memmove"));
      }
    }
  }
}

TEST(ExportText, LeavesTheAgentsOwnThreadOut) {
  v1::Dump dump;
  dump.mutable_thread_counts()->set_listed(3);
  dump.mutable_thread_counts()->set_captured(3);
  dump.mutable_pause()->set_not_paused(1);
  const v1::Stack stack = MakeStack({MakeFrame("capture_helper", "", 0, "libstackd_agent.so", v1::Frame::REGISTERS)});
  *dump.add_stacks() = stack;
  AddThread(1, "main", "running", -1, &dump);
  AddThread(2, "worker", "running", -1, &dump);
  AddThread(3, "stackd-agent", "running", 0, &dump);
  dump.mutable_threads(2)->set_is_agent(true);
  v1::StackGroup* group = dump.add_groups();
  group->set_thread_count(1);
  group->add_tids(3);
  group->set_is_agent(true);
  *group->mutable_stack() = stack;
  const std::string text = Export(ExportText, dump);
  EXPECT_THAT(text, HasSubstr("2 threads, all captured (1 asleep, without a signal)"));
  EXPECT_THAT(text, Not(HasSubstr("capture_helper")));
  EXPECT_THAT(Export(ExportFolded, dump), Not(HasSubstr("capture_helper")));
  const std::string by_thread = Export(ExportTextByThread, dump);
  EXPECT_THAT(by_thread, HasSubstr("\"stackd-agent\"): running, stackd's own"));
  EXPECT_THAT(by_thread, HasSubstr("capture_helper"));
}

TEST(ExportText, SaysInOneLineThatAllIsWell) {
  v1::Dump dump;
  dump.mutable_process()->set_display_name("sleep");
  dump.mutable_process()->set_pid(7);
  dump.mutable_thread_counts()->set_listed(1);
  dump.mutable_thread_counts()->set_captured(1);
  dump.mutable_capture_duration()->set_nanos(300'000);
  EXPECT_THAT(Export(ExportText, dump), testing::StartsWith("sleep (pid 7): 1 thread, all captured, in 300 us\n"));
}

TEST(ExportText, SaysThatADumpIsNotStored) {
  v1::Dump dump = MakeDump();
  dump.set_stored(false);
  EXPECT_THAT(Export(ExportText, dump), HasSubstr("not stored"));
}

TEST(ExportText, SumsUpManyThreadsThatWereNotCaptured) {
  v1::Dump dump;
  for (int i = 1; i <= 3000; ++i) AddThread(i, "worker", "did not answer by the deadline", -1, &dump);
  const std::string text = Export(ExportText, dump);
  EXPECT_THAT(text, HasSubstr("  3,000 threads: did not answer by the deadline\n    tids 1-3000\n"));
}

TEST(ExportText, CutsLongListsOfThreads) {
  v1::Dump dump;
  std::vector<int32_t> tids;
  std::vector<std::string> names;
  for (int i = 0; i < 500; ++i) {
    tids.push_back(1 + 2 * i);
    names.push_back("thread-" + std::to_string(i));
  }
  AddGroup(tids, names, {"running"}, MakeStack({}), &dump);
  const std::string text = Export(ExportText, dump);
  EXPECT_THAT(text, HasSubstr("tids 1, 3, 5, 7"));
  EXPECT_THAT(text, testing::ContainsRegex("tids [0-9, ]* and 4[0-9][0-9] more\n"));
  EXPECT_THAT(text, testing::ContainsRegex("500 threads: thread-0, thread-1, .* and 4[0-9][0-9] more\n"));
}

TEST(Exports, LetNoControlCharacterThrough) {
  const std::string evil =
      "\x1b[2J\x07\r\n\t\x7f\xc2\x9b"
      "31m\xe2\x80\xae"
      "end";
  v1::Dump dump = MakeDump();
  dump.mutable_process()->set_display_name(evil);
  dump.mutable_process()->set_hostname(evil);
  dump.set_name(evil);
  dump.add_notes(evil);
  for (v1::Thread& thread : *dump.mutable_threads()) {
    thread.set_name(evil);
    thread.set_state(evil);
  }
  const auto make_evil = [&](v1::Stack* stack) {
    for (v1::Frame& frame : *stack->mutable_frames()) {
      if (!frame.function().empty()) frame.set_function(evil);
      frame.set_file(evil);
      frame.set_module(evil);
      frame.set_address(evil);
    }
  };
  for (v1::Stack& stack : *dump.mutable_stacks()) make_evil(&stack);
  for (v1::StackGroup& group : *dump.mutable_groups()) {
    make_evil(group.mutable_stack());
    for (std::string& name : *group.mutable_thread_names()) name = evil;
    for (std::string& state : *group.mutable_states()) state = evil;
  }
  for (const auto format : {ExportText, ExportTextByThread, ExportFolded}) {
    const std::string text = Export(format, dump);
    for (const char* forbidden : {"\x1b", "\x07", "\r", "\t", "\x7f", "\xc2\x9b", "\xe2\x80\xae"}) {
      EXPECT_THAT(text, Not(HasSubstr(forbidden)));
    }
    EXPECT_THAT(text, HasSubstr("\\x1b[2J\\x07\\x0d\\x0a\\x09\\x7f\\x9b31m\\u{202e}end"));
  }
}

TEST(ExportFolded, LetsNoNameImitateAFrame) {
  v1::Dump dump;
  dump.mutable_process()->set_display_name("a;b");
  AddThread(1, "c;d\ne", "running", 0, &dump);
  AddGroup({1}, {"c;d\ne"}, {"running"}, MakeStack({MakeFrame("f<[u8; 4]>()", "", 0, "m")}), &dump);
  EXPECT_EQ(Export(ExportFolded, dump), "a:b;c:d\\x0ae;f<[u8: 4]>() 1\n");
}

TEST(ExportJson, IsTheJsonOfTheDump) {
  for (const v1::Dump& dump : {MakeDump(), v1::Dump()}) {
    v1::Dump parsed, expected;
    std::string whole;
    ASSERT_TRUE(MessageToJsonString(dump, &whole).ok());
    ASSERT_TRUE(JsonStringToMessage(whole, &expected).ok());
    const auto status = JsonStringToMessage(Export(ExportJson, dump), &parsed);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(MessageDifferencer::Equals(parsed, expected));
    EXPECT_TRUE(MessageDifferencer::Equals(parsed, dump));
  }
}

TEST(ExportJson, GivesEqualDumpsEqualBytes) {
  v1::Dump one, other;
  auto& there = *one.mutable_process()->mutable_resource_attributes();
  auto& here = *other.mutable_process()->mutable_resource_attributes();
  for (int i = 0; i < 20; ++i) there["key." + std::to_string(100 + i)] = "x";
  for (int i = 19; i >= 0; --i) here["key." + std::to_string(100 + i)] = "x";
  const std::string json = Export(ExportJson, one);
  EXPECT_EQ(json, Export(ExportJson, other));
  for (int i = 1; i < 20; ++i) {
    EXPECT_LT(json.find("key." + std::to_string(99 + i)), json.find("key." + std::to_string(100 + i)));
  }
}

TEST(ExportJson, NamesFieldsAsTheApiDoes) {
  EXPECT_THAT(Export(ExportJson, MakeDump()), HasSubstr("\"threadCounts\":{\"listed\":1006"));
}

TEST(Exports, StopWhenTheReaderIsGone) {
  v1::Dump dump = MakeDump();
  for (const auto format : {ExportText, ExportTextByThread, ExportFolded, ExportJson}) {
    for (int i = 0; i < 300; ++i) dump.add_groups()->CopyFrom(dump.groups(0));
    int pieces = 0;
    format(dump, [&](std::string_view) {
      ++pieces;
      return false;
    });
    EXPECT_EQ(pieces, 1);
  }
}

TEST(Piecewise, CutsPiecesToTheirSizeAndLosesNothing) {
  std::string expected, got;
  std::vector<size_t> sizes;
  const Sink sink = [&](std::string_view piece) {
    sizes.push_back(piece.size());
    got += piece;
    return true;
  };
  {
    Piecewise out(sink);
    for (size_t size_bytes : {1, 70'000, 0, 65'535, 200'000, 65'536}) {
      const std::string text(size_bytes, static_cast<char>('a' + expected.size() % 26));
      out << text;
      expected += text;
    }
  }
  EXPECT_EQ(got, expected);
  sizes.pop_back();
  for (size_t size_bytes : sizes) EXPECT_EQ(size_bytes, Piecewise::kPieceBytes);
}

}  // namespace
}  // namespace stackd
