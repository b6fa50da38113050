#include "daemon/assemble/assemble.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <random>
#include <set>

#include "daemon/assemble/testing/assemble_fixture.h"
#include "daemon/fingerprint/fingerprint.h"
#include "stackd/ring_abi.h"

namespace stackd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(AssembleTest, TellsWhatTheDumpIs) {
  AddThread(1, "main", AddStack({"main"}));
  capture_.trigger = Trigger::kSelf;
  const v1::Dump dump = Assemble();
  EXPECT_EQ(dump.name(), "processes/4711-100/dumps/d1");
  EXPECT_EQ(dump.process().name(), "processes/4711-100");
  EXPECT_EQ(dump.process().thread_count(), 1);
  EXPECT_EQ(dump.trigger(), v1::Dump::SELF);
  EXPECT_EQ(dump.state(), v1::Dump::COMPLETE);
  EXPECT_EQ(dump.create_time().seconds(), 1'795'230'902);
  EXPECT_EQ(dump.create_time().nanos(), 7);
  EXPECT_EQ(dump.capture_duration().nanos(), 9'800'000);
  EXPECT_FALSE(dump.stored());
  EXPECT_THAT(Notes(dump), ElementsAre());
}

TEST_F(AssembleTest, ListsInlinedFramesBeforeTheFunctionTheyAreIn) {
  const int stack =
      AddFrame(kApp + 0x123, Named({{"Pop", "queue.h", 41, true}, {"Next", "queue.h", 90, true}, {"Run", "w.cc", 88}}));
  AddThread(1, "w", stack);
  const v1::Stack frames = Assemble().stacks(0);
  ASSERT_EQ(frames.frames_size(), 3);
  EXPECT_EQ(frames.frames(0).function(), "Pop");
  EXPECT_EQ(frames.frames(0).origin(), v1::Frame::INLINED);
  EXPECT_EQ(frames.frames(1).origin(), v1::Frame::INLINED);
  EXPECT_EQ(frames.frames(2).function(), "Run");
  EXPECT_EQ(frames.frames(2).origin(), v1::Frame::REGISTERS);
  for (const v1::Frame& frame : frames.frames()) {
    EXPECT_EQ(frame.address(), "0x400123");
    EXPECT_EQ(frame.module(), "app");
  }
}

TEST_F(AssembleTest, NamesThePlaceOfAFrameWithoutAFunction) {
  AddThread(1, "a", AddFrame(kLib + 0x10, Named({}, "no symbols")));
  AddThread(2, "b", AddFrame(kJit + 0x10, Named({})));
  AddThread(3, "c", AddFrame(kNowhere, Named({})));
  const v1::Dump dump = Assemble();
  EXPECT_EQ(dump.stacks(0).frames(0).module(), "libfoo.so") << "without the remark that the file was deleted";
  EXPECT_EQ(dump.stacks(0).frames(0).module_offset(), "0x1010") << "in the file, for want of the file";
  EXPECT_EQ(dump.stacks(0).frames(0).unnamed_reason(), "no symbols");
  EXPECT_EQ(dump.stacks(1).frames(0).module(), "[anon]");
  EXPECT_EQ(dump.stacks(1).frames(0).module_offset(), "");
  EXPECT_EQ(dump.stacks(2).frames(0).module(), "[anon]");
  EXPECT_EQ(dump.stacks(2).frames(0).address(), "0x10");
}

TEST_F(AssembleTest, LooksAReturnAddressUpInTheMappingOfItsCall) {
  // A call that never returns may be the last instruction of its mapping.
  NamedStack stack;
  stack.native = {{{kApp, 0, FrameOrigin::kRegisters}, {kApp + 0x100000, 0, FrameOrigin::kCfi}}, StackEnd::kRoot};
  stack.locations = {Named({{"f"}}), Named({})};
  stacks_.push_back(stack);
  AddThread(1, "a", 0);
  EXPECT_EQ(Assemble().stacks(0).frames(1).module(), "app");
}

TEST_F(AssembleTest, GroupsThreadsByTheFunctionsOfTheirStacks) {
  const int idle = AddStack({"wait", "run"}), idle_elsewhere = AddStack({"wait", "run"}), busy = AddStack({"work", "run"});
  AddThread(10, "main", busy);
  AddThread(11, "io", idle);
  AddThread(12, "worker", idle_elsewhere);
  AddThread(13, "worker", idle_elsewhere);
  const v1::Dump dump = Assemble();
  ASSERT_EQ(dump.groups_size(), 2);
  EXPECT_EQ(dump.groups(0).thread_count(), 3);
  EXPECT_THAT(dump.groups(0).tids(), ElementsAre(11, 12, 13));
  EXPECT_THAT(dump.groups(0).thread_names(), ElementsAre("worker", "io")) << "the most frequent first";
  EXPECT_EQ(dump.groups(0).stack().SerializeAsString(), dump.stacks(idle_elsewhere).SerializeAsString())
      << "the stack that most of them have";
  EXPECT_THAT(dump.groups(1).tids(), ElementsAre(10));
  EXPECT_EQ(dump.threads(1).stack(), idle);
  EXPECT_EQ(dump.threads(2).stack(), idle_elsewhere);
  EXPECT_NE(dump.groups(0).fingerprint(), dump.groups(1).fingerprint());
}

TEST_F(AssembleTest, OrdersGroupsOfOneSizeByTheirSmallestTid) {
  const int a = AddStack({"a"}), b = AddStack({"b"}), c = AddStack({"c"});
  AddThread(7, "", b);
  AddThread(9, "", a);
  AddThread(3, "", c);
  std::vector<int> tids;
  const v1::Dump dump = Assemble();
  for (const v1::StackGroup& group : dump.groups()) tids.push_back(group.tids(0));
  EXPECT_THAT(tids, ElementsAre(3, 7, 9));
}

TEST_F(AssembleTest, BeginsWithTheThreadThatAHangIsAbout) {
  const int idle = AddStack({"wait"}), stuck = AddStack({"lock"}), main = AddStack({"main"});
  AddThread(1, "main", main);
  AddThread(2, "", idle);
  AddThread(3, "", idle);
  AddThread(4, "loop", stuck);
  capture_.hang = HangCapture{.cause = HangCause::kHeartbeatMissed, .tid = 4};
  std::vector<int> tids;
  const v1::Dump dump = Assemble();
  for (const v1::StackGroup& group : dump.groups()) tids.push_back(group.tids(0));
  EXPECT_THAT(tids, ElementsAre(4, 2, 1)) << "the others by size";
}

TEST_F(AssembleTest, PutsEachThreadWithAStackInExactlyOneGroup) {
  std::mt19937 random(42);
  for (int round = 0; round < 50; ++round) {
    capture_.threads.clear();
    stacks_.clear();
    stack_of_thread_.clear();
    for (int i = 0; i < 20; ++i) {
      std::vector<std::string> functions;
      for (uint32_t depth = random() % 4 + 1; depth > 0; --depth) functions.push_back(std::string(1, 'a' + random() % 3));
      AddStack(functions);
    }
    for (int tid = 1; tid <= 200; ++tid) {
      const int stack = static_cast<int>(random() % 22) - 2;
      AddThread(tid, std::string(1, 'x' + random() % 3), std::max(stack, -1),
                stack < 0 ? ThreadStatus::kTimedOut : ThreadStatus::kCaptured);
    }
    const v1::Dump dump = Assemble();
    std::map<int32_t, const v1::Thread*> with_stack;
    for (const v1::Thread& thread : dump.threads()) {
      if (thread.has_stack()) with_stack[thread.tid()] = &thread;
    }
    std::set<std::string> fingerprints;
    int previous_size = dump.threads_size();
    for (const v1::StackGroup& group : dump.groups()) {
      EXPECT_TRUE(fingerprints.insert(group.fingerprint()).second);
      EXPECT_EQ(group.thread_count(), group.tids_size());
      EXPECT_LE(group.thread_count(), previous_size);
      previous_size = group.thread_count();
      EXPECT_EQ(Fingerprint(group.stack()), group.fingerprint());
      for (int32_t tid : group.tids()) {
        const auto thread = with_stack.extract(tid);
        ASSERT_FALSE(thread.empty()) << "in two groups, or without a stack";
        EXPECT_EQ(Fingerprint(dump.stacks(thread.mapped()->stack())), group.fingerprint());
      }
    }
    EXPECT_TRUE(with_stack.empty());
  }
}

TEST_F(AssembleTest, SaysOfEachThreadWhyItHasNoStack) {
  AddThread(1, "", -1, ThreadStatus::kSignalBlocked);
  AddThread(2, "", -1, ThreadStatus::kUninterruptible).wait_channel = "nfs_wait";
  AddThread(3, "", -1, ThreadStatus::kStopped);
  AddThread(4, "", -1, ThreadStatus::kExited);
  AddThread(5, "", -1, ThreadStatus::kTimedOut);
  AddThread(6, "", -1, ThreadStatus::kRingFull);
  AddThread(7, "", -1, ThreadStatus::kSignalQueueFull);
  AddThread(8, "", -1, ThreadStatus::kAgentFault);
  AddThread(9, "", -1, ThreadStatus::kRunning).kernel_state = 'R';
  AddThread(10, "", -1, ThreadStatus::kRunning).kernel_state = 'S';
  const v1::Dump dump = Assemble();
  std::vector<std::string> states;
  for (const v1::Thread& thread : dump.threads()) states.push_back(thread.state());
  EXPECT_THAT(states, ElementsAre("blocks signal 34", "uninterruptible in nfs_wait", "stopped", "exited during the dump",
                                  "did not answer by the deadline", "no room in the ring by the deadline",
                                  "the kernel would not queue the signal (RLIMIT_SIGPENDING)",
                                  "the agent's handler met a fault of its own", "running",
                                  "not read: it did not sleep for long, or the kernel does not tell where"));
  const v1::ThreadCounts& counts = dump.thread_counts();
  EXPECT_EQ(counts.listed(), 10);
  EXPECT_EQ(counts.captured(), 0);
  EXPECT_EQ(counts.signal_blocked() + counts.uninterruptible() + counts.stopped() + counts.exited() + counts.timed_out() +
                counts.ring_full() + counts.signal_queue_full() + counts.agent_fault() + counts.running(),
            10);
  EXPECT_EQ(dump.threads(1).wait_channel(), "nfs_wait");
  EXPECT_EQ(dump.groups_size(), 0);
}

TEST_F(AssembleTest, CountsPausesOfThoseAloneThatWerePaused) {
  AddThread(1, "main", AddStack({"f"})).pause_ns = 5000;
  AddThread(2, "asleep", AddStack({"g"})).read_asleep = true;
  AddThread(3, "stackd-agent", AddStack({"h"})).is_agent = true;
  const v1::Dump dump = Assemble();
  EXPECT_EQ(dump.pause().median().nanos(), 5000);
  EXPECT_EQ(dump.pause().max().nanos(), 5000);
  EXPECT_EQ(dump.pause().not_paused(), 1);
  EXPECT_TRUE(dump.threads(1).read_asleep());
  EXPECT_FALSE(dump.threads(0).read_asleep());
}

TEST_F(AssembleTest, PutsTheAgentsOwnThreadLast) {
  const int stack = AddStack({"f"});
  AddThread(1, "stackd-agent", AddStack({"capture_helper"})).is_agent = true;
  AddThread(2, "main", stack);
  AddThread(3, "other", AddStack({"g"}));
  const v1::Dump dump = Assemble();
  ASSERT_EQ(dump.groups_size(), 3);
  EXPECT_TRUE(dump.groups(2).is_agent());
  EXPECT_EQ(dump.groups(2).tids(0), 1);
  EXPECT_FALSE(dump.groups(0).is_agent());
  EXPECT_TRUE(dump.threads(0).is_agent());
}

TEST_F(AssembleTest, KeepsTheStackOfAThreadThatBlocksTheSignal) {
  AddThread(1, "main", AddStack({"f"}), ThreadStatus::kSignalBlocked);
  const v1::Dump dump = Assemble();
  EXPECT_EQ(dump.threads(0).state(), "blocks signal 34");
  EXPECT_EQ(dump.groups(0).tids(0), 1);
}

TEST_F(AssembleTest, IsPartialIfTimeRanOut) {
  AddThread(1, "", AddStack({"f"}));
  AddThread(2, "", -1, ThreadStatus::kSignalBlocked);
  EXPECT_EQ(Assemble().state(), v1::Dump::COMPLETE) << "its thread has a status that no time would change";
  AddThread(3, "", -1, ThreadStatus::kTimedOut);
  EXPECT_EQ(Assemble().state(), v1::Dump::PARTIAL);
  capture_.threads.back().status = ThreadStatus::kRingFull;
  EXPECT_EQ(Assemble().state(), v1::Dump::PARTIAL);
  capture_.threads.back().status = ThreadStatus::kExited;
  EXPECT_EQ(Assemble().state(), v1::Dump::COMPLETE);
  capture_.partial = true;
  EXPECT_EQ(Assemble().state(), v1::Dump::PARTIAL);
}

TEST_F(AssembleTest, NotesWhatIsMissingWorstFirst) {
  capture_.notes = {"the process ended during the dump"};
  AddThread(1, "", AddStack({"f"}, StackEnd::kNoUnwindInfo));
  AddThread(2, "", 0);
  AddThread(3, "", AddFrame(kLib + 0x10, Named({}, "no symbols: build-id 1a2b was not found")));
  AddThread(4, "", -1, ThreadStatus::kSignalBlocked);
  AddThread(5, "", -1, ThreadStatus::kTimedOut);
  EXPECT_THAT(Notes(Assemble()),
              ElementsAre("the process ended during the dump", "1 of 5 threads did not answer by the deadline",
                          "1 of 5 threads blocks the dump signal",
                          "the stacks of 2 threads end before the thread's first function: no unwind information in app",
                          "no function names for libfoo.so (1 frame): no symbols: build-id 1a2b was not found"));
}

TEST_F(AssembleTest, SumsUpTheModulesWithoutNamesWhenThereAreMany) {
  std::vector<Mapping> mappings;
  for (int i = 0; i < 30; ++i) mappings.push_back(Map(kLib + i * 0x100000, "/lib/lib" + std::to_string(i) + ".so"));
  capture_.map = std::make_shared<const AddressMap>(std::move(mappings));
  for (int i = 0; i < 30; ++i) AddThread(i + 1, "", AddFrame(kLib + i * 0x100000, Named({})));
  const std::vector<std::string> notes = Notes(Assemble());
  ASSERT_EQ(notes.size(), 9u);
  EXPECT_EQ(notes.back(), "no function names for 22 more modules");
}

TEST_F(AssembleTest, NamesRuntimesWhoseFunctionsAreNotRead) {
  std::vector<Mapping> mappings;
  for (const char* path : {"/lib/libR.so", "/lib/liblua5.4.so.0", "/usr/bin/luatex", "/app/deno", "/lib/libcoreclr.so"}) {
    mappings.push_back(Map(kLib + mappings.size() * 0x100000, path));
  }
  capture_.map = std::make_shared<const AddressMap>(mappings);
  for (size_t i = 0; i < mappings.size(); ++i) {
    AddThread(static_cast<int>(i) + 1, "", AddFrame(kLib + i * 0x100000, Named({{.function = "f"}})));
  }
  const std::string r = "R: stackd does not read its functions; frames in libR.so are those of its interpreter";
  const std::string lua = "Lua: stackd does not read its functions; frames in liblua5.4.so.0 are those of its interpreter";
  EXPECT_THAT(Notes(Assemble()), ElementsAre(r, lua)) << "no code is without a name that the others may have made";

  AddThread(9, "", AddFrame(kLib - 0x100000, Named({})));
  EXPECT_THAT(
      Notes(Assemble()),
      ElementsAre("no function names for code outside all files (1 frame)", r, lua,
                  ".NET: stackd does not read its functions; with DOTNET_PerfMapEnabled=1 it writes their names where "
                  "dumps find them",
                  "Deno: stackd does not read its functions; with --v8-flags=--perf-basic-prof it writes their "
                  "names where dumps find them"));
}

TEST_F(AssembleTest, NamesARuntimeThatHasItsCodeInAFileInMemory) {
  const auto code =
      Mapping{.start_avma = kLib + 0x100000, .end_avma = kLib + 0x200000, .executable = true, .path = "/memfd:vmem"};
  capture_.map = std::make_shared<const AddressMap>(std::vector<Mapping>{Map(kLib, "/lib/beam.smp"), code});
  AddThread(1, "", AddFrame(kLib, Named({{.function = "f"}})));
  AddThread(2, "", AddFrame(kLib + 0x100000, Named({})));
  EXPECT_THAT(Notes(Assemble()), testing::Contains("Erlang: stackd does not read its functions; with +JPperf map it writes "
                                                   "their names where dumps find them"));
}

TEST_F(AssembleTest, ListsTheModulesThatOccurInStacks) {
  AddThread(1, "", AddStack({"f", "g"}));
  const v1::Dump dump = Assemble();
  ASSERT_EQ(dump.modules_size(), 1);
  EXPECT_EQ(dump.modules(0).path(), "/srv/bin/app");
  EXPECT_EQ(dump.modules(0).address(), "0x400000");
  EXPECT_EQ(dump.modules(0).symbols(), "NONE");
}

TEST_F(AssembleTest, TellsHowLongThreadsWerePaused) {
  const int stack = AddStack({"f"});
  for (int i = 1; i <= 200; ++i) AddThread(i, "", stack).pause_ns = (201 - i) * 1000;
  AddThread(999, "", -1, ThreadStatus::kTimedOut).pause_ns = 1'000'000'000;
  const v1::Dump dump = Assemble();
  EXPECT_EQ(dump.pause().median().nanos(), 100'000);
  EXPECT_EQ(dump.pause().p99().nanos(), 198'000);
  EXPECT_EQ(dump.pause().max().nanos(), 200'000);
}

TEST_F(AssembleTest, CanBeReadBackWhateverBytesTheProcessSent) {
  const std::string hostile = "\xff\xfe\x1b[31m\xc3";
  capture_.process.display_name = capture_.process.hostname = capture_.process.executable = hostile;
  capture_.process.start_wall_ns = -5;
  capture_.notes = {hostile};
  capture_.map = std::make_shared<const AddressMap>(std::vector{Map(kApp, "/" + hostile)});
  AddThread(1, hostile, AddFrame(kApp, Named({{hostile, hostile, 1}}, hostile)));
  AddThread(2, hostile, -1, ThreadStatus::kUninterruptible).wait_channel = hostile;
  v1::Dump read;
  EXPECT_TRUE(read.ParseFromString(Assemble().SerializeAsString()));
  EXPECT_GE(read.process().start_time().nanos(), 0);
}

TEST_F(AssembleTest, MakesADumpOfAProcessThatHasLeftNothing) {
  capture_.map = nullptr;
  AddThread(1, "", -1, ThreadStatus::kExited);
  EXPECT_EQ(Assemble().threads(0).state(), "exited during the dump");
}

TEST_F(AssembleTest, SaysWhatCrashed) {
  AddThread(1, "main", AddStack({"poll", "main"}));
  AddThread(2, "worker", AddStack({"raise", "abort", "f(int)", "run"}));
  capture_.trigger = Trigger::kCrash;
  CrashCapture& crash = capture_.crash.emplace();
  crash.tid = 2;
  crash.signal_number = SIGABRT;
  crash.signal_code = SI_TKILL;
  crash.sender_pid = 4711;
  crash.flags = STACKD_CRASH_SENT | STACKD_CRASH_HANDLED | STACKD_CRASH_AGENT_FAULT;
  crash.from_spool = true;
  const v1::Dump dump = Assemble();
  EXPECT_EQ(dump.crash().explanation(), "abort() called by f (app)");
  EXPECT_EQ(dump.crash().cause(), v1::Crash::ABORT);
  EXPECT_EQ(dump.crash().fingerprint_frames_size(), 4);
  EXPECT_EQ(dump.crash().fingerprint().size(), 32u);
  EXPECT_EQ(dump.threads(1).state(), "crashed: SIGABRT");
  EXPECT_EQ(dump.threads(1).status(), v1::Thread::CAPTURED);
  EXPECT_EQ(dump.groups_size(), 2);
  EXPECT_EQ(dump.notes_size(), 3);
  EXPECT_FALSE(Assemble().threads(0).state().empty());
}

TEST_F(AssembleTest, SaysWhatCrashedEvenIfItsThreadIsNotThere) {
  CrashCapture& crash = capture_.crash.emplace();
  crash.tid = 2;
  crash.signal_number = SIGFPE;
  crash.signal_code = FPE_INTDIV;
  EXPECT_THAT(Assemble().crash().explanation(), HasSubstr("division by zero"));
  EXPECT_EQ(Assemble().crash().fingerprint().size(), 32u);
}

// The stack of `depth` calls of f, each twice in one place: g is inlined into it.
NamedStack Recursive(int depth) {
  NamedStack stack;
  stack.native.end = StackEnd::kRoot;
  const auto leaf = Named({{"leaf"}}), recursive = Named({{"g"}, {"f"}}), main = Named({{"main"}});
  for (int i = 0; i < depth + 2; ++i) {
    const bool is_leaf = i == 0, is_main = i == depth + 1;
    stack.native.frames.push_back({kApp + 0x100 +
                                       (is_leaf   ? 0u
                                        : is_main ? 16u
                                                  : 32u),
                                   0x1000 + 64u * i, FrameOrigin::kCfi});
    stack.locations.push_back(is_leaf ? leaf : is_main ? main : recursive);
  }
  return stack;
}

TEST_F(AssembleTest, FoldsDeepRecursion) {
  stacks_ = {Recursive(100), Recursive(1000), Recursive(20)};
  for (int i = 0; i < 3; ++i) AddThread(i + 1, "", i);
  v1::Dump dump = Assemble();
  EXPECT_EQ(dump.stacks(2).frames_size(), 42) << "so few frames of a live thread are shown as they are";
  for (int i = 0; i < 2; ++i) {
    const v1::Stack& stack = dump.stacks(i);
    ASSERT_EQ(stack.frames_size(), 4);
    EXPECT_EQ(stack.frames(1).function(), "g");
    EXPECT_EQ(stack.frames(1).repeat_count(), i == 0 ? 100 : 1000);
    EXPECT_EQ(stack.frames(1).repeat_length(), 2) << "with what is inlined";
    EXPECT_EQ(stack.frames(2).function(), "f");
    EXPECT_EQ(stack.frames(2).repeat_count(), 0);
    EXPECT_EQ(stack.frames(3).function(), "main");
  }
  EXPECT_THAT(dump.groups(0).tids(), ElementsAre(1, 2)) << "one recursion, whatever its depth";
  EXPECT_EQ(Fingerprint(dump.stacks(0)), dump.groups(0).fingerprint());

  capture_.crash.emplace();
  dump = Assemble();
  EXPECT_EQ(dump.stacks(2).frames(1).repeat_count(), 20) << "in a crash what repeats itself is what matters";
}

TEST_F(AssembleTest, MarksTheGapInAStack) {
  NamedStack stack = Recursive(100);
  stack.native.omitted_bytes = 4096;
  stack.native.omitted_before = 2;
  stacks_ = {stack};
  AddThread(1, "", 0);
  v1::Stack expanded = Assemble().stacks(0);
  EXPECT_EQ(expanded.omitted_bytes(), 4096);
  EXPECT_EQ(expanded.omitted_before(), 3) << "behind leaf, g and f";
  // The gap lies in the recursion: what is behind it begins with main.
  stacks_[0].native.omitted_before = 51;
  for (size_t i = 51; i < stacks_[0].native.frames.size(); ++i) stacks_[0].native.frames[i].cfa_avma += 4096;
  expanded = Assemble().stacks(0);
  ASSERT_EQ(expanded.frames_size(), 4);
  EXPECT_EQ(expanded.frames(1).repeat_count(), 100 + 4096 / 64);
  EXPECT_EQ(expanded.omitted_before(), 3);
}

TEST_F(AssembleTest, CutsNamesThatNoProgramHas) {
  AddThread(1, "", AddFrame(kApp, Named({{std::string(1 << 20, 'f')}})));
  EXPECT_LT(Assemble().stacks(0).frames(0).function().size(), 5000u);
}

TEST_F(AssembleTest, MakesAFrameOnceHoweverManyStacksGoThroughIt) {
  const auto main = Named({{"main", "/src/app.cc", 7, false}});
  for (int i = 0; i < 2; ++i) {
    const int stack = AddStack({"f" + std::to_string(i), "main"});
    stacks_[stack].native.frames[1].pc_avma = kApp + 0x500;
    stacks_[stack].locations[1] = main;
    AddThread(i + 1, "", stack);
  }
  const std::shared_ptr<const v1::Dump> dump =
      AssembleDump(capture_, stack_of_thread_, stacks_, [](const Module&) { return SymbolQuality::kNone; }, "d1");
  EXPECT_EQ(&dump->stacks(0).frames(1), &dump->stacks(1).frames(1));
  EXPECT_NE(&dump->stacks(0).frames(0), &dump->stacks(1).frames(0));
  EXPECT_EQ(&dump->groups(0).stack(), &dump->stacks(0));
  const v1::Dump copy = *dump;
  EXPECT_NE(&copy.stacks(0).frames(1), &copy.stacks(1).frames(1)) << "a copy has its own";
  EXPECT_EQ(copy.SerializeAsString(), dump->SerializeAsString());
}

}  // namespace
}  // namespace stackd
