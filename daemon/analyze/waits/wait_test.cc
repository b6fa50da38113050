#include "daemon/analyze/waits/wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include "daemon/testing/hang_scene.h"
#include "daemon/unwind/testing/own_process.h"

namespace stackd {
namespace {

using testing::HasSubstr;
using Wait = v1::Wait;

TEST(Wait, MutexHasItsOwnerAndItsKind) {
  HangScene scene;
  scene.AddLocker(101, "writer", "Transfer(Account&, int)", 0x5000);
  scene.AddSleeper(102, "reader", "Audit()");
  scene.AddMutex(0x5000, 102, 2 | 16);
  scene.Explain();
  const Wait& wait = scene.wait(101);
  EXPECT_EQ(wait.kind(), Wait::MUTEX);
  EXPECT_EQ(wait.owner(), Wait::KNOWN);
  EXPECT_EQ(wait.owner_tid(), 102);
  EXPECT_EQ(wait.lock_kind(), "errorcheck, robust");
  EXPECT_EQ(wait.futex_operation(), "FUTEX_WAIT_PRIVATE");
  EXPECT_EQ(wait.futex_value(), 2u);
  EXPECT_EQ(wait.owner_activity(), "sleeps");
  EXPECT_EQ(wait.explanation(), "waits for mutex 0x5000, held by thread reader (tid 102)");
}

TEST(Wait, FunctionsThatTheLibraryDoesNotExportAreNotNeeded) {
  HangScene scene;
  scene.AddThread(101, "w", {"@libc.so.6", "pthread_mutex_lock@libc.so.6", "Transfer"});
  scene.SetFutexCall(101, 0x5000);
  scene.AddMutex(0x5000, 101);
  scene.Explain();
  EXPECT_EQ(scene.wait(101).kind(), Wait::MUTEX);
}

TEST(Wait, OwnerThatIsNoThreadIsGone) {
  HangScene scene;
  scene.AddLocker(101, "w", "Transfer", 0x5000);
  scene.AddMutex(0x5000, 4711);
  scene.Explain();
  EXPECT_EQ(scene.wait(101).owner(), Wait::GONE);
  EXPECT_THAT(scene.wait(101).owner_note(), HasSubstr("4711 is no thread of this process"));
}

// A mutex in shared memory that thread 101 waits for, and `owner_tid` has.
HangScene SharedMutex(int32_t owner_tid) {
  HangScene scene;
  scene.AddLocker(101, "waiter", "Transfer", 0x5000);
  scene.AddSleeper(102, "owner", "Sleep");
  scene.SetFutexCall(101, 0x5000, FUTEX_WAIT);
  scene.AddMutex(0x5000, owner_tid, /*kind=*/128);
  scene.capture().futexes[0].is_shared = true;
  return scene;
}

TEST(Wait, TidInSharedMemoryMayBeAThreadsOfAnotherPidNamespace) {
  for (int32_t own_tid : {101, 102}) {
    HangScene scene = SharedMutex(own_tid);
    scene.Explain();
    EXPECT_EQ(scene.wait(101).owner(), v1::Wait::OTHER_PROCESS);
    EXPECT_EQ(scene.wait(101).owner_tid(), 0);
    EXPECT_THAT(scene.wait(101).explanation(), HasSubstr("of this process, or one with the same number in another"));
    EXPECT_EQ(scene.dump().findings(0).kind(), v1::Finding::OWNER_UNKNOWN);
    EXPECT_EQ(scene.dump().findings(0).severity(), v1::Finding::SUSPICIOUS);
  }
}

TEST(Wait, TidInSharedMemoryThatIsNoThreadOfTheProcessHasNotEndedForCertain) {
  HangScene scene = SharedMutex(4711);
  scene.Explain();
  EXPECT_THAT(scene.wait(101).explanation(), HasSubstr("owner: thread 4711 of another process, perhaps in another PID"));
  EXPECT_EQ(scene.dump().findings(0).kind(), v1::Finding::OWNER_UNKNOWN);
  EXPECT_EQ(scene.dump().findings(0).severity(), v1::Finding::SUSPICIOUS);
}

TEST(Wait, OwnerInAnotherConnectedProcessIsNamed) {
  HangScene scene = SharedMutex(4711);
  scene.capture().futexes[0].owner_pid = 4700;
  scene.capture().futexes[0].owner_process_name = "shm-\nholder";
  scene.Explain();
  EXPECT_THAT(scene.wait(101).explanation(), HasSubstr("held by thread 4711 of shm-?holder (pid 4700)"));
}

TEST(Wait, LockThatMakesNoSenseIsNotBelieved) {
  HangScene scene;
  scene.AddLocker(101, "w", "Transfer", 0x5000);
  scene.AddWord(0x5000, 77);
  scene.Explain();
  EXPECT_EQ(scene.wait(101).owner(), Wait::NOT_KNOWN);
  EXPECT_THAT(scene.wait(101).explanation(), HasSubstr("makes no sense as a mutex"));
}

TEST(Wait, LockBetweenTwoOwnersIsBeingPassedOn) {
  HangScene scene;
  scene.AddLocker(101, "w", "Transfer", 0x5000);
  scene.AddWord(0x5000, 2).changes_hands = true;
  scene.Explain();
  EXPECT_EQ(scene.wait(101).owner(), Wait::NONE);
  EXPECT_THAT(scene.wait(101).explanation(), HasSubstr("it was being passed on when it was read"));
}

// A signal met it on its way out of the call: what it had waited for is not known any more.
TEST(Wait, ThreadThatWasAwakeIsNotSaidToWaitForALockThatCannotBeRead) {
  HangScene scene;
  scene.AddLocker(101, "w", "Transfer", 0x5000);
  scene.captured(101).call->known_arguments = 0;
  scene.Explain();
  EXPECT_EQ(scene.wait(101).owner(), Wait::NONE);
  EXPECT_EQ(scene.wait(101).owner_note(), "whether it still waits is not known");
  EXPECT_EQ(scene.dump().findings_size(), 0);
}

TEST(Wait, RustsMutexSaysThatItKeepsNoOwner) {
  HangScene scene;
  scene.AddThread(101, "w",
                  {"syscall@libc.so.6", "std::sys::pal::unix::futex::futex_wait",
                   "std::sys::sync::mutex::futex::Mutex::lock_contended", "bank::transfer::h0123456789abcdef"});
  scene.SetFutexCall(101, 0x5000, FUTEX_WAIT_BITSET_PRIVATE);
  // It looks like a mutex of glibc's, by chance.
  scene.AddMutex(0x5000, 101);
  scene.Explain();
  EXPECT_EQ(scene.wait(101).kind(), Wait::MUTEX);
  EXPECT_EQ(scene.wait(101).owner(), Wait::NOT_RECORDED);
  EXPECT_EQ(scene.wait(101).owner_note(), "owner unknown: Rust's mutex keeps none");
}

TEST(Wait, RustsNamesAreUnderstoodInBothManglings) {
  HangScene scene;
  scene.AddThread(101, "m",
                  {"syscall@libc.so.6", "std::sys::pal::unix::futex::futex_wait",
                   "<std::sys::sync::mutex::futex::Mutex>::lock_contended", "bank::transfer"});
  scene.AddThread(102, "p",
                  {"syscall@libc.so.6", "parking_lot_core::thread_parker::imp::ThreadParker::futex_wait",
                   "<parking_lot_core::thread_parker::imp::ThreadParker as "
                   "parking_lot_core::thread_parker::ThreadParkerT>::park",
                   "parking_lot_core::parking_lot::park::{{closure}}", "parking_lot::raw_mutex::RawMutex::lock_slow",
                   "<parking_lot::raw_mutex::RawMutex as lock_api::mutex::RawMutex>::lock", "bank::transfer"});
  for (int32_t tid : {101, 102}) scene.SetFutexCall(tid, 0x5000 + tid * 8, FUTEX_WAIT_BITSET_PRIVATE);
  scene.Explain();
  EXPECT_EQ(scene.wait(101).owner_note(), "owner unknown: Rust's mutex keeps none");
  EXPECT_EQ(scene.wait(102).owner_note(), "owner unknown: parking_lot's mutex keeps none");
  EXPECT_EQ(scene.wait(102).address(), "") << "the word is the thread's own";
}

// As in Node.js 24, whose build gives the C name no version.
TEST(Wait, AbseilsConditionsAreToldFromItsMutexes) {
  HangScene scene;
  for (const auto& [tid, function] : {std::pair{101, "absl::CondVar::WaitCommon(absl::Mutex*, absl::KernelTimeout)"},
                                      std::pair{102, "absl::Mutex::LockSlowLoop(absl::SynchWaitParams*, int)"}}) {
    scene.AddThread(tid, "w",
                    {"syscall@libc.so.6", "absl::synchronization_internal::FutexWaiter::Wait(absl::KernelTimeout)",
                     "AbslInternalPerThreadSemWait", function, "Serve"});
    scene.SetFutexCall(tid, 0x5000 + tid * 8, FUTEX_WAIT_BITSET_PRIVATE);
  }
  scene.Explain();
  EXPECT_EQ(scene.wait(101).kind(), Wait::CONDITION_VARIABLE);
  EXPECT_EQ(scene.wait(102).kind(), Wait::MUTEX);
}

TEST(Wait, ASenderWaitsForRoomInTheChannel) {
  HangScene scene;
  scene.AddThread(101, "s",
                  {"syscall@libc.so.6", "std::sys::pal::unix::futex::futex_wait",
                   "<std::sys::sync::thread_parking::futex::Parker>::park", "<std::thread::thread::Thread>::park",
                   "<std::sync::mpmc::context::Context>::wait_until", "std::sync::mpmc::array::Channel<T>::send",
                   "std::sync::mpsc::SyncSender<T>::send", "shop::send"});
  scene.SetFutexCall(101, 0x5000, FUTEX_WAIT_BITSET_PRIVATE);
  scene.Explain();
  EXPECT_EQ(scene.wait(101).explanation(),
            "waits for room in a channel; which thread is to receive from it is not recorded");
  EXPECT_EQ(scene.wait(101).owner(), Wait::NOT_RECORDED);
  EXPECT_EQ(scene.wait(101).address(), "") << "the word is the thread's own";
}

TEST(Wait, WhatProcessesShareAnotherMayBring) {
  HangScene scene;
  scene.AddThread(101, "t", {"do_futex_wait@libc.so.6", "__new_sem_wait_slow64@libc.so.6", "sem_wait@libc.so.6", "Take"});
  scene.SetFutexCall(101, 0x5000, FUTEX_WAIT_BITSET);
  scene.AddWord(0x5000, 0).is_shared = true;
  scene.Explain();
  EXPECT_EQ(scene.wait(101).owner(), Wait::OTHER_PROCESS);
  EXPECT_EQ(scene.dump().findings_size(), 0) << "that it is idle is not known";
}

TEST(Wait, RwlockThatReadersHoldDoesNotSayWhich) {
  HangScene scene;
  scene.AddThread(101, "w",
                  {"__futex_abstimed_wait_common@libc.so.6", "__GI___futex_abstimed_wait64@libc.so.6",
                   "__pthread_rwlock_wrlock_full64@libc.so.6", "___pthread_rwlock_wrlock@libc.so.6", "Write"});
  scene.SetFutexCall(101, 0x5008);
  scene.AddWord(0x5008, 2).rwlock = GlibcRwlock{.avma = 0x5000, .reader_count = 2, .write_locked = true};
  scene.Explain();
  EXPECT_EQ(scene.wait(101).kind(), Wait::RWLOCK_WRITE);
  EXPECT_EQ(scene.wait(101).address(), "0x5000");
  EXPECT_EQ(scene.wait(101).explanation(),
            "waits to write-lock rwlock 0x5000; held by 2 readers; glibc does not record which");
}

TEST(Wait, JoinNamesTheThreadThatIsToEnd) {
  HangScene scene;
  scene.AddThread(kScenePid, "bank",
                  {"__futex_abstimed_wait_common64@libc.so.6", "__pthread_clockjoin_ex@libc.so.6",
                   "std::thread::join()@libstdc++.so.6", "main"});
  scene.SetFutexCall(kScenePid, 0x7000, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME);
  scene.AddWord(0x7000, 102);
  scene.AddSleeper(102, "worker", "Work()");
  scene.Explain();
  EXPECT_EQ(scene.wait(kScenePid).kind(), Wait::JOIN);
  EXPECT_EQ(scene.wait(kScenePid).explanation(), "waits for thread worker (tid 102) to end");
}

TEST(Wait, JoinIsSeenWithoutAnyName) {
  HangScene scene;
  scene.AddThread(101, "w", {"@libc.so.6", "@bank"});
  // Where glibc keeps tids, and elsewhere.
  scene.SetFutexCall(101, 0x7fd0, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME);
  scene.AddWord(0x7fd0, 102);
  scene.AddThread(103, "v", {"@libc.so.6", "@bank"});
  scene.SetFutexCall(103, 0x7f00, FUTEX_WAIT);
  scene.AddWord(0x7f00, 102);
  scene.AddSleeper(102, "worker", "Work()");
  scene.Explain();
  EXPECT_EQ(scene.wait(101).kind(), Wait::JOIN);
  EXPECT_EQ(scene.wait(103).kind(), Wait::FUTEX);
}

TEST(Wait, OuterFunctionSaysMoreThanInner) {
  HangScene scene;
  scene.AddThread(101, "f",
                  {"syscall@libc.so.6",
                   "std::__atomic_futex_unsigned_base::_M_futex_wait_until(unsigned int*, unsigned int, "
                   "bool)@libstdc++.so.6",
                   "std::__future_base::_State_baseV2::wait()", "std::__basic_future<int>::_M_get_result() const",
                   "std::future<int>::get()", "Handle(Request const&)"});
  scene.AddThread(102, "s",
                  {"syscall@libc.so.6", "void std::__detail::__platform_wait<int>(int const*, int)",
                   "std::__atomic_semaphore::_M_acquire()", "std::counting_semaphore<5l>::acquire()", "Handle"});
  scene.AddThread(103, "c",
                  {"__futex_abstimed_wait_common64@libc.so.6", "__pthread_cond_wait_common@libc.so.6",
                   "___pthread_cond_clockwait64@libc.so.6", "std::__condvar::wait_until(timespec&)",
                   "std::cv_status std::condition_variable::wait_for<long>(std::unique_lock<std::mutex>&)", "Handle"});
  for (int32_t tid : {101, 102, 103}) scene.SetFutexCall(tid, 0x5000 + tid);
  scene.Explain();
  EXPECT_EQ(scene.wait(101).kind(), Wait::FUTURE);
  EXPECT_EQ(scene.wait(102).kind(), Wait::SEMAPHORE);
  EXPECT_EQ(scene.wait(103).kind(), Wait::CONDITION_VARIABLE);
  EXPECT_TRUE(scene.wait(103).timed());
  EXPECT_FALSE(scene.wait(101).timed());
}

// std::future::get() of std::async joins its thread inside of std::call_once().
TEST(Wait, JoinInsideOfOnceIsAJoin) {
  HangScene scene;
  scene.AddThread(
      101, "f",
      {"__futex_abstimed_wait_common64@libc.so.6", "__pthread_clockjoin_ex@libc.so.6", "std::thread::join()@libstdc++.so.6",
       "__pthread_once_slow@libc.so.6", "std::__future_base::_State_baseV2::wait()", "Handle"});
  scene.SetFutexCall(101, 0x7000, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME);
  scene.AddWord(0x7000, 102);
  scene.AddSleeper(102, "async", "Work()");
  scene.Explain();
  EXPECT_EQ(scene.wait(101).kind(), Wait::JOIN);
  EXPECT_EQ(scene.wait(101).owner_tid(), 102);
}

TEST(Wait, EventsNameTheirFds) {
  HangScene scene;
  scene.AddThread(101, "loop", {"epoll_wait@libc.so.6", "Loop"});
  scene.SetCall(101, SYS_epoll_wait, {5, 0, 64, static_cast<uint32_t>(-1)});
  scene.capture().fds.push_back({.fd = 5, .name = "anon_inode:[eventpoll]", .watched_count = 3});
  scene.AddThread(102, "reader", {"__GI___libc_read@libc.so.6", "Read"});
  scene.SetCall(102, SYS_read, {7});
  scene.AddThread(103, "poller", {"__GI___poll@libc.so.6", "Poll"});
  scene.SetCall(103, SYS_poll, {0x1000, 2, 500});
  scene.captured(103).waited_fds = {7, 8};
  scene.Explain();
  EXPECT_EQ(scene.wait(101).explanation(), "waits for events of fd 5 (anon_inode:[eventpoll] of 3 fds)");
  EXPECT_FALSE(scene.wait(101).timed());
  EXPECT_EQ(scene.wait(102).explanation(), "waits to read from fd 7");
  EXPECT_EQ(scene.wait(103).explanation(), "waits for events of 2 fds: fd 7, fd 8");
  EXPECT_TRUE(scene.wait(103).timed());
}

TEST(Wait, LockOfAStreamHasAnOwner) {
  HangScene scene;
  scene.AddThread(101, "waiter",
                  {"__lll_lock_wait_private@libc.so.6", "_IO_fputs@libc.so.6", "Log", "start_thread@libc.so.6"});
  scene.SetFutexCall(101, 0x5000);
  scene.AddWord(0x5000, 2).stdio_owner_tid = 102;
  scene.AddThread(102, "writer", {"__GI___libc_write@libc.so.6", "_IO_fputs@libc.so.6", "Log"});
  scene.SetCall(102, SYS_write, {1});
  scene.Explain();
  EXPECT_EQ(scene.wait(101).owner(), Wait::KNOWN);
  EXPECT_EQ(scene.wait(101).owner_tid(), 102);
  EXPECT_THAT(scene.wait(101).explanation(), HasSubstr("waits for stdio lock 0x5000, held by thread writer (tid 102)"));
  EXPECT_EQ(scene.Finding(v1::Finding::OWNER_BLOCKED).severity(), v1::Finding::SUSPICIOUS);
}

// It is not called one that waits for itself because both functions are printf.
TEST(Wait, StreamInAHandlerIsHeldByWhoeverTheLockSays) {
  HangScene scene;
  scene.AddThread(101, "main",
                  {"__lll_lock_wait_private@libc.so.6", "_IO_fputs@libc.so.6", "OnSignal", "!<signal handler called>",
                   "_IO_fputs@libc.so.6", "Log"});
  scene.SetFutexCall(101, 0x5000);
  scene.AddWord(0x5000, 2).stdio_owner_tid = 102;
  scene.AddThread(102, "writer", {"Compute"});
  scene.Explain();
  EXPECT_EQ(scene.wait(101).owner_tid(), 102);
}

TEST(Wait, ThreadThatWakesOthersOrYieldsHasNone) {
  HangScene scene;
  scene.AddThread(101, "releaser", {"__lll_lock_wake@libc.so.6", "___pthread_mutex_unlock@libc.so.6", "Book"});
  scene.SetCall(101, SYS_futex, {});
  scene.AddThread(102, "polite", {"__sched_yield@libc.so.6", "Spin"});
  scene.SetCall(102, SYS_sched_yield, {});
  scene.Explain();
  EXPECT_EQ(scene.wait(101).kind(), Wait::KIND_UNSPECIFIED);
  EXPECT_EQ(scene.wait(102).kind(), Wait::KIND_UNSPECIFIED);
}

TEST(Wait, OwnerThatHasNotRunIsNotSaidToRun) {
  HangScene scene;
  for (int32_t tid = 101; tid < 104; ++tid) scene.AddLocker(tid, "waiter", "Transfer", 0x5000);
  scene.AddThread(104, "pager", {"Touch"});
  scene.AddMutex(0x5000, 104);
  scene.Explain();
  EXPECT_THAT(scene.dump().findings(0).explanation(), HasSubstr("which runs"));
  scene.captured(104).unmoved_ns = 64'000'000'000;
  scene.Explain();
  EXPECT_THAT(scene.dump().findings(0).explanation(), HasSubstr("which has not run for 64 s"));
}

// A thread that waits in CPython, called by `function` of `file`.
HangScene PythonThread(std::string_view function, std::string_view file, std::string_view module = "python3.11") {
  HangScene scene;
  scene.AddThread(101, "python3",
                  {"__new_sem_wait_slow64@libc.so.6", "PyThread_acquire_lock_timed@python3.11", "", "PyObject_Vectorcall",
                   function, "Thread.run"});
  v1::Stack& stack = *scene.dump().mutable_stacks(0);
  stack.mutable_frames(2)->set_module(std::string(module));
  stack.mutable_frames(3)->set_module("python3.11");
  for (int i : {4, 5}) {
    stack.mutable_frames(i)->set_origin(v1::Frame::RUNTIME);
    stack.mutable_frames(i)->set_language(v1::PYTHON);
    stack.mutable_frames(i)->set_file(std::string(file));
  }
  scene.SetFutexCall(101, 0x5000);
  scene.AddWord(0x5000, 0);
  scene.Explain();
  return scene;
}

TEST(Wait, PythonsLockIsNoSemaphoreThatSomebodyIsIdleAt) {
  for (const auto& scene :
       {PythonThread("transfer", "/srv/bank.py"), PythonThread("Condition.__enter__", "threading.py")}) {
    HangScene copy = scene;
    EXPECT_EQ(copy.wait(101).kind(), Wait::MUTEX);
    EXPECT_EQ(copy.wait(101).owner(), Wait::NOT_RECORDED);
    EXPECT_THAT(copy.wait(101).explanation(), HasSubstr("who has a lock of Python's is not read"));
    EXPECT_EQ(copy.Finding(v1::Finding::IDLE).explanation(), "");
  }
}

TEST(Wait, WhatPythonBuildsOnLocksIsNone) {
  for (const auto& scene :
       {PythonThread("Condition.wait", "/usr/lib/python3.11/threading.py"), PythonThread("_shutdown", "threading.py"),
        PythonThread("Thread._wait_for_tstate_lock", "threading.py"), PythonThread("_worker", "futures/thread.py"),
        PythonThread("consume", "/srv/bank.py", "_queue.cpython-311-x86_64-linux-gnu.so")}) {
    HangScene copy = scene;
    EXPECT_EQ(copy.wait(101).kind(), Wait::SEMAPHORE);
    EXPECT_EQ(copy.dump().findings(0).severity(), v1::Finding::HARMLESS);
  }
}

TEST(Wait, RunningThreadHasNone) {
  HangScene scene;
  scene.AddThread(101, "busy", {"Compute"});
  scene.Explain();
  EXPECT_FALSE(scene.dump().threads(0).has_wait());
}

TEST(Wait, LocaltimeInAHandlerThatInterruptedTheReadingOfTheTimeZoneWaitsForItself) {
  for (bool has_lock : {true, false}) {
    HangScene scene;
    scene.AddThread(101, "clock",
                    {"futex_wait@libc.so.6", "__GI___lll_lock_wait_private@libc.so.6", "__tz_convert@libc.so.6", "OnSignal",
                     "!<signal handler called>@libc.so.6", "__GI___open64_nocancel@libc.so.6",
                     has_lock ? "__tzfile_read@libc.so.6" : "_IO_new_file_fopen@libc.so.6", "ReadTimeZone"});
    scene.SetFutexCall(101, 0x8000);
    scene.AddWord(0x8000, 2);
    scene.Explain();
    EXPECT_EQ(scene.wait(101).owner() == Wait::KNOWN, has_lock);
    EXPECT_EQ(scene.Finding(v1::Finding::SELF_DEADLOCK).severity() == v1::Finding::HANG, has_lock);
  }
}

TEST(Wait, MallocInAHandlerThatInterruptedMallocWaitsForItself) {
  HangScene scene;
  scene.AddThread(101, "w",
                  {"__lll_lock_wait_private@libc.so.6", "__GI___libc_malloc@libc.so.6", "OnSignal(int)",
                   "__restore_rt@libc.so.6", "!_int_malloc@libc.so.6", "__GI___libc_malloc@libc.so.6", "Work()"});
  scene.SetFutexCall(101, 0x5000);
  scene.AddWord(0x5000, 2);
  scene.Explain();
  EXPECT_EQ(scene.wait(101).owner_tid(), 101);
  EXPECT_THAT(scene.wait(101).owner_note(), HasSubstr("malloc was called in a signal handler that interrupted malloc"));
  EXPECT_EQ(scene.Finding(v1::Finding::SELF_DEADLOCK).severity(), v1::Finding::HANG);
}

TEST(Wait, MallocInAHandlerThatInterruptedSomethingElseDoesNot) {
  HangScene scene;
  scene.AddThread(101, "w",
                  {"__lll_lock_wait_private@libc.so.6", "__GI___libc_malloc@libc.so.6", "OnSignal(int)",
                   "__restore_rt@libc.so.6", "!Work()"});
  scene.SetFutexCall(101, 0x5000);
  scene.AddWord(0x5000, 2);
  scene.Explain();
  EXPECT_EQ(scene.wait(101).owner(), Wait::NOT_RECORDED);
}

TEST(Wait, InitializerThatAsksForItselfWaitsForItself) {
  HangScene scene;
  scene.AddThread(101, "w",
                  {"futex_wait@libc.so.6", "__pthread_once_slow@libc.so.6", "Instance()", "Init()",
                   "__pthread_once_slow@libc.so.6", "Instance()", "main"});
  scene.SetFutexCall(101, 0x5000);
  scene.AddWord(0x5000, 1);
  scene.Explain();
  EXPECT_EQ(scene.wait(101).kind(), Wait::ONCE);
  EXPECT_EQ(scene.wait(101).owner_tid(), 101);
  EXPECT_EQ(scene.Finding(v1::Finding::SELF_DEADLOCK).tids(0), 101);
}

TEST(Wait, TheOwnerIsNotKnownWhereTwoThreadsInitializeForOneFunction) {
  static int once;
  const auto once_avma = reinterpret_cast<uint64_t>(&once);
  for (const int initializers : {1, 2}) {
    HangScene scene;
    scene.capture().map = OwnAddressMap();
    scene.AddThread(101, "waits", {"futex_wait@libc.so.6", "__pthread_once_slow@libc.so.6", "Instance()", "main"});
    scene.SetFutexCall(101, once_avma);
    scene.AddWord(once_avma, 1);
    // So that the initializer is not the only one that there is.
    scene.AddThread(102, "elsewhere", {"read@libc.so.6", "Load()", "__pthread_once_slow@libc.so.6", "Other()", "main"});
    for (int32_t tid = 103; tid < 103 + initializers; ++tid) {
      scene.AddThread(tid, "initializes",
                      {"read@libc.so.6", "Init()", "__pthread_once_slow@libc.so.6", "Instance()", "main"});
    }
    scene.Explain();
    EXPECT_EQ(scene.wait(101).owner_tid(), initializers == 1 ? 103 : 0);
  }
}

TEST(Wait, CacheOfStacksIsHeldByTheThreadThatUnmapsThem) {
  HangScene scene;
  for (int32_t tid = 101; tid < 104; ++tid) {
    scene.AddThread(tid, "ending",
                    {"__lll_lock_wait_private@libc.so.6", "__nptl_deallocate_stack@libc.so.6", "start_thread@libc.so.6"});
    scene.SetFutexCall(tid, 0x5000);
  }
  scene.AddWord(0x5000, 2);
  scene.AddThread(110, "slow",
                  {"__munmap@libc.so.6", "__nptl_free_stacks@libc.so.6", "__nptl_deallocate_stack@libc.so.6",
                   "start_thread@libc.so.6"});
  scene.SetCall(110, SYS_munmap, {});
  scene.Explain();
  EXPECT_EQ(scene.wait(101).owner_tid(), 110);
  EXPECT_EQ(scene.wait(101).waiter_count(), 3);
  EXPECT_EQ(scene.wait(101).owner_activity(), "is in munmap");
  const v1::Finding convoy = scene.Finding(v1::Finding::LOCK_CONVOY);
  EXPECT_THAT(convoy.explanation(), HasSubstr("3 threads wait for stack cache lock 0x5000"));
  EXPECT_THAT(convoy.explanation(), HasSubstr("munmap"));
}

}  // namespace
}  // namespace stackd
