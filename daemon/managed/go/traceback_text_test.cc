#include "daemon/managed/go/traceback_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace stackd {
namespace {

using testing::HasSubstr;
using testing::Not;

// Written by programs of go1.26.8; paths shortened.
constexpr char kPanic[] =
    "panic: password hunter2\n"
    "second line of hunter2\n"
    "\n"
    "goroutine 1 [running]:\n"
    "main.fail({0x7ffeb13b0a88?, 0x3962237ceef7?})\n"
    "\t/src/ends/main.go:24 +0xf3\n"
    "main.(*server).run(0x1234, {0x1, 0x2, 0x3})\n"
    "\t/src/ends/main.go:74 +0xff\n"
    "created by main.serve in goroutine 7\n"
    "\t/src/ends/main.go:12 +0x2b\n"
    "\n"
    "goroutine 9 [chan receive, 2 minutes]:\n"
    "main.wait(...)\n"
    "\t/src/ends/main.go:5\n";

constexpr char kOverflow[] =
    "runtime: goroutine stack exceeds 1000000000-byte limit\n"
    "fatal error: stack overflow\n"
    "\n"
    "runtime stack:\n"
    "runtime.throw({0x4df6de?, 0x5ae9c0?})\n"
    "\t/go/src/runtime/panic.go:1229 +0x48 fp=0x7ffd6d2222c8 sp=0x7ffd6d222298 pc=0x47a848\n"
    "\n"
    "goroutine 1 gp=0xcd7f4adc1e0 m=0 mp=0x5af9c0 [running]:\n"
    "main.overflow(0x1555521?)\n"
    "\t/src/ends/main.go:36 +0x29 fp=0xcd814be03a8 sp=0xcd814be03a0 pc=0x4b3509\n"
    "...additional frames elided...\n"
    "main.main()\n"
    "\t/src/ends/main.go:74 +0xff fp=0x1 sp=0x2 pc=0x3\n"
    "rax    0x1234\n";

TEST(GoTracebackTest, NamesGoroutinesAndTheirFrames) {
  const GoTraceback traceback = ReadGoTraceback(kPanic);
  ASSERT_EQ(traceback.goroutines.size(), 2u);
  const GoTracebackGoroutine& first = traceback.goroutines[0];
  EXPECT_EQ(first.id, 1u);
  EXPECT_EQ(first.state, "running");
  ASSERT_EQ(first.frames.size(), 2u);
  EXPECT_EQ(first.frames[0].function, "main.fail");
  EXPECT_EQ(first.frames[0].file, "/src/ends/main.go");
  EXPECT_EQ(first.frames[0].line, 24);
  EXPECT_EQ(first.frames[1].function, "main.(*server).run");
  EXPECT_EQ(first.created_by, "main.serve at main.go:12");
  EXPECT_EQ(first.creator_id, 7u);
  EXPECT_EQ(traceback.goroutines[1].id, 9u);
  EXPECT_EQ(traceback.goroutines[1].state, "chan receive");
  EXPECT_EQ(traceback.goroutines[1].frames[0].line, 5);
}

TEST(GoTracebackTest, LeavesOutWhatTheProgramPutIntoItsPanic) {
  const GoTraceback traceback = ReadGoTraceback(kPanic);
  EXPECT_THAT(traceback.text, Not(HasSubstr("hunter2")));
  EXPECT_THAT(traceback.text, HasSubstr("panic: (its message is on the program's standard error)\n"));
}

TEST(GoTracebackTest, LeavesOutEveryLineOfAPanic) {
  const GoTraceback traceback = ReadGoTraceback(
      "panic: first\nSIGN hunter2\nruntime: hunter2\nfatal error: hunter2\ngoroutine 3 [hunter2]:\nhunter2()\n"
      "\truntime: hunter2\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x18 pc=0x4b3509]\n\nSIG hunter2\n"
      "\tpanic: runtime error: hunter2\n\ngoroutine 1 [running]:\nmain.fail()\n\t/src/main.go:24 +0xf3\n");
  EXPECT_THAT(traceback.text, Not(HasSubstr("hunter2")));
  EXPECT_THAT(traceback.text, HasSubstr("[signal SIGSEGV]\n"));
  ASSERT_EQ(traceback.goroutines.size(), 1u);
  EXPECT_EQ(traceback.goroutines[0].frames.at(0).function, "main.fail");
}

// The runtime writes the first line of a fatal error only to standard error.
TEST(GoTracebackTest, SaysWhereTheReasonOfAFatalErrorIs) {
  for (const char* text : {"runtime stack:\nruntime.throw({0x1?, 0x2?})\n\ngoroutine 1 [running]:\nmain.f()\n",
                           "goroutine 20 [running]:\nmain.f()\n"}) {
    EXPECT_TRUE(ReadGoTraceback(text).text.starts_with("fatal error: (its message is on the program's standard error)\n"))
        << ReadGoTraceback(text).text;
  }
}

TEST(GoTracebackTest, LeavesOutArgumentsRegistersAndIndices) {
  for (const char* text : {kPanic, kOverflow}) {
    const std::string kept = ReadGoTraceback(text).text;
    EXPECT_THAT(kept, Not(HasSubstr("0x"))) << kept;
  }
  EXPECT_EQ(ReadGoTraceback("panic: runtime error: index out of range [5] with length 3\n").text,
            "panic: runtime error: index out of range ...\n");
}

TEST(GoTracebackTest, KeepsWhatTheRuntimeSays) {
  const GoTraceback traceback = ReadGoTraceback(kOverflow);
  EXPECT_THAT(traceback.text, HasSubstr("runtime: goroutine stack exceeds 1000000000-byte limit\n"));
  EXPECT_THAT(traceback.text, HasSubstr("fatal error: stack overflow\n"));
  ASSERT_EQ(traceback.goroutines.size(), 1u);
  ASSERT_EQ(traceback.goroutines[0].frames.size(), 2u);
  EXPECT_EQ(traceback.goroutines[0].frames[0].line, 36);
  EXPECT_EQ(traceback.goroutines[0].frames[1].function, "main.main");
}

TEST(GoTracebackTest, TakesAnyText) {
  for (const char* text :
       {"", "\n", "goroutine :", "goroutine 1 [:", "goroutine 1 []:\n(\n\t\n\t:\n", "created by ",
        "goroutine 99999999999999999999 [x]:\n)(\nf()\n\tx:99999999999\ncreated by  in goroutine \n\t:"}) {
    ReadGoTraceback(text);
  }
  std::string many;
  for (int i = 0; i < 20'000; ++i) many += "goroutine 1 [x]:\nf()\n\n";
  EXPECT_EQ(ReadGoTraceback(many).goroutines.size(), 10'000u);
}

TEST(GoTracebackTest, TheFirstGoroutineIsTheThreadThatCrashed) {
  ManagedFacts facts;
  AddGoTraceback({Language::kGo, "Go traceback", kPanic}, 42, &facts);
  ASSERT_EQ(facts.threads.count(42), 1u);
  EXPECT_EQ(facts.threads[42].stacks.at(0).frames.at(0).function, "main.fail");
  ASSERT_EQ(facts.tasks.size(), 2u);
  EXPECT_EQ(facts.tasks[0].tid, 42);
  EXPECT_EQ(facts.tasks[1].stack, 0);
  ASSERT_EQ(facts.task_stacks.size(), 1u);
  ASSERT_EQ(facts.reports.size(), 1u);
  EXPECT_THAT(facts.reports[0].text, Not(HasSubstr("hunter2")));
}

}  // namespace
}  // namespace stackd
