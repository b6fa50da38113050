#include "daemon/analyze/findings/finding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include "daemon/testing/hang_scene.h"
#include "daemon/unwind/testing/own_process.h"

namespace stackd {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using Finding = v1::Finding;

void AddIdle(HangScene* scene, int32_t tid, std::string name, std::string_view function) {
  scene->AddThread(
      tid, std::move(name),
      {"__futex_abstimed_wait_common64@libc.so.6", "___pthread_cond_wait@libc.so.6", function, "start_thread@libc.so.6"});
  scene->SetFutexCall(tid, 0x9000 + tid * 0x40, FUTEX_WAIT_BITSET_PRIVATE);
}

TEST(Finding, TwoThreadsThatHoldEachOthersLockAreADeadlock) {
  HangScene scene;
  scene.AddLocker(101, "a", "Transfer(int)", 0x5000);
  scene.AddLocker(102, "b", "Audit()", 0x6000);
  scene.AddMutex(0x5000, 102);
  scene.AddMutex(0x6000, 101);
  scene.Explain();
  ASSERT_EQ(scene.dump().findings_size(), 1);
  const Finding& finding = scene.dump().findings(0);
  EXPECT_EQ(finding.kind(), Finding::DEADLOCK);
  EXPECT_EQ(finding.severity(), Finding::HANG);
  EXPECT_EQ(finding.explanation(), "2 threads wait for each other in a circle: thread a (tid 101), thread b (tid 102)");
  EXPECT_THAT(finding.details(),
              ElementsAre("thread a (tid 101) in Transfer waits for mutex 0x5000, held by thread b (tid 102)",
                          "thread b (tid 102) in Audit waits for mutex 0x6000, held by thread a (tid 101)"));
  EXPECT_THAT(finding.tids(), ElementsAre(101, 102));
  ASSERT_EQ(finding.edges_size(), 2);
  EXPECT_EQ(finding.edges(0).waiter_tid(), 101);
  EXPECT_EQ(finding.edges(0).owner_tid(), 102);
  EXPECT_EQ(finding.edges(0).lock(), "mutex 0x5000");
}

TEST(Finding, ThreadsBehindADeadlockBelongToIt) {
  HangScene scene;
  scene.AddLocker(101, "a", "Transfer", 0x5000);
  scene.AddLocker(102, "b", "Audit", 0x6000);
  scene.AddLocker(103, "c", "Late", 0x5000);
  scene.AddLocker(104, "d", "Later", 0x7000);
  scene.AddMutex(0x5000, 102);
  scene.AddMutex(0x6000, 101);
  scene.AddMutex(0x7000, 103);
  scene.Explain();
  ASSERT_EQ(scene.dump().findings_size(), 1);
  EXPECT_THAT(scene.dump().findings(0).tids(), ElementsAre(101, 102, 103, 104));
}

TEST(Finding, CycleThroughAJoinIsADeadlock) {
  HangScene scene;
  scene.AddLocker(101, "a", "Work", 0x5000);
  scene.AddThread(102, "b", {"__pthread_clockjoin_ex@libc.so.6", "Stop"});
  scene.SetFutexCall(102, 0x7000, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME);
  scene.AddMutex(0x5000, 102);
  scene.AddWord(0x7000, 101);
  scene.Explain();
  ASSERT_EQ(scene.dump().findings_size(), 1);
  EXPECT_EQ(scene.dump().findings(0).kind(), Finding::DEADLOCK);
  EXPECT_THAT(scene.dump().findings(0).details(), Contains(HasSubstr("waits for thread a (tid 101) to end")));
}

TEST(Finding, CycleThatATimeoutBreaksIsSuspiciousOnly) {
  HangScene scene;
  scene.AddLocker(101, "a", "Transfer", 0x5000);
  scene.AddThread(102, "b", {"___pthread_mutex_clocklock64@libc.so.6", "Audit"});
  scene.SetFutexCall(102, 0x6000);
  scene.AddMutex(0x5000, 102);
  scene.AddMutex(0x6000, 101);
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::DEADLOCK).severity(), Finding::SUSPICIOUS);
}

TEST(Finding, ThreadThatLocksItsOwnMutexIsASelfDeadlock) {
  HangScene scene;
  scene.AddLocker(101, "a", "Transfer", 0x5000);
  scene.AddMutex(0x5000, 101);
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::SELF_DEADLOCK).explanation(),
            "thread a (tid 101) in Transfer waits for itself: it waits for mutex 0x5000, which it holds already");
}

