#include "daemon/compare/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "daemon/compare/stack_difference.h"

namespace stackd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Comparison = v1::DumpComparison;

// "main/loop@7/futex": functions from the thread's first one, each at an address made of its name and the number after "@".
// A function "?" has no name, and "+f" was inlined into the one before it.
using Path = std::string;

struct ThreadIs {
  int tid;
  Path path;
  nanoseconds cpu = {};
  v1::Wait wait = {};
  std::string state = "in a system call (futex)";
};

google::protobuf::Duration ToDuration(nanoseconds time) {
  google::protobuf::Duration duration;
  duration.set_seconds(time / std::chrono::seconds(1));
  duration.set_nanos(static_cast<int32_t>((time % std::chrono::seconds(1)).count()));
  return duration;
}

void FillStack(const Path& path, v1::Stack* stack) {
  std::vector<v1::Frame> frames;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    const bool inlined = part.starts_with('+');
    v1::Frame frame;
    const std::string function = part.substr(inlined ? 1 : 0, part.find('@') - (inlined ? 1 : 0));
    if (function != "?") frame.set_function(function + "(int)");
    frame.set_module("prog");
    frame.set_address(inlined ? frames.back().address() : "0x" + part);
    frame.set_origin(inlined ? v1::Frame::INLINED : v1::Frame::CFI);
    frames.push_back(frame);
    begin = end + 1;
  }
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) *stack->add_frames() = *frame;
}

