// What runtimes know, in a dump: their frames, their tasks, their names of threads.
#include "daemon/assemble/testing/assemble_fixture.h"
#include "daemon/fingerprint/fingerprint.h"

namespace stackd {
namespace {

using testing::ElementsAre;

RuntimeFrame Python(const std::string& function, int32_t line) {
  return {.function = function, .file = "/srv/app.py", .line = line, .language = Language::kPython};
}

TEST_F(AssembleTest, PutsWhatARuntimeRanBeforeTheNativeFrameThatRanIt) {
  const int stack = AddStack({"read", "_PyEval_EvalFrameDefault", "main"});
  stacks_[stack].runtime_calls = {{1, {Python("load", 3), Python("<module>", 9)}, true},
                                  {3, {{.function = "lost", .language = Language::kPython, .unplaced = true}}, false}};
  AddThread(1, "main", stack);
  const v1::Dump dump = Assemble();
  const v1::Stack& frames = dump.stacks(0);
  ASSERT_EQ(frames.frames_size(), 6);
  EXPECT_EQ(frames.frames(0).function(), "read");
  EXPECT_EQ(frames.frames(1).function(), "load");
  EXPECT_EQ(frames.frames(1).file(), "/srv/app.py");
  EXPECT_EQ(frames.frames(1).line(), 3);
  EXPECT_EQ(frames.frames(1).language(), v1::PYTHON);
  EXPECT_EQ(frames.frames(1).origin(), v1::Frame::RUNTIME);
  EXPECT_EQ(frames.frames(1).module(), "");
  EXPECT_EQ(frames.frames(1).address(), "");
  EXPECT_EQ(frames.frames(2).function(), "<module>");
  EXPECT_FALSE(frames.frames(2).replaced());
  EXPECT_EQ(frames.frames(3).function(), "_PyEval_EvalFrameDefault");
  EXPECT_TRUE(frames.frames(3).replaced());
  EXPECT_FALSE(frames.frames(4).replaced());
  EXPECT_EQ(frames.frames(5).function(), "lost");
  EXPECT_EQ(frames.frames(5).origin(), v1::Frame::RUNTIME_UNPLACED);
}

TEST_F(AssembleTest, GroupsByFunctionsOfRuntimesAndNotByWhatRanThem) {
  const auto add = [&](int32_t tid, const char* interpreter, const char* function, int32_t line) {
    const int stack = AddStack({"read", interpreter, "main"});
    stacks_[stack].runtime_calls = {{1, {Python(function, line)}, true}};
    AddThread(tid, "w", stack);
  };
  add(1, "_PyEval_EvalFrameDefault", "load", 3);
  add(2, "_PyEval_EvalFrameDefault.cold", "load", 4);
  add(3, "_PyEval_EvalFrameDefault", "save", 3);
  const v1::Dump dump = Assemble();
  ASSERT_EQ(dump.groups_size(), 2);
  EXPECT_THAT(dump.groups(0).tids(), ElementsAre(1, 2));
  EXPECT_EQ(dump.groups(0).fingerprint(), Fingerprint(dump.stacks(0)));
}

TEST_F(AssembleTest, FoldsRecursionOfOneInterpretersCall) {
  const int stack = AddStack({"read", "_PyEval_EvalFrameDefault", "main"});
  RuntimeCalls calls{1, {}, true};
  for (int i = 0; i < 900; ++i) calls.frames.push_back(Python(i % 2 == 0 ? "even" : "odd", 5));
  calls.frames.push_back(Python("<module>", 9));
  stacks_[stack].runtime_calls = {calls};
  AddThread(1, "main", stack);
  const v1::Dump dump = Assemble();
  const v1::Stack& frames = dump.stacks(0);
  ASSERT_EQ(frames.frames_size(), 6);
  EXPECT_EQ(frames.frames(1).function(), "even");
  EXPECT_EQ(frames.frames(1).repeat_count(), 450);
  EXPECT_EQ(frames.frames(1).repeat_length(), 2);
  EXPECT_EQ(frames.frames(3).function(), "<module>");
}

TEST_F(AssembleTest, TheInnermostTurnOfAnInterpretersRecursionHasItsOwnLine) {
  const int stack = AddStack({"read", "_PyEval_EvalFrameDefault", "main"});
  RuntimeCalls calls{1, {Python("deep", 101)}, true};
  for (int i = 0; i < 100; ++i) calls.frames.push_back(Python("deep", 99));
  stacks_[stack].runtime_calls = {calls};
  AddThread(1, "main", stack);
  const v1::Dump dump = Assemble();
  const v1::Stack& frames = dump.stacks(0);
  ASSERT_EQ(frames.frames_size(), 5);
  EXPECT_EQ(frames.frames(1).line(), 101);
  EXPECT_EQ(frames.frames(1).repeat_count(), 0);
  EXPECT_EQ(frames.frames(2).line(), 99);
  EXPECT_EQ(frames.frames(2).repeat_count(), 100);
  EXPECT_EQ(dump.groups(0).fingerprint(), Fingerprint(frames));
}

TEST_F(AssembleTest, CountsTasksWithThreadsOfTheSameStack) {
  const int stack = AddStack({});
  stacks_[stack].runtime_calls = {{0, {{.function = "main.wait", .language = Language::kGo}}, true}};
  capture_.managed.runtimes = {{Language::kGo, "Go 1.23.12", "stripped"}};
  capture_.managed.task_stacks = {{.language = Language::kGo, .frames = {{.function = "main.wait"}}},
                                  {.language = Language::kGo, .frames = {{.function = "main.serve"}}}};
  for (uint64_t id = 1; id <= 300; ++id) {
    capture_.managed.tasks.push_back(
        {.id = id, .state = "waiting", .wait_reason = "sync.Mutex.Lock", .wait_ns = 1'500'000'000, .stack = 0});
  }
  capture_.managed.tasks.push_back({.id = 301, .state = "running", .tid = 7, .stack = 1, .created_by = "main.main"});
  capture_.managed.tasks.push_back({.id = 302, .stack = -1});
  capture_.managed.reports = {{Language::kGo, "Go traceback", "panic: no\n\ngoroutine 1 [running]:\n"}};
  const v1::Dump dump = Assemble();
  EXPECT_EQ(dump.task_count(), 302);
  ASSERT_EQ(dump.tasks_size(), 302);
  EXPECT_EQ(dump.tasks(0).wait_duration().nanos(), 500'000'000);
  EXPECT_FALSE(dump.tasks(300).has_wait_duration());
  EXPECT_FALSE(dump.tasks(301).has_stack());
  ASSERT_EQ(dump.groups_size(), 2);
  EXPECT_EQ(dump.groups(0).task_count(), 300);
  EXPECT_EQ(dump.groups(0).task_ids_size(), 100);
  EXPECT_EQ(dump.groups(0).thread_count(), 0);
  EXPECT_THAT(dump.groups(0).states(), ElementsAre("sync.Mutex.Lock"));
  EXPECT_EQ(dump.groups(0).stack().frames(0).function(), "main.wait");
  EXPECT_EQ(dump.groups(1).task_count(), 1);
  EXPECT_EQ(dump.stacks(dump.tasks(300).stack()).frames(0).function(), "main.serve");
  EXPECT_EQ(dump.runtimes(0).name(), "Go 1.23.12");
  EXPECT_THAT(Notes(dump), ElementsAre("Go 1.23.12: stripped"));
  EXPECT_THAT(dump.reports(0).lines(), ElementsAre("panic: no", "", "goroutine 1 [running]:"));
}

TEST_F(AssembleTest, ATaskThatWaitsForSeveralThingsIsInTheGroupOfEach) {
  const int of_thread = AddStack({"main"});
  AddThread(1, "main", of_thread);
  AddStack({"recv", "serve"});
  AddStack({"sleep", "serve"});
  capture_.managed.native_task_stacks = {{{kApp + 0x200, kApp + 0x210}, false}, {{kApp + 0x300, kApp + 0x310}, false}};
  capture_.managed.tasks = {
      {.kind = ManagedTaskKind::kTokioTask, .id = 5, .state = "waiting", .native_stacks = {0, 1}},
      {.kind = ManagedTaskKind::kTokioTask, .id = 6, .state = "waiting", .native_stacks = {1, 1}},
      {.kind = ManagedTaskKind::kTokioTask, .id = 7, .state = "running", .native_stacks = {}},
      {.kind = ManagedTaskKind::kTokioTask, .id = 8, .state = "waiting", .native_stacks = {2, -1}},
  };
  const v1::Dump dump = Assemble();
  ASSERT_EQ(dump.tasks_size(), 4);
  const auto innermost = [&](int stack) { return dump.stacks(stack).frames(0).function(); };
  EXPECT_EQ(innermost(dump.tasks(0).stack()), "recv");
  ASSERT_EQ(dump.tasks(0).other_stacks_size(), 1);
  EXPECT_EQ(innermost(dump.tasks(0).other_stacks(0)), "sleep");
  EXPECT_EQ(innermost(dump.tasks(1).stack()), "sleep");
  EXPECT_FALSE(dump.tasks(2).has_stack());
  EXPECT_FALSE(dump.tasks(3).has_stack());
  std::map<std::string, std::vector<uint64_t>> ids;
  for (const v1::StackGroup& group : dump.groups()) {
    ids[group.stack().frames(0).function()] = {group.task_ids().begin(), group.task_ids().end()};
  }
  EXPECT_EQ(ids, (std::map<std::string, std::vector<uint64_t>>{{"main", {}}, {"recv", {5}}, {"sleep", {5, 6}}}));
}

TEST_F(AssembleTest, WhatARuntimeSaidOfAThreadThatIsGoneIsItsWholeStack) {
  const int stack = AddStack({});
  stacks_[stack].native.end = StackEnd{};
  stacks_[stack].runtime_calls = {{0, {{.function = "main.fail", .language = Language::kGo}}, false}};
  EXPECT_EQ(Assemble().stacks(0).end(), v1::Stack::ROOT);
}

TEST_F(AssembleTest, CallsAThreadWhatItsRuntimeCallsIt) {
  AddThread(1, "Thread-3", AddStack({"f"}));
  AddThread(2, "kernel's", AddStack({"g"}));
  capture_.managed.threads[1] = {.name = "http-nio-8080-exec-1", .holds_gil = true, .stacks = {}, .jit_frames = {}};
  const v1::Dump dump = Assemble();
  EXPECT_EQ(dump.threads(0).name(), "http-nio-8080-exec-1");
  EXPECT_TRUE(dump.threads(0).holds_gil());
  EXPECT_EQ(dump.threads(1).name(), "kernel's");
  EXPECT_FALSE(dump.threads(1).holds_gil());
}

}  // namespace
}  // namespace stackd