TEST(Finding, LockOfAnEndedThreadIsAbandoned) {
  HangScene scene;
  scene.AddLocker(101, "a", "Transfer", 0x5000);
  scene.AddMutex(0x5000, 77);
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::ABANDONED_LOCK).severity(), Finding::HANG);
}

TEST(Finding, OwnerThatMayHaveBegunDuringTheDumpIsNotCalledGoneForCertain) {
  HangScene scene;
  scene.AddLocker(101, "a", "Transfer", 0x5000);
  scene.AddMutex(0x5000, 4711);
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::ABANDONED_LOCK).severity(), Finding::SUSPICIOUS);
}

TEST(Finding, OwnerThatWaitsForAFileLockIsToBlameForItsQueue) {
  HangScene scene;
  scene.AddLocker(101, "a", "Transfer", 0x5000);
  scene.AddThread(102, "b", {"__GI_flock@libc.so.6", "Save"});
  scene.SetCall(102, SYS_flock, {9, 2});
  scene.AddMutex(0x5000, 102);
  scene.Explain();
  ASSERT_EQ(scene.dump().findings_size(), 1);
  EXPECT_EQ(scene.dump().findings(0).kind(), Finding::OWNER_BLOCKED);
}

TEST(Finding, ThreadThatTheKernelRefusedAMutexWaitsForEver) {
  HangScene scene;
  scene.capture().map = OwnAddressMap();
  const uint64_t here_avma = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  scene.AddThread(101, "a", {"__futex_abstimed_wait64@libc.so.6", "__pthread_mutex_lock_full@libc.so.6", "Transfer"});
  scene.captured(101).registers.value[Registers::kRsp] = here_avma;
  scene.SetFutexCall(101, here_avma);
  scene.AddWord(here_avma, 0);
  scene.AddLocker(102, "b", "Audit", 0x5000);
  scene.SetFutexCall(102, 0x5000, FUTEX_LOCK_PI_PRIVATE);
  scene.AddWord(0x5000, 101 | FUTEX_WAITERS);
  scene.Explain();
  const Finding finding = scene.Finding(Finding::OWNER_BLOCKED);
  EXPECT_EQ(finding.severity(), Finding::HANG);
  EXPECT_THAT(finding.tids(), ElementsAre(101, 102));
  EXPECT_THAT(finding.explanation(), HasSubstr("the kernel refused it"));
}

TEST(Finding, OwnerThatSleepsIsNamed) {
  HangScene scene;
  scene.AddLocker(101, "a", "Transfer", 0x5000);
  scene.AddSleeper(102, "b", "Nap");
  scene.AddMutex(0x5000, 102);
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::OWNER_BLOCKED).explanation(),
            "thread a (tid 101) in Transfer waits for mutex 0x5000, held by thread b (tid 102) in Nap, which sleeps");
  EXPECT_THAT(scene.Finding(Finding::OWNER_BLOCKED).tids(), ElementsAre(102, 101));
}

TEST(Finding, ManyBehindARunningOwnerAreAConvoy) {
  HangScene scene;
  scene.AddThread(102, "b", {"Compute"});
  for (int32_t tid = 200; tid < 700; ++tid) scene.AddLocker(tid, "w", "Transfer", 0x5000);
  scene.AddMutex(0x5000, 102);
  scene.Explain();
  const Finding convoy = scene.Finding(Finding::LOCK_CONVOY);
  EXPECT_EQ(convoy.explanation(), "500 threads wait for mutex 0x5000, held by thread b (tid 102) in Compute, which runs");
  EXPECT_THAT(convoy.details(), ElementsAre("500 threads wait in Transfer"));
}

// A function of Python's and the native one that runs it, before the thread's last frame.
void AddPython(HangScene* scene, int32_t tid, const char* function, const char* file, int line) {
  v1::Stack* stack = nullptr;
  for (const v1::Thread& thread : scene->dump().threads()) {
    if (thread.tid() == tid) stack = scene->dump().mutable_stacks(thread.stack());
  }
  v1::Frame* frame = stack->add_frames();
  frame->set_function(function);
  frame->set_file(file);
  frame->set_line(line);
  frame->set_language(v1::PYTHON);
  frame->set_origin(v1::Frame::RUNTIME);
  v1::Frame* interpreter = stack->add_frames();
  interpreter->set_function("_PyEval_EvalFrameDefault");
  interpreter->set_module("libpython3.11.so.1.0");
  interpreter->set_replaced(true);
}