v1::Dump DumpAt(nanoseconds time, const std::vector<ThreadIs>& threads) {
  v1::Dump dump;
  dump.set_name("processes/7-100/dumps/at-" + std::to_string(time / milliseconds(1)));
  dump.mutable_process()->set_name("processes/7-100");
  dump.mutable_process()->set_display_name("prog");
  dump.mutable_process()->set_pid(7);
  dump.mutable_create_time()->set_seconds(1'700'000'000 + time / std::chrono::seconds(1));
  dump.mutable_create_time()->set_nanos(static_cast<int32_t>((time % std::chrono::seconds(1)).count()));
  for (const ThreadIs& is : threads) {
    v1::Thread* thread = dump.add_threads();
    thread->set_tid(is.tid);
    thread->set_name("t" + std::to_string(is.tid));
    thread->set_status(v1::Thread::CAPTURED);
    thread->set_state(is.state);
    *thread->mutable_cpu_time() = ToDuration(std::chrono::seconds(1) + is.cpu);
    *thread->mutable_pause() = ToDuration(microseconds(20));
    if (is.wait.kind() != v1::Wait::KIND_UNSPECIFIED) *thread->mutable_wait() = is.wait;
    if (is.path.empty()) continue;
    thread->set_stack(dump.stacks_size());
    FillStack(is.path, dump.add_stacks());
  }
  return dump;
}

v1::Wait WaitFor(v1::Wait::Kind kind, const std::string& address = "", int owner_tid = 0) {
  v1::Wait wait;
  wait.set_kind(kind);
  wait.set_address(address);
  wait.set_explanation("waits for " + v1::Wait::Kind_Name(kind) + (address.empty() ? "" : " " + address) +
                       (owner_tid == 0 ? "" : ", held by tid " + std::to_string(owner_tid)));
  wait.set_owner(owner_tid == 0 ? v1::Wait::NONE : v1::Wait::KNOWN);
  wait.set_owner_tid(owner_tid);
  return wait;
}

v1::Wait Mutex(const std::string& address, int owner_tid) { return WaitFor(v1::Wait::MUTEX, address, owner_tid); }
v1::Wait Events() { return WaitFor(v1::Wait::EVENTS); }

void AddFinding(v1::Finding::Kind kind, v1::Finding::Severity severity, const std::string& explanation,
                const std::vector<int>& tids, v1::Dump* dump) {
  v1::Finding* finding = dump->add_findings();
  finding->set_kind(kind);
  finding->set_severity(severity);
  finding->set_explanation(explanation);
  for (size_t i = 0; i < tids.size(); ++i) {
    finding->add_tids(tids[i]);
    v1::Finding::Edge* edge = finding->add_edges();
    edge->set_waiter_tid(tids[i]);
    edge->set_owner_tid(tids[(i + 1) % tids.size()]);
  }
}

// Compares dumps that are two seconds apart.
Comparison Compare(const std::vector<ThreadIs>& before, const std::vector<ThreadIs>& after) {
  const v1::Dump first = DumpAt({}, before), later = DumpAt(std::chrono::seconds(2), after);
  return DumpComparer::Start(first, later)->Finish();
}

Comparison::ThreadComparison ThreadOf(const Comparison& comparison, int tid) {
  for (const auto& thread : comparison.threads()) {
    if (thread.tid() == tid) return thread;
  }
  ADD_FAILURE() << tid << " is missing";
  return {};
}

Comparison::Change ChangeOf(const Comparison& comparison, int tid) { return ThreadOf(comparison, tid).change(); }
Comparison::Verdict VerdictOf(const Comparison& comparison, int tid) { return ThreadOf(comparison, tid).verdict(); }

TEST(Compare, SaysHowEachThreadHasChanged) {
  const Comparison comparison = Compare({{1, "main/wait"},
                                         {2, "main/wait@1"},
                                         {3, "main/wait"},
                                         {4, "main/read"},
                                         {5, "main/gone"},
                                         {6, ""},
                                         {8, "main/old", milliseconds(5)}},
                                        {{1, "main/wait"},
                                         {2, "main/wait@2"},
                                         {3, "main/wait", milliseconds(3)},
                                         {4, "main/write"},
                                         {6, "main/wait"},
                                         {7, "main/new"},
                                         {8, "main/old", milliseconds(1)}});
  EXPECT_EQ(ChangeOf(comparison, 1), Comparison::UNCHANGED);
  EXPECT_EQ(ChangeOf(comparison, 2), Comparison::SAME_FRAMES) << "another instruction";
  EXPECT_EQ(ChangeOf(comparison, 3), Comparison::SAME_FRAMES) << "it used the processor";
  EXPECT_EQ(ChangeOf(comparison, 4), Comparison::MOVED);
  EXPECT_EQ(ChangeOf(comparison, 5), Comparison::ENDED);
  EXPECT_EQ(ChangeOf(comparison, 6), Comparison::NOT_KNOWN);
  EXPECT_EQ(ChangeOf(comparison, 7), Comparison::STARTED);
  EXPECT_EQ(ChangeOf(comparison, 8), Comparison::STARTED) << "its number was used again";
  EXPECT_EQ(ThreadOf(comparison, 3).cpu_time().nanos(), 3'000'000);
  EXPECT_THAT(ThreadOf(comparison, 4).explanation(), HasSubstr("moved from read to write"));
  EXPECT_EQ(comparison.between().seconds(), 2);
  EXPECT_EQ(comparison.threads_size(), 8);
}

TEST(Compare, DoesNotTakeTheDumpsOwnHandlerForWork) {
  EXPECT_EQ(ChangeOf(Compare({{1, "main/wait"}}, {{1, "main/wait", microseconds(110)}}), 1), Comparison::UNCHANGED);
  EXPECT_EQ(ChangeOf(Compare({{1, "main/wait"}}, {{1, "main/wait", microseconds(130)}}), 1), Comparison::SAME_FRAMES);
}

TEST(Compare, TakesACallThatIsToBeMadeAgainForTheSameReadAsleep) {
  const auto change = [](const std::string& state, const char* address_before, const char* address_after) {
    v1::Dump before = DumpAt({}, {{.tid = 1, .path = "main/wait", .state = state}});
    v1::Dump after = DumpAt(std::chrono::seconds(2), {{.tid = 1, .path = "main/wait", .state = state}});
    before.mutable_stacks(0)->mutable_frames(0)->set_address(address_before);
    after.mutable_stacks(0)->mutable_frames(0)->set_address(address_after);
    return ChangeOf(DumpComparer::Start(before, after)->Finish(), 1);
  };
  EXPECT_EQ(change("in a system call (futex)", "0x7f12a412b", "0x7f12a4129"), Comparison::UNCHANGED);
  EXPECT_EQ(change("in a system call (futex)", "0x7f12a4129", "0x7f12a412b"), Comparison::UNCHANGED);
  EXPECT_EQ(change("in a system call (futex)", "0x7f12a4128", "0x7f12a412b"), Comparison::SAME_FRAMES);
  EXPECT_EQ(change("running", "0x7f12a412b", "0x7f12a4129"), Comparison::SAME_FRAMES);
}

TEST(Compare, KnowsFunctionsWithoutNamesByTheirCallers) {
  EXPECT_EQ(ChangeOf(Compare({{1, "?@1/?@2"}}, {{1, "?@1/?@3"}}), 1), Comparison::SAME_FRAMES);
  EXPECT_EQ(ChangeOf(Compare({{1, "?@1/?@2"}}, {{1, "?@4/?@2"}}), 1), Comparison::MOVED);
}

TEST(Compare, TakesNoFunctionsWithoutNamesForTheSameAtOtherDepths) {
  const auto common = [](const Path& a, const Path& b) {
    v1::Stack stacks[2];
    FillStack(a, &stacks[0]);
    FillStack(b, &stacks[1]);
    return CommonFunctions(stacks[0], stacks[1]);
  };
  EXPECT_EQ(common("main/?@2", "main/?@3"), 2u);
  EXPECT_EQ(common("main/?@2", "main/?@3/work"), 1u);
}

TEST(Compare, TakesInlinedFunctionsForPartsOfTheirCaller) {
  EXPECT_EQ(ChangeOf(Compare({{1, "main/spin@1/+load"}}, {{1, "main/spin@2"}}), 1), Comparison::SAME_FRAMES);
}

TEST(Compare, RefusesDumpsOfOtherProcessesAndPrograms) {
  const v1::Dump one = DumpAt({}, {{1, "main"}});
  v1::Dump other = one;
  other.mutable_process()->set_name("processes/8-100");
  EXPECT_EQ(DumpComparer::Start(one, other).error().reason, "DIFFERENT_PROCESSES");
  EXPECT_EQ(DumpComparer::Start(one, other).error().code, Code::kFailedPrecondition);
  other = one;
  other.mutable_process()->set_executable("/bin/other");
  EXPECT_EQ(DumpComparer::Start(one, other).error().reason, "DIFFERENT_PROCESSES");
  EXPECT_FALSE(DumpComparer::Start(one, DumpAt({}, {}))) << "all would seem to have ended";
}

TEST(Compare, FindsADeadlockThatIsInBothDumps) {
  const std::vector<ThreadIs> threads{{1, "main/a/lock", {}, Mutex("0xb", 2)},
                                      {2, "main/b/lock", {}, Mutex("0xa", 1)},
                                      {3, "main/c/lock", {}, Mutex("0xa", 1)},
                                      {4, "main/poll", {}, Events()}};
  v1::Dump before = DumpAt({}, threads), after = DumpAt(std::chrono::seconds(2), threads);
  AddFinding(v1::Finding::DEADLOCK, v1::Finding::HANG, "threads 1 and 2 wait for each other", {1, 2}, &after);
  EXPECT_EQ(DumpComparer::Start(before, after)->Finish().verdict(), Comparison::STUCK) << "only one dump says so";
  AddFinding(v1::Finding::DEADLOCK, v1::Finding::HANG, "threads 1 and 2 wait for each other", {1, 2}, &before);
  const Comparison comparison = DumpComparer::Start(before, after)->Finish();
  EXPECT_EQ(comparison.verdict(), Comparison::DEADLOCKED);
  EXPECT_EQ(comparison.explanation(), "threads 1 and 2 wait for each other; in both dumps, 2.0 s apart");
  EXPECT_EQ(VerdictOf(comparison, 1), Comparison::DEADLOCKED);
  EXPECT_EQ(VerdictOf(comparison, 3), Comparison::STUCK);
  EXPECT_EQ(VerdictOf(comparison, 4), Comparison::IDLE);
  ASSERT_EQ(comparison.findings_size(), 1);
  EXPECT_THAT(comparison.findings(0).details(), Contains("it is in both dumps"));
}

TEST(Compare, WithdrawsAHangThatEndedByItself) {
  const auto severity = [](microseconds cpu, bool in_both) {
    v1::Dump before = DumpAt({}, {{1, "main/lock", {}, Mutex("0xa", 1)}});
    v1::Dump after = DumpAt(std::chrono::seconds(2), {{1, "main/lock", cpu, Mutex("0xa", 1)}});
    AddFinding(v1::Finding::SELF_DEADLOCK, v1::Finding::HANG, "it waits for itself", {1}, &before);
    if (in_both) AddFinding(v1::Finding::SELF_DEADLOCK, v1::Finding::HANG, "it waits for itself", {1}, &after);
    return DumpComparer::Start(before, after)->Finish().findings(0).severity();
  };
  EXPECT_EQ(severity({}, true), v1::Finding::HANG);
  EXPECT_EQ(severity(milliseconds(2), true), v1::Finding::HANG) << "other dumps asked it as well";
  EXPECT_EQ(severity(milliseconds(5), true), v1::Finding::SUSPICIOUS) << "it ran in between";
  EXPECT_EQ(severity({}, false), v1::Finding::SUSPICIOUS) << "it is over";
}

TEST(Compare, CallsStuckWhoWaitsForTheSameLockOfAThreadThatDoesNotMove) {
  const std::vector<ThreadIs> threads{{1, "main/sleep", {}, WaitFor(v1::Wait::SLEEP)},
                                      {2, "main/lock", {}, Mutex("0xa", 1)},
                                      {3, "main/lock", {}, Mutex("0xa", 1)}};
  const Comparison comparison = Compare(threads, threads);
  EXPECT_EQ(comparison.verdict(), Comparison::STUCK);
  EXPECT_EQ(comparison.explanation(), "2 threads wait for MUTEX 0xa, held by tid 1, in both dumps; nothing moved in 2.0 s");
  EXPECT_EQ(VerdictOf(comparison, 1), Comparison::IDLE);
  EXPECT_EQ(comparison.threads(0).tid(), 2) << "those of concern come first";
}

TEST(Compare, CallsStuckWhoWaitsForAMonitorOfAThreadThatReads) {
  const std::vector<ThreadIs> threads = {{1, "main/enter", {}, WaitFor(v1::Wait::MONITOR, "0x10", 2)},
                                         {2, "main/read", {}, WaitFor(v1::Wait::READ)}};
  const Comparison comparison = Compare(threads, threads);
  EXPECT_EQ(VerdictOf(comparison, 1), Comparison::STUCK);
  EXPECT_EQ(comparison.verdict(), Comparison::STUCK);
}

TEST(Compare, TakesNoAskingForTheGilForWork) {
  const auto waiter = [](nanoseconds cpu) { return ThreadIs{1, "main/take_gil", cpu, WaitFor(v1::Wait::GIL, "0x10", 2)}; };
  const ThreadIs reader{2, "main/read", {}, WaitFor(v1::Wait::READ)};
  Comparison comparison = Compare({waiter({}), reader}, {waiter(milliseconds(20)), reader});
  EXPECT_EQ(VerdictOf(comparison, 1), Comparison::STUCK);
  EXPECT_EQ(comparison.verdict(), Comparison::STUCK);
  // Its owner computes, and others wait for that.
  comparison = Compare({waiter({}), {2, "main/compute"}}, {waiter(milliseconds(20)), {2, "main/store", milliseconds(900)}});
  EXPECT_EQ(VerdictOf(comparison, 1), Comparison::SLOW);
}

TEST(Compare, CallsSlowWhoWaitsForALockWhoseOwnerMoves) {
  const Comparison comparison = Compare(
      {{1, "main/f"}, {2, "main/lock", {}, Mutex("0xa", 1)}, {3, "main/g/lock", {}, Mutex("0xb", 2)}},
      {{1, "main/g", milliseconds(50)}, {2, "main/lock", {}, Mutex("0xa", 1)}, {3, "main/g/lock", {}, Mutex("0xb", 2)}});
  EXPECT_EQ(comparison.verdict(), Comparison::SLOW);
  EXPECT_EQ(VerdictOf(comparison, 1), Comparison::SLOW);
  EXPECT_EQ(VerdictOf(comparison, 2), Comparison::SLOW);
  EXPECT_EQ(VerdictOf(comparison, 3), Comparison::SLOW) << "it waits for one that waits for one that moves";
}

TEST(Compare, CallsSlowWhoWaitsForALockThatWentFromHandToHand) {
  const Comparison comparison = Compare({{1, "main/lock", {}, Mutex("0xa", 2)},
                                         {2, "main/sleep", {}, WaitFor(v1::Wait::SLEEP)},
                                         {3, "main/sleep", {}, WaitFor(v1::Wait::SLEEP)}},
                                        {{1, "main/lock", {}, Mutex("0xa", 3)},
                                         {2, "main/sleep", {}, WaitFor(v1::Wait::SLEEP)},
                                         {3, "main/sleep", {}, WaitFor(v1::Wait::SLEEP)}});
  EXPECT_EQ(VerdictOf(comparison, 1), Comparison::SLOW);
}

TEST(Compare, EndsWhereWaitsGoInACycleOrToThemselves) {
  const std::vector<ThreadIs> threads{{1, "main/lock", {}, Mutex("0xb", 2)},
                                      {2, "main/lock", {}, Mutex("0xc", 3)},
                                      {3, "main/lock", {}, Mutex("0xb", 2)},
                                      {4, "main/lock", {}, Mutex("0xd", 4)},
                                      {5, "main/lock", {}, Mutex("0xe", 99)}};
  const Comparison comparison = Compare(threads, threads);
  for (int tid = 1; tid <= 5; ++tid) EXPECT_EQ(VerdictOf(comparison, tid), Comparison::STUCK) << tid;
}

TEST(Compare, TakesAJoinForStuckOnlyIfTheOtherThreadIs) {
  const auto verdict = [](const v1::Wait& other) {
    const std::vector<ThreadIs> threads{{1, "main/join", {}, WaitFor(v1::Wait::JOIN, "", 2)}, {2, "main/wait", {}, other}};
    return VerdictOf(Compare(threads, threads), 1);
  };
  EXPECT_EQ(verdict(Events()), Comparison::IDLE);
  EXPECT_EQ(verdict(Mutex("0xa", 0)), Comparison::STUCK);
}

TEST(Compare, FindsAThreadThatUsesACoreInOneFunction) {
  const Comparison comparison =
      Compare({{1, "main/spin@1", {}, {}, "running"}, {2, "main/poll", {}, Events()}},
              {{1, "main/spin@2", milliseconds(1900), {}, "running"}, {2, "main/poll", {}, Events()}});
  EXPECT_EQ(comparison.verdict(), Comparison::SPINNING);
  EXPECT_EQ(VerdictOf(comparison, 1), Comparison::SPINNING);
  EXPECT_EQ(comparison.explanation(), "thread t1 (tid 1) used 95 % of a core for 2.0 s and did not leave spin");
  ASSERT_EQ(comparison.findings_size(), 1);
  EXPECT_EQ(comparison.findings(0).kind(), v1::Finding::SPINNING);
}

TEST(Compare, SaysThatASpinHoldsUpAnEventLoop) {
  v1::Dump before = DumpAt({}, {{1, "main/uv_run/validate/RawMatch@1", {}, {}, "running"}});
  v1::Dump after =
      DumpAt(std::chrono::seconds(2), {{1, "main/uv_run/validate/RawMatch@2", milliseconds(1900), {}, "running"}});
  for (v1::Dump* dump : {&before, &after}) {
    dump->mutable_stacks(0)->mutable_frames(2)->set_function("uv_run");
    v1::Frame& script = *dump->mutable_stacks(0)->mutable_frames(1);
    script.set_function("validate");
    script.set_file("/srv/shop.js");
    script.set_origin(v1::Frame::RUNTIME);
    script.set_language(v1::JAVASCRIPT);
  }
  EXPECT_THAT(DumpComparer::Start(before, after)->Finish().findings(0).details(),
              Contains("the event loop of Node.js runs no other callback meanwhile: it is in validate at shop.js"));
}

TEST(Compare, ThreadsOfAStarvedPoolAreStuck) {
  v1::Dump before = DumpAt({}, {{1, "main/work", {}, Events()}}),
           after = DumpAt(std::chrono::seconds(2), {{1, "main/work", {}, Events()}});
  const auto verdict = [&] { return VerdictOf(DumpComparer::Start(before, after)->Finish(), 1); };
  EXPECT_EQ(verdict(), Comparison::IDLE);
  for (v1::Dump* dump : {&before, &after}) {
    AddFinding(v1::Finding::STARVED_POOL, v1::Finding::SUSPICIOUS, "the loop is blocked", {1}, dump);
  }
  EXPECT_EQ(verdict(), Comparison::STUCK);
}

TEST(Compare, TakesNoThreadThatMovesForOneThatSpins) {
  const Comparison comparison =
      Compare({{1, "main/parse", {}, {}, "running"}}, {{1, "main/send", milliseconds(1900), {}, "running"}});
  EXPECT_EQ(comparison.verdict(), Comparison::WORKING);
  EXPECT_THAT(comparison.findings(), IsEmpty());
  EXPECT_THAT(comparison.explanation(), StartsWith("1 of 1 thread moved in 2.0 s and used 1.9 s"));
}

TEST(Compare, KnowsASpinningThreadWithoutACoreOfItsOwn) {
  const auto verdict = [](milliseconds cpu, const std::string& state) {
    return Compare({{1, "main/spin@1", {}, {}, state}}, {{1, "main/spin@2", cpu, {}, state}}).verdict();
  };
  EXPECT_EQ(verdict(milliseconds(500), "running"), Comparison::SPINNING);
  EXPECT_EQ(verdict(milliseconds(500), "in a system call (read)"), Comparison::WORKING);
  EXPECT_EQ(verdict(milliseconds(100), "running"), Comparison::WORKING) << "5 % of a core is a throttled process at work";
}

TEST(Compare, KnowsASpinThatYields) {
  const Comparison comparison =
      Compare({{1, "main/spin@1/sched_yield"}}, {{1, "main/spin@2", milliseconds(1900), {}, "running"}});
  EXPECT_EQ(comparison.verdict(), Comparison::SPINNING);
  EXPECT_THAT(comparison.explanation(), HasSubstr("did not leave spin"));
}

TEST(Compare, FindsThreadsThatHinderEachOther) {
  const Comparison comparison = Compare(
      {{1, "main/first/__pthread_mutex_trylock"}, {2, "main/second/pthread_mutex_unlock"}, {3, "main/poll", {}, Events()}},
      {{1, "main/first/pthread_mutex_lock", milliseconds(900)},
       {2, "main/second/+std::mutex::try_lock", milliseconds(700)},
       {3, "main/poll", {}, Events()}});
  EXPECT_EQ(comparison.verdict(), Comparison::SPINNING);
  ASSERT_EQ(comparison.findings_size(), 1);
  EXPECT_EQ(comparison.findings(0).kind(), v1::Finding::LIVELOCK);
  EXPECT_EQ(comparison.findings(0).tids_size(), 2);
  EXPECT_THAT(comparison.findings(0).details(), Contains(HasSubstr("did not leave second")));
}

TEST(Compare, TakesNoThreadsThatGoElsewhereForALivelock) {
  const Comparison comparison = Compare({{1, "main/a/b/c/d/pthread_mutex_trylock"}, {2, "main/a/b/c/d/sched_yield"}},
                                        {{1, "main/work", milliseconds(900)}, {2, "main/work", milliseconds(900)}});
  EXPECT_EQ(comparison.verdict(), Comparison::WORKING);
  EXPECT_THAT(comparison.findings(), IsEmpty());
}

TEST(Compare, CallsIdleWhatWaitsForEventsAlsoIfItLooksAtAClock) {
  const Comparison comparison = Compare(
      {{1, "main/poll", {}, Events()}, {2, "pool/wait", {}, WaitFor(v1::Wait::CONDITION_VARIABLE, "0x1")}},
      {{1, "main/poll", milliseconds(5), Events()}, {2, "pool/wait", {}, WaitFor(v1::Wait::CONDITION_VARIABLE, "0x1")}});
  EXPECT_EQ(comparison.verdict(), Comparison::IDLE);
  EXPECT_EQ(comparison.explanation(), "in 2.0 s nothing moved: 2 threads wait for work, time or events");
}

TEST(Compare, CallsAnUnknownFutexIdleOnlyIfBothDumpsDo) {
  const std::vector<ThreadIs> threads{{1, "main/wait", {}, WaitFor(v1::Wait::FUTEX, "0x1")}};
  v1::Dump before = DumpAt({}, threads), after = DumpAt(std::chrono::seconds(2), threads);
  EXPECT_EQ(DumpComparer::Start(before, after)->Finish().verdict(), Comparison::VERDICT_UNSPECIFIED);
  for (v1::Dump* dump : {&before, &after}) AddFinding(v1::Finding::IDLE, v1::Finding::HARMLESS, "idle", {1}, dump);
  EXPECT_EQ(DumpComparer::Start(before, after)->Finish().verdict(), Comparison::IDLE);
}

TEST(Compare, SaysWhereItCannotTell) {
  const Comparison comparison = Compare({{1, "main/wait"}}, {{1, "main/wait"}});
  EXPECT_EQ(comparison.verdict(), Comparison::VERDICT_UNSPECIFIED);
  EXPECT_THAT(comparison.explanation(), HasSubstr("not known"));
}

TEST(Compare, BelievesAFindingOfBothDumps) {
  const std::vector<ThreadIs> threads{{1, "main/wait", {}, WaitFor(v1::Wait::CONDITION_VARIABLE, "0x1")}};
  v1::Dump before = DumpAt({}, threads), after = DumpAt(std::chrono::seconds(2), threads);
  AddFinding(v1::Finding::NOBODY_TO_WAKE, v1::Finding::HANG, "nobody will wake it", {1}, &before);
  AddFinding(v1::Finding::IDLE, v1::Finding::HARMLESS, "it was idle", {1}, &before);
  EXPECT_EQ(DumpComparer::Start(before, after)->Finish().verdict(), Comparison::IDLE);
  AddFinding(v1::Finding::NOBODY_TO_WAKE, v1::Finding::HANG, "nobody will wake it", {1}, &after);
  const Comparison comparison = DumpComparer::Start(before, after)->Finish();
  EXPECT_EQ(comparison.verdict(), Comparison::STUCK);
  ASSERT_EQ(comparison.findings_size(), 2);
  EXPECT_EQ(comparison.findings(0).kind(), v1::Finding::NOBODY_TO_WAKE) << "worst first";
  EXPECT_THAT(comparison.findings(1).details(), Contains("it was in the first dump only"));
}

TEST(Compare, PutsAHangBeforeWhatIsOnlySuspicious) {
  v1::Dump before = DumpAt({}, {{1, "main/spin@1", {}, {}, "running"}});
  v1::Dump after = DumpAt(std::chrono::seconds(2), {{1, "main/spin@2", milliseconds(1900), {}, "running"}});
  AddFinding(v1::Finding::HEARTBEAT_MISSED, v1::Finding::HANG, "a heartbeat was missed", {1}, &after);
  const Comparison comparison = DumpComparer::Start(before, after)->Finish();
  ASSERT_EQ(comparison.findings_size(), 2);
  EXPECT_EQ(comparison.findings(0).kind(), v1::Finding::HEARTBEAT_MISSED);
  EXPECT_THAT(comparison.findings(0).details(), Contains("it is in the later dump only"));
}

TEST(Compare, CallsAStoppedProcessStuck) {
  v1::Dump before = DumpAt({}, {{1, ""}}), after = DumpAt(std::chrono::seconds(2), {{1, ""}});
  for (v1::Dump* dump : {&before, &after}) {
    dump->mutable_threads(0)->set_status(v1::Thread::STOPPED);
    dump->mutable_threads(0)->set_state("stopped");
  }
  const Comparison comparison = DumpComparer::Start(before, after)->Finish();
  EXPECT_EQ(comparison.verdict(), Comparison::STUCK);
  EXPECT_THAT(comparison.explanation(), HasSubstr("no stack in either dump: stopped"));
}

TEST(Compare, DoesNotTakeTheThreadThatDumpsForWork) {
  v1::Dump before = DumpAt({}, {{1, "main/poll", {}, Events()}, {2, "serve/own@1"}});
  v1::Dump after =
      DumpAt(std::chrono::seconds(2), {{1, "main/poll", {}, Events()}, {2, "serve/own@2", milliseconds(1900)}});
  for (v1::Dump* dump : {&before, &after}) dump->mutable_stacks(1)->mutable_frames(0)->set_function("stackd_dump_run");
  const Comparison comparison = DumpComparer::Start(before, after)->Finish();
  EXPECT_EQ(comparison.verdict(), Comparison::IDLE);
  EXPECT_EQ(VerdictOf(comparison, 2), Comparison::IDLE);
}

TEST(Compare, SeesInADumpBetweenWhoWentAwayAndCameBack) {
  const v1::Dump before = DumpAt({}, {{1, "main/wait", {}, Events()}, {2, "main/wait", {}, Events()}});
  const v1::Dump between =
      DumpAt(std::chrono::seconds(1), {{1, "main/work", microseconds(50)}, {2, "main/wait", microseconds(50), Events()}});
  const v1::Dump after = DumpAt(std::chrono::seconds(2), {{1, "main/wait", microseconds(150), Events()},
                                                          {2, "main/wait", microseconds(150), Events()}});
  DumpComparer comparer = *DumpComparer::Start(before, after);
  EXPECT_EQ(ChangeOf(comparer.Finish(), 2), Comparison::SAME_FRAMES);
  comparer.AddBetween(between);
  const Comparison comparison = comparer.Finish();
  EXPECT_EQ(ChangeOf(comparison, 1), Comparison::MOVED);
  EXPECT_EQ(ChangeOf(comparison, 2), Comparison::UNCHANGED) << "the third dump's handler used some of the time";
  EXPECT_THAT(comparison.lines(2), HasSubstr("3 dumps compared"));
}

TEST(Compare, WritesThreadsThatDidTheSameOnce) {
  std::vector<ThreadIs> threads;
  for (int tid = 1; tid <= 500; ++tid) threads.push_back({tid, "main/lock", {}, Mutex("0xa", 0)});
  const Comparison comparison = Compare(threads, threads);
  EXPECT_THAT(comparison.lines(0), StartsWith("prog (pid 7): stuck: 500 threads wait for MUTEX 0xa, in both dumps;"));
  EXPECT_THAT(comparison.lines(), Contains(StartsWith("500 threads, stuck: t1 (1), ")));
  EXPECT_THAT(comparison.lines(), Contains("  tids 1-500"));
  EXPECT_LT(comparison.lines_size(), 10);
}

TEST(Compare, LeavesOutLinesOfThreadsThatAllDidSomethingElse) {
  std::vector<ThreadIs> threads;
  for (int tid = 1; tid <= 500; ++tid) threads.push_back({tid, "main/f" + std::to_string(tid)});
  const Comparison comparison = Compare(threads, threads);
  EXPECT_EQ(comparison.threads_size(), 500);
  EXPECT_THAT(comparison.lines(), Contains("460 more threads: stackctl diff -o json has all"));
}

TEST(Compare, PrintsHostileNamesHarmlessly) {
  v1::Dump before = DumpAt({}, {{1, "main/\x1b[31mread"}}), after = DumpAt(std::chrono::seconds(1), {{1, "main/\nwrite"}});
  for (v1::Dump* dump : {&before, &after}) {
    dump->mutable_threads(0)->set_name("a\x1b[2J\n");
    dump->mutable_process()->set_display_name("b\x1b[2J\n");
  }
  const Comparison comparison = DumpComparer::Start(before, after)->Finish();
  for (const std::string& line : comparison.lines()) EXPECT_THAT(line, Not(testing::ContainsRegex("[\x01-\x1f]"))) << line;
}

TEST(Compare, IsNotMisledByHostileNumbers) {
  v1::Dump before = DumpAt({}, {{1, "main"}, {1, "main"}}), after = DumpAt({}, {{1, "main"}, {1, "other"}});
  before.mutable_create_time()->set_seconds(INT64_MIN);
  after.mutable_create_time()->set_seconds(INT64_MAX);
  before.mutable_threads(0)->set_stack(77);
  after.mutable_threads(1)->set_stack(-1);
  after.mutable_threads(0)->mutable_cpu_time()->set_seconds(INT64_MAX);
  EXPECT_EQ(DumpComparer::Start(before, after)->Finish().threads_size(), 1);
  before.mutable_create_time()->set_seconds(INT64_MAX);
  EXPECT_EQ(DumpComparer::Start(before, DumpAt({}, {{1, "main"}}))->Finish().between().seconds(), 0)
      << "the clock was set back";
}

}  // namespace
}  // namespace stackd