// Thread 102 has the GIL, and `count` threads from 201 on wait for it.
void AddWaitersForGil(HangScene* scene, int32_t count) {
  scene->AddThread(102, "worker-3", {"sre_match@libpython3.11.so.1.0"});
  AddPython(scene, 102, "<regex_search>", "/usr/lib/re.py", 12);
  for (int32_t tid = 201; tid < 201 + count; ++tid) {
    scene->AddThread(tid, "w",
                     {"futex_wait@libc.so.6", "pthread_cond_timedwait@libc.so.6", "take_gil@libpython3.11.so.1.0"});
    scene->SetFutexCall(tid, 0x9000);
    AddPython(scene, tid, "pthread_mutex_lock", "/srv/app.py", 3);
    scene->capture().managed.waits.push_back({ManagedLockKind::kGil, tid, 102, 0x9008, "the GIL"});
  }
}

TEST(Finding, ManyThatWaitForTheGilAreAConvoyBehindThePythonFunctionThatHasIt) {
  HangScene scene;
  AddWaitersForGil(&scene, 12);
  scene.Explain();
  const Finding convoy = scene.Finding(Finding::LOCK_CONVOY);
  EXPECT_EQ(convoy.explanation(),
            "12 threads wait for the GIL, held by thread worker-3 (tid 102) in <regex_search> at re.py:12, which runs");
  EXPECT_THAT(convoy.details(), ElementsAre("12 threads wait in pthread_mutex_lock at app.py:3"));
  EXPECT_EQ(scene.wait(201).kind(), v1::Wait::GIL);
  EXPECT_EQ(scene.wait(201).explanation(), "waits for the GIL, held by thread worker-3 (tid 102)");
  EXPECT_EQ(scene.wait(201).waiter_count(), 12);
  EXPECT_EQ(convoy.severity(), Finding::SUSPICIOUS);
}

TEST(Finding, AFewThatTakeTurnsWithTheGilAreHarmless) {
  HangScene scene;
  AddWaitersForGil(&scene, 3);
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::LOCK_CONVOY).severity(), Finding::HARMLESS);
}

// A worker of tokio that waits in a task, in the place of `call` in it; "": it is parked.
void AddTokioWorker(HangScene* scene, int32_t tid, const std::string& call) {
  const std::string worker = "tokio::runtime::scheduler::multi_thread::worker::", app = "@app";
  const std::string inner = (call.empty() ? worker + "Context::park_timeout" : call) + app;
  const std::string task = worker + (call.empty() ? "Context::run" : "Context::run_task") + app;
  scene->AddThread(tid, "tokio-runtime-w", {"syscall@libc.so.6", inner, task, worker + "run" + app});
  scene->SetFutexCall(tid, 0x9000 + 8 * static_cast<uint64_t>(tid));
}

TEST(Finding, WorkersOfTokioThatAllWaitInTasksAreStarved) {
  HangScene scene;
  AddTokioWorker(&scene, 201, "app::wait_for_answer");
  AddTokioWorker(&scene, 202, "app::wait_for_answer");
  scene.Explain();
  const Finding starved = scene.Finding(Finding::STARVED_POOL);
  EXPECT_EQ(starved.severity(), Finding::HANG) << "nobody else is there to act";
  EXPECT_THAT(starved.tids(), ElementsAre(201, 202));
  EXPECT_THAT(starved.explanation(), testing::StartsWith("all 2 workers of tokio wait inside of tasks, as thread "));
}

TEST(Finding, AWorkerOfTokioThatIsParkedOrGaveWayLeavesNobodyStarved) {
  for (const char* other : {"", "tokio::runtime::scheduler::multi_thread::worker::block_in_place"}) {
    HangScene scene;
    if (*other == '\0') AddTokioWorker(&scene, 201, "app::wait_for_answer");
    AddTokioWorker(&scene, 202, other);
    scene.Explain();
    EXPECT_EQ(scene.Finding(Finding::STARVED_POOL).kind(), Finding::KIND_UNSPECIFIED) << other;
  }
}

// A thread that asks SQLAlchemy for a connection in PlaceOrder, and is in `native` now.
void AddBorrower(HangScene* scene, int32_t tid, std::initializer_list<std::string_view> native) {
  const std::string library = "/srv/venv/lib/python3.11/site-packages/sqlalchemy";
  scene->AddThread(tid, "order", native);
  AddPython(scene, tid, "QueuePool._do_get", (library + "/pool/impl.py").c_str(), 166);
  AddPython(scene, tid, "Engine.connect", (library + "/engine/base.py").c_str(), 3277);
  AddPython(scene, tid, "PlaceOrder", "/srv/orders.py", 7);
}

TEST(Finding, ThreadsThatWaitForAConnectionOfAPoolAreNotIdle) {
  HangScene scene;
  for (int32_t tid : {201, 202, 203}) {
    AddBorrower(&scene, tid, {"futex_wait@libc.so.6", "sem_clockwait@libc.so.6", "PyThread_acquire_lock_timed@python3.11"});
    scene.SetFutexCall(tid, 0x9000 + 8 * static_cast<uint64_t>(tid));
  }
  scene.Explain();
  const Finding exhausted = scene.Finding(Finding::EXHAUSTED_POOL);
  EXPECT_EQ(exhausted.explanation(), "3 threads wait for a connection of a SQLAlchemy pool: none is free");
  EXPECT_EQ(exhausted.severity(), Finding::SUSPICIOUS);
  EXPECT_THAT(exhausted.tids(), ElementsAre(201, 202, 203));
  EXPECT_THAT(exhausted.details(), ElementsAre("3 threads called by PlaceOrder at orders.py:7"));
  EXPECT_EQ(scene.Finding(Finding::IDLE).kind(), Finding::KIND_UNSPECIFIED);
}

TEST(Finding, AThreadThatMakesTheConnectionOrWaitsForAMomentIsNoSignOfAnExhaustedPool) {
  HangScene scene;
  AddBorrower(&scene, 201, {"connect@libc.so.6"});
  scene.SetCall(201, SYS_connect, {3});
  AddBorrower(&scene, 202, {"futex_wait@libc.so.6", "sem_clockwait@libc.so.6", "PyThread_acquire_lock_timed@python3.11"});
  scene.SetFutexCall(202, 0x9000);
  scene.Explain();
  const Finding exhausted = scene.Finding(Finding::EXHAUSTED_POOL);
  EXPECT_EQ(exhausted.severity(), Finding::HARMLESS);
  EXPECT_THAT(exhausted.tids(), ElementsAre(202));
}

TEST(Finding, MonitorsAndMutexesMakeOneCycle) {
  HangScene scene;
  scene.AddThread(101, "a", {"futex_wait@libc.so.6", "Unsafe_Park@libjvm.so"});
  scene.SetFutexCall(101, 0x9000);
  scene.capture().managed.waits.push_back({ManagedLockKind::kMonitor, 101, 102, 0x7000, "bank.Account"});
  scene.AddLocker(102, "b", "Transfer", 0x5000);
  scene.AddMutex(0x5000, 101);
  scene.Explain();
  EXPECT_THAT(scene.Finding(Finding::DEADLOCK).details(),
              ElementsAre("thread a (tid 101) in Unsafe_Park waits for bank.Account 0x7000, held by thread b (tid 102)",
                          "thread b (tid 102) in Transfer waits for mutex 0x5000, held by thread a (tid 101)"));
  EXPECT_EQ(scene.Finding(Finding::DEADLOCK).edges(0).lock(), "bank.Account 0x7000");
}

TEST(Finding, AWaitOfARuntimesForAThreadThatIsNotThereHasNoKnownOwner) {
  HangScene scene;
  scene.AddThread(101, "a", {"futex_wait@libc.so.6"});
  scene.SetFutexCall(101, 0x9000);
  scene.capture().managed.waits = {{ManagedLockKind::kMonitor, 101, 999, 0x7000, "bank.Account"},
                                   {ManagedLockKind::kMonitor, 998, 101, 0x7000, "bank.Account"}};
  scene.Explain();
  EXPECT_EQ(scene.wait(101).kind(), v1::Wait::MONITOR);
  EXPECT_EQ(scene.wait(101).owner(), v1::Wait::NOT_KNOWN);
  EXPECT_EQ(scene.wait(101).owner_tid(), 0);
}

// Threads are captured one after the other: each may have waited when it was asked, and none when the lock was read.
TEST(Finding, AWaitForALockOfARuntimesThatWasFreeIsNoHang) {
  HangScene scene;
  for (int32_t tid : {101, 102}) {
    scene.AddThread(tid, "turn", {"futex_wait@libc.so.6"});
    scene.SetFutexCall(tid, 0x9000);
    scene.capture().managed.waits.push_back({ManagedLockKind::kMonitor, tid, 0, 0x7000, "threading.RLock"});
  }
  scene.Explain();
  EXPECT_EQ(scene.wait(101).owner(), v1::Wait::NONE);
  EXPECT_THAT(scene.wait(101).explanation(), HasSubstr("free or changed hands"));
  for (const v1::Finding& finding : scene.dump().findings()) {
    EXPECT_NE(finding.severity(), v1::Finding::HANG) << finding.explanation();
  }
}

TEST(Finding, OneWaiterForARunningOwnerIsNothingToSpeakOf) {
  HangScene scene;
  scene.AddThread(102, "b", {"Compute"});
  scene.AddLocker(101, "a", "Transfer", 0x5000);
  scene.AddMutex(0x5000, 102);
  scene.Explain();
  EXPECT_EQ(scene.dump().findings_size(), 0);
}

TEST(Finding, QueueBehindAQueueIsToldWithIt) {
  HangScene scene;
  scene.AddLocker(101, "a", "Outer", 0x5000);
  scene.AddLocker(102, "b", "Inner", 0x6000);
  scene.AddSleeper(103, "c", "Nap");
  scene.AddMutex(0x5000, 102);
  scene.AddMutex(0x6000, 103);
  scene.Explain();
  ASSERT_EQ(scene.dump().findings_size(), 1);
  EXPECT_EQ(scene.dump().findings(0).kind(), Finding::OWNER_BLOCKED);
  EXPECT_THAT(scene.dump().findings(0).details(), ElementsAre("1 more thread waits for locks that these hold"));
}

TEST(Finding, PoolOnConditionVariablesIsIdle) {
  HangScene scene;
  for (int32_t tid = 101; tid < 105; ++tid) AddIdle(&scene, tid, "worker", "Pool::Loop()");
  scene.AddThread(kScenePid, "bank", {"epoll_wait@libc.so.6", "main"});
  scene.SetCall(kScenePid, SYS_epoll_wait, {5, 0, 1, static_cast<uint32_t>(-1)});
  scene.Explain();
  ASSERT_EQ(scene.dump().findings_size(), 1);
  EXPECT_EQ(scene.dump().findings(0).kind(), Finding::IDLE);
  EXPECT_EQ(scene.dump().findings(0).severity(), Finding::HARMLESS);
  EXPECT_EQ(scene.dump().findings(0).explanation(), "5 threads are idle: 4 wait on condition variables, 1 for events");
}

TEST(Finding, IdleThreadsThatMayWaitForAnAnswerNameTheServer) {
  HangScene scene;
  int32_t tid = 101;
  // Two ask a database and one a cache. Two are asked, one of them from a low port. One talks to no known server's port.
  for (const char* name : {"tcp 10.0.0.1:40414 -> 10.0.0.5:5432", "tcp6 [::1]:40415 -> [::1]:6379",
                           "tcp 10.0.0.1:8080 -> 10.0.0.7:51000", "tcp 10.0.0.1:8080 -> 10.0.0.7:1023",
                           "tcp 10.0.0.1:40416 -> 10.0.0.5:45000", "tcp 10.0.0.1:40417 -> 10.0.0.5:5432"}) {
    scene.AddThread(tid, "worker", {"recv@libc.so.6", "Orders::Find()"});
    scene.SetCall(tid, SYS_recvfrom, {static_cast<uint64_t>(tid)});
    scene.capture().threads.back().waited_fds = {tid};
    scene.capture().fds.push_back({.fd = tid, .name = name});
    ++tid;
  }
  scene.Explain();
  const Finding idle = scene.Finding(Finding::IDLE);
  EXPECT_EQ(idle.explanation(), "6 threads are idle: 6 wait for data; 2 may wait for an answer of 10.0.0.5:5432");
  EXPECT_THAT(idle.details(), testing::Contains("1 may wait for an answer of [::1]:6379"));
  EXPECT_THAT(idle.details(), testing::Not(testing::Contains(testing::HasSubstr("10.0.0.7"))));
}

uint64_t return_avma;

__attribute__((noipa)) bool NoteReturn() {
  return_avma = reinterpret_cast<uint64_t>(__builtin_return_address(0));
  __asm__ volatile("" ::: "memory");
  return return_avma != 0;
}

__attribute__((noipa)) uint64_t ReturnInLoop(int count) {
  for (int i = 0; i < count && NoteReturn(); ++i) __asm__ volatile("" ::: "memory");
  return return_avma;
}

__attribute__((noipa)) uint64_t ReturnOutsideOfLoops() {
  NoteReturn();
  return return_avma;
}

// Threads 101 to 103 wait for futures inside of what `Pool::Loop()` calls at `loop_avma`.
void AddPool(HangScene* scene, uint64_t loop_avma) {
  scene->capture().map = OwnAddressMap();
  for (int32_t tid = 101; tid < 104; ++tid) {
    scene->AddThread(tid, "worker",
                     {"syscall@libc.so.6", "std::__atomic_futex_unsigned_base::_M_futex_wait_until(bool)@libstdc++.so.6",
                      "std::future<int>::get()", "Task()", "std::function<void ()>::operator()() const", "Pool::Loop()",
                      "Entry(void*)", "start_thread@libc.so.6"});
    scene->SetFutexCall(tid, 0x5000 + tid, FUTEX_WAIT_BITSET_PRIVATE);
    char address[32];
    snprintf(address, sizeof(address), "0x%lx", loop_avma);
    auto* stack = scene->dump().mutable_stacks(scene->dump().stacks_size() - 1);
    stack->mutable_frames(5)->set_address(address);
  }
}

TEST(Finding, PoolWhoseTasksWaitForTasksIsStarved) {
  HangScene scene;
  AddPool(&scene, ReturnInLoop(2));
  scene.AddSleeper(kScenePid, "bank", "main");
  scene.Explain();
  const Finding starved = scene.Finding(Finding::STARVED_POOL);
  EXPECT_EQ(starved.severity(), Finding::SUSPICIOUS);
  EXPECT_THAT(starved.explanation(), HasSubstr("all 3 threads that run tasks in Pool::Loop"));
}

TEST(Finding, PoolIsStarvedForCertainWhereNothingWillWakeAThread) {
  HangScene scene;
  AddPool(&scene, ReturnInLoop(2));
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::STARVED_POOL).severity(), Finding::HANG);
  scene.AddThread(kScenePid, "bank", {"pause@libc.so.6", "main"});
  scene.SetCall(kScenePid, SYS_pause, {});
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::STARVED_POOL).severity(), Finding::SUSPICIOUS);
}

TEST(Finding, ThreadsWhoseFirstFunctionIsCalledThroughAStdFunctionAreNoPool) {
  HangScene scene;
  AddPool(&scene, ReturnOutsideOfLoops());
  scene.AddSleeper(kScenePid, "bank", "main");
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::STARVED_POOL).explanation(), "");
}

TEST(Finding, ThreadsThatAreParkedOnOneFutureAreNoPool) {
  HangScene scene;
  scene.AddThread(kScenePid, "bank", {"sigwait@libc.so.6", "main"});
  scene.SetCall(kScenePid, SYS_rt_sigtimedwait, {0x100, 0, 0, 8});
  AddPool(&scene, ReturnInLoop(2));
  for (int32_t tid = 101; tid < 104; ++tid) scene.SetFutexCall(tid, 0x5000, FUTEX_WAIT_BITSET_PRIVATE);
  scene.Explain();
  ASSERT_EQ(scene.dump().findings_size(), 1);
  EXPECT_EQ(scene.dump().findings(0).severity(), Finding::HARMLESS);
}

TEST(Finding, PoolWithOneIdleThreadIsNotStarved) {
  HangScene scene;
  AddPool(&scene, ReturnInLoop(2));
  AddIdle(&scene, 104, "worker", "Pool::Loop()");
  scene.AddSleeper(kScenePid, "bank", "main");
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::STARVED_POOL).explanation(), "");
}

TEST(Finding, FutureThatNobodyIsLeftToSetIsSaid) {
  HangScene scene;
  scene.AddThread(kScenePid, "bank",
                  {"syscall@libc.so.6", "std::__atomic_futex_unsigned_base::_M_futex_wait_until(bool)@libstdc++.so.6",
                   "std::future<int>::get()", "main"});
  scene.SetFutexCall(kScenePid, 0x5000, FUTEX_WAIT);
  AddIdle(&scene, 101, "worker", "Loop()");
  scene.AddThread(102, "stackd-agent", {"capture_helper@libstackd_agent.so"}).set_is_agent(true);
  scene.Explain();
  const Finding finding = scene.Finding(Finding::NOBODY_TO_WAKE);
  EXPECT_EQ(finding.severity(), Finding::HANG);
  EXPECT_THAT(finding.explanation(), HasSubstr("as far as can be seen"));
}

TEST(Finding, FullPipeOfTheProcessItselfHasNobodyToReadIt) {
  HangScene scene;
  scene.AddThread(kScenePid, "bank", {"__GI___libc_write@libc.so.6", "main"});
  scene.SetCall(kScenePid, SYS_write, {4});
  scene.capture().fds.push_back({.fd = 4, .name = "pipe:[17]", .other_end = 3});
  scene.Explain();
  EXPECT_THAT(scene.Finding(Finding::NOBODY_TO_WAKE).explanation(), HasSubstr("its other end is fd 3"));
}

TEST(Finding, StoppedProcessIsSaidToBeStopped) {
  HangScene scene;
  scene.AddThread(kScenePid, "bank", {"main"});
  scene.captured(kScenePid).status = ThreadStatus::kStopped;
  scene.Explain();
  EXPECT_THAT(scene.Finding(Finding::STOPPED).explanation(), HasSubstr("the process is stopped"));
}

TEST(Finding, ProcessInADebuggerIsNotHung) {
  HangScene scene;
  scene.AddThread(kScenePid, "bank", {"main"});
  scene.captured(kScenePid).status = ThreadStatus::kStopped;
  scene.captured(kScenePid).kernel_state = 't';
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::STOPPED).severity(), Finding::HARMLESS);
}

TEST(Finding, PoolThatIsJoinedIsIdle) {
  HangScene scene;
  AddIdle(&scene, 101, "worker", "Pool::Loop()");
  scene.AddThread(kScenePid, "bank", {"__pthread_clockjoin_ex@libc.so.6", "main"});
  scene.SetFutexCall(kScenePid, 0x7000, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME);
  scene.AddWord(0x7000, 101);
  scene.Explain();
  ASSERT_EQ(scene.dump().findings_size(), 1);
  EXPECT_EQ(scene.dump().findings(0).kind(), Finding::IDLE);
}

TEST(Finding, LockWithoutAnOwnerIsAHangIfNobodyRuns) {
  HangScene scene;
  for (int32_t tid : {101, 102}) {
    scene.AddThread(tid, "w",
                    {"syscall@libc.so.6", "std::sys::pal::unix::futex::futex_wait",
                     "std::sys::sync::mutex::futex::Mutex::lock_contended", "bank::transfer::h0123456789abcdef"});
    scene.SetFutexCall(tid, 0x5000 + tid, FUTEX_WAIT_BITSET_PRIVATE);
  }
  scene.Explain();
  EXPECT_EQ(scene.dump().findings(0).kind(), Finding::OWNER_UNKNOWN);
  EXPECT_EQ(scene.dump().findings(0).severity(), Finding::HANG);
  // Any lock is had by a thread that runs, for a while.
  scene.AddThread(103, "busy", {"Compute"});
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::OWNER_UNKNOWN).explanation(), "");
  scene.captured(101).unmoved_ns = 2'000'000'000;
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::OWNER_UNKNOWN).severity(), Finding::SUSPICIOUS);
}

TEST(Finding, LockThatWasFreeWhenItWasReadIsNothingToSpeakOf) {
  HangScene scene;
  scene.AddLocker(101, "a", "Transfer", 0x5000);
  scene.AddWord(0x5000, 0);
  scene.AddThread(102, "busy", {"Compute"});
  scene.Explain();
  EXPECT_EQ(scene.dump().findings_size(), 0);
}

TEST(Finding, NobodyIsLeftToWakeOnlyWhereALockHasBeenFreeForASecond) {
  HangScene scene;
  scene.AddLocker(101, "a", "Transfer", 0x5000);
  scene.AddWord(0x5000, 0);
  scene.Explain();
  EXPECT_EQ(scene.dump().findings_size(), 0);
  scene.captured(101).unmoved_ns = 2'000'000'000;
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::NOBODY_TO_WAKE).severity(), Finding::SUSPICIOUS);
}

void AddGoroutine(HangScene* scene, std::string_view state, std::string_view wait_reason,
                  std::initializer_list<std::string_view> functions) {
  v1::Task& task = *scene->dump().add_tasks();
  task.set_kind(v1::Task::GOROUTINE);
  task.set_state(std::string(state));
  task.set_wait_reason(std::string(wait_reason));
  task.set_stack(scene->dump().stacks_size());
  v1::Stack& stack = *scene->dump().add_stacks();
  for (std::string_view function : functions) stack.add_frames()->set_function(std::string(function));
}

TEST(Finding, GoroutinesThatWaitForALockAreToldWhereNoneRuns) {
  HangScene scene;
  for (int i = 0; i < 2; ++i) {
    AddGoroutine(&scene, "waiting", "sync.Mutex.Lock",
                 {"sync.runtime_SemacquireMutex", "sync.(*Mutex).Lock", "main.transfer"});
  }
  AddGoroutine(&scene, "waiting", "chan receive", {"main.worker"});
  // It runs for the dump.
  AddGoroutine(&scene, "running", "", {"stackd.example/go.(*ring).dump"});
  scene.Explain();
  const Finding finding = scene.Finding(Finding::OWNER_UNKNOWN);
  EXPECT_EQ(finding.severity(), Finding::SUSPICIOUS);
  EXPECT_EQ(finding.explanation(), "2 goroutines wait for a lock; owner unknown: Go's locks keep none");
  EXPECT_THAT(finding.details(),
              testing::ElementsAre(HasSubstr("no goroutine runs"), "2 goroutines wait in main.transfer (sync.Mutex.Lock)"));
}

// As the reader of goroutines says, another one may run.
TEST(Finding, GoroutinesThatWaitForLocksWhichNoOtherHasHang) {
  HangScene scene;
  AddGoroutine(&scene, "waiting", "sync.Mutex.Lock", {"sync.(*Mutex).Lock", "main.transfer"});
  AddGoroutine(&scene, "runnable", "", {"main.read"});
  scene.capture().managed.stuck_goroutines = {1};
  scene.Explain();
  const Finding finding = scene.Finding(Finding::DEADLOCK);
  EXPECT_EQ(finding.severity(), Finding::HANG);
  EXPECT_THAT(finding.explanation(), HasSubstr("1 goroutine waits for locks that no other goroutine has"));
  EXPECT_THAT(finding.explanation(), HasSubstr("(inferred from their code)"));
  EXPECT_THAT(finding.details(), testing::Contains("1 goroutine waits in main.transfer (sync.Mutex.Lock)"));
}

TEST(Finding, AGoroutineThatWaitsForALockWhileAnotherRunsIsToldIfThatLasts) {
  HangScene scene;
  AddGoroutine(&scene, "waiting", "sync.RWMutex.Lock", {"sync.(*RWMutex).Lock", "main.write"});
  AddGoroutine(&scene, "runnable", "", {"main.read"});
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::OWNER_UNKNOWN).explanation(), "");
  scene.dump().mutable_tasks(0)->mutable_wait_duration()->set_seconds(60);
  scene.Explain();
  EXPECT_THAT(scene.Finding(Finding::OWNER_UNKNOWN).explanation(), HasSubstr("1 goroutine waits for a lock"));
}

TEST(Finding, GoroutinesThatWaitForWorkAreNothingToSpeakOf) {
  HangScene scene;
  for (std::string_view reason :
       {"chan receive", "chan send", "select", "sync.WaitGroup.Wait", "sync.Cond.Wait", "sleep"}) {
    AddGoroutine(&scene, "waiting", reason, {"main.worker"});
  }
  scene.Explain();
  EXPECT_EQ(scene.dump().findings_size(), 0);
}

TEST(Finding, MissedHeartbeatIsAFinding) {
  HangScene scene;
  scene.AddThread(101, "loop", {"Compute"});
  v1::Hang* hang = scene.dump().mutable_hang();
  hang->set_cause(v1::Hang::HEARTBEAT_MISSED);
  hang->set_explanation("no beat");
  hang->set_tid(101);
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::HEARTBEAT_MISSED).explanation(), "no beat");
}

TEST(Finding, WorstComesFirst) {
  HangScene scene;
  AddIdle(&scene, 103, "worker", "Loop()");
  scene.AddSleeper(102, "b", "Nap");
  scene.AddLocker(101, "a", "Transfer", 0x5000);
  scene.AddLocker(104, "self", "Transfer", 0x6000);
  scene.AddMutex(0x5000, 102);
  scene.AddMutex(0x6000, 104);
  scene.Explain();
  ASSERT_EQ(scene.dump().findings_size(), 3);
  EXPECT_EQ(scene.dump().findings(0).kind(), Finding::SELF_DEADLOCK);
  EXPECT_EQ(scene.dump().findings(1).kind(), Finding::OWNER_BLOCKED);
  EXPECT_EQ(scene.dump().findings(2).kind(), Finding::IDLE);
}

TEST(Finding, OnlyTheWorstOfManyAreKept) {
  HangScene scene;
  for (int32_t tid = 1000; tid < 1150; ++tid) {
    scene.AddLocker(tid, "a", "Transfer", 0x5000 + tid * 64);
    scene.AddMutex(0x5000 + tid * 64, tid);
  }
  scene.Explain();
  EXPECT_EQ(scene.dump().findings_size(), 100);
  EXPECT_THAT(scene.dump().notes(), ElementsAre("50 more findings, none worse, are left out"));
}

}  // namespace
}  // namespace stackd
