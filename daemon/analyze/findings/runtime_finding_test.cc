// Findings that rest on functions of a language's runtime. Each is tried with the evidence, and with each piece of it
// changed: a verdict that does not need a piece would stay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "daemon/testing/hang_scene.h"

namespace stackd {
namespace {

using Finding = v1::Finding;
using testing::HasSubstr;

// Functions innermost first: "name|file" of the language, and native ones as HangScene has them.
struct StackOf {
  v1::Language language;
  std::vector<std::string> functions;
};

v1::Thread& AddThread(HangScene* scene, int32_t tid, const StackOf& stack) {
  v1::Thread& thread = scene->AddThread(tid, "t" + std::to_string(tid), {});
  for (const std::string& function : stack.functions) {
    v1::Frame& frame = *scene->dump().mutable_stacks(thread.stack())->add_frames();
    const size_t end = function.find_first_of("|@");
    frame.set_function(function.substr(0, end));
    if (end == function.npos) continue;
    if (function[end] == '@') {
      frame.set_module(function.substr(end + 1));
    } else {
      frame.set_file(function.substr(end + 1));
      frame.set_origin(v1::Frame::RUNTIME);
      frame.set_language(stack.language);
    }
  }
  return thread;
}

void Sleep(HangScene* scene, int32_t tid) { scene->SetFutexCall(tid, 0x5000 + static_cast<uint64_t>(tid) * 0x100); }

void Read(HangScene* scene, int32_t tid) { scene->SetCall(tid, SYS_read, {7}); }

Finding Explained(HangScene* scene, Finding::Kind kind) {
  scene->Explain();
  return scene->Finding(kind);
}

// --- event loops ---

const StackOf kInAsyncio = {
    v1::PYTHON,
    {"read@libc.so.6", "sock_recv@_socket.so", "fetch|/srv/shop.py", "_run|/usr/lib/python3.11/asyncio/events.py",
     "_run_once|/usr/lib/python3.11/asyncio/base_events.py", "main|/srv/shop.py"}};
const StackOf kInNode = {v1::JAVASCRIPT, {"read@libc.so.6", "readFileSync|node:fs", "load|/srv/shop.js", "uv_run@node"}};
const StackOf kInTokio = {
    v1::RUST, {"read@libc.so.6", "shop::load", "tokio::runtime::scheduler::current_thread::CoreGuard::block_on"}};

Finding BlockedLoop(const StackOf& stack, const std::function<void(HangScene*)>& change = {}) {
  HangScene scene;
  AddThread(&scene, kScenePid, stack);
  Read(&scene, kScenePid);
  if (change) change(&scene);
  return Explained(&scene, Finding::STARVED_POOL);
}

StackOf Without(StackOf stack, size_t function) {
  stack.functions.erase(stack.functions.begin() + static_cast<ptrdiff_t>(function));
  return stack;
}

TEST(RuntimeFinding, ALoopThatWaitsInACallbackIsBlocked) {
  EXPECT_EQ(BlockedLoop(kInAsyncio).explanation(),
            "the event loop of asyncio is blocked: the main thread (tid 100) in fetch at shop.py waits to read from fd 7 "
            "inside of a callback, and runs no other one meanwhile");
  EXPECT_EQ(BlockedLoop(kInAsyncio).severity(), Finding::SUSPICIOUS);
  EXPECT_THAT(BlockedLoop(kInNode).explanation(),
              HasSubstr("loop of Node.js is blocked: the main thread (tid 100) in load"));
  EXPECT_THAT(BlockedLoop(kInNode).details(), testing::ElementsAre("it waits in readFileSync at node:fs"));
  EXPECT_THAT(BlockedLoop(kInTokio).explanation(),
              HasSubstr("loop of tokio is blocked: the main thread (tid 100) in shop::load"));
}

TEST(RuntimeFinding, WithoutALoopOrACallbackNoLoopIsBlocked) {
  EXPECT_EQ(BlockedLoop(Without(kInAsyncio, 3)).explanation(), "");
  EXPECT_EQ(BlockedLoop(Without(kInAsyncio, 4)).explanation(), "");
  EXPECT_EQ(BlockedLoop(Without(kInNode, 3)).explanation(), "");
  EXPECT_EQ(BlockedLoop({v1::JAVASCRIPT, {"read@libc.so.6", "uv_run@node"}}).explanation(), "");
  EXPECT_EQ(BlockedLoop(Without(kInTokio, 2)).explanation(), "");
  // tokio waits for something to do.
  StackOf parked = kInTokio;
  parked.functions[1] = "mio::poll::Poll::poll";
  EXPECT_EQ(BlockedLoop(parked).explanation(), "");
}

TEST(RuntimeFinding, ALoopThatTurnsWithinACallbackIsNotBlocked) {
  StackOf nested = kInAsyncio;
  nested.functions.insert(nested.functions.begin() + 1, "_run_once|/usr/lib/python3.11/asyncio/base_events.py");
  EXPECT_EQ(BlockedLoop(nested).explanation(), "");
  StackOf turns = kInNode;
  turns.functions.insert(turns.functions.begin() + 1, "uv_run@node");
  EXPECT_EQ(BlockedLoop(turns).explanation(), "");
  // But for the loop that waits for the end of a child.
  turns.functions[2] = "spawnSync|node:internal/child_process";
  EXPECT_NE(BlockedLoop(turns).explanation(), "");
}

TEST(RuntimeFinding, ALoopThatSleepsOrRunsIsNotBlocked) {
  const auto sleeps = [](HangScene* scene) { scene->SetCall(kScenePid, SYS_clock_nanosleep, {CLOCK_MONOTONIC, 0}); };
  const auto runs = [](HangScene* scene) { scene->captured(kScenePid).call.reset(); };
  EXPECT_EQ(BlockedLoop(kInAsyncio, sleeps).explanation(), "");
  EXPECT_EQ(BlockedLoop(kInAsyncio, runs).explanation(), "");
}

TEST(RuntimeFinding, AWorkerOfNodeMayWaitForWork) {
  HangScene scene;
  AddThread(&scene, 101, kInNode);
  Sleep(&scene, 101);
  EXPECT_EQ(Explained(&scene, Finding::STARVED_POOL).explanation(), "");
}

// --- executors ---

StackOf Worker(const std::string& waits_in, const std::string& file) {
  return {v1::JAVA,
          {"pthread_cond_wait@libc.so.6", waits_in + "|" + file, "|", "Shop.answer|Shop.java",
           "java.util.concurrent.FutureTask.run|FutureTask.java",
           "java.util.concurrent.ThreadPoolExecutor.runWorker|ThreadPoolExecutor.java"}};
}

const StackOf kWaits = Worker("java.util.concurrent.FutureTask.get", "FutureTask.java");
const StackOf kJoins = Worker("java.util.concurrent.CompletableFuture.join", "CompletableFuture.java");
const StackOf kIdleWorker = {
    v1::JAVA,
    {"pthread_cond_wait@libc.so.6", "java.util.concurrent.ThreadPoolExecutor.getTask|ThreadPoolExecutor.java",
     "java.util.concurrent.ThreadPoolExecutor.runWorker|ThreadPoolExecutor.java"}};

Finding StarvedExecutor(const std::vector<StackOf>& workers, const std::function<void(HangScene*)>& change = {}) {
  HangScene scene;
  int32_t tid = 101;
  for (const StackOf& worker : workers) {
    AddThread(&scene, tid, worker);
    Sleep(&scene, tid++);
  }
  if (change) change(&scene);
  return Explained(&scene, Finding::STARVED_POOL);
}

TEST(RuntimeFinding, WorkersThatAllWaitForResultsAreStarved) {
  const Finding starved = StarvedExecutor({kWaits, kWaits});
  EXPECT_EQ(
      starved.explanation(),
      "all 2 workers of Java's ThreadPoolExecutor wait inside of tasks for results of others, as thread t101 (tid 101) in "
      "Shop.answer at Shop.java: none is left to run another task");
  EXPECT_EQ(starved.severity(), Finding::SUSPICIOUS);
  EXPECT_THAT(starved.tids(), testing::ElementsAre(101, 102));
  EXPECT_THAT(StarvedExecutor({kJoins}).explanation(),
              HasSubstr("the only worker of Java's ThreadPoolExecutor waits inside"));
}

TEST(RuntimeFinding, WorkersAreNotStarvedIfOneIsLeft) {
  EXPECT_EQ(StarvedExecutor({kWaits, kIdleWorker}).explanation(), "");
  const auto one_runs = [](HangScene* scene) { scene->captured(102).call.reset(); };
  EXPECT_EQ(StarvedExecutor({kWaits, kWaits}, one_runs).explanation(), "");
  const auto gives_up = [](HangScene* scene) { scene->SetCall(102, SYS_futex, {0x9000, FUTEX_WAIT_PRIVATE, 0, 1}); };
  EXPECT_EQ(StarvedExecutor({kWaits, kWaits}, gives_up).explanation(), "");
}

TEST(RuntimeFinding, WorkersAreNotStarvedIfAnotherThreadBringsTheResult) {
  const StackOf runs_task = {v1::JAVA, {"java.util.concurrent.FutureTask.run|FutureTask.java", "Shop.main|Shop.java"}};
  const StackOf computes = {v1::JAVA, {"Shop.compute|Shop.java", "Shop.main|Shop.java"}};
  const StackOf carries = {v1::JAVA, {"java.util.concurrent.ForkJoinWorkerThread.run|ForkJoinWorkerThread.java"}};
  const auto beside = [](const StackOf& other) { return [other](HangScene* scene) { AddThread(scene, 110, other); }; };
  EXPECT_EQ(StarvedExecutor({kWaits}, beside(runs_task)).explanation(), "");
  EXPECT_EQ(StarvedExecutor({kWaits}, beside(carries)).explanation(), "");
  EXPECT_NE(StarvedExecutor({kWaits}, beside(computes)).explanation(), "");  // a FutureTask is brought by its own run()
  EXPECT_EQ(StarvedExecutor({kJoins}, beside(computes)).explanation(), "");
}

// --- initializers of classes ---

StackOf Initializer(const std::string& of) {
  return {v1::JAVA,
          {"pthread_cond_wait@libc.so.6", "ObjectMonitor::wait@libjvm.so", "InstanceKlass::initialize_impl@libjvm.so",
           of + ".<clinit>|Shop.java", "InstanceKlass::call_class_initializer@libjvm.so",
           "InstanceKlass::initialize_impl@libjvm.so", "Shop.main|Shop.java"}};
}

const StackOf kUser = {v1::JAVA,
                       {"pthread_cond_wait@libc.so.6", "ObjectMonitor::wait@libjvm.so",
                        "InstanceKlass::initialize_impl@libjvm.so", "Shop.main|Shop.java"}};

Finding ClassCircle(const std::vector<StackOf>& stacks, bool last_runs = false) {
  HangScene scene;
  int32_t tid = 101;
  for (const StackOf& stack : stacks) {
    AddThread(&scene, tid, stack);
    if (!last_runs || &stack != &stacks.back()) Sleep(&scene, tid);
    ++tid;
  }
  return Explained(&scene, Finding::DEADLOCK);
}

TEST(RuntimeFinding, InitializersOfClassesThatAllWaitAreADeadlock) {
  const Finding circle = ClassCircle({Initializer("Prices"), Initializer("Taxes"), kUser});
  EXPECT_EQ(circle.severity(), Finding::HANG);
  EXPECT_EQ(circle.explanation(),
            "2 threads wait in initializers of classes for classes that others of them initialize: thread t101 (tid 101), "
            "thread t102 (tid 102) (inferred from the stacks)");
  EXPECT_THAT(circle.details(), testing::Contains("1 more thread waits for classes that these initialize"));
  EXPECT_EQ(circle.edges_size(), 2);
  EXPECT_EQ(ClassCircle({Initializer("Prices"), Initializer("Taxes"), Initializer("Fees")}).edges_size(), 0);
}

TEST(RuntimeFinding, AnInitializerThatGoesOnIsNoDeadlock) {
  EXPECT_EQ(ClassCircle({Initializer("Prices"), Initializer("Taxes")}, /*last_runs=*/true).explanation(), "");
  StackOf sleeps = Initializer("Taxes");
  sleeps.functions.erase(sleeps.functions.begin() + 1, sleeps.functions.begin() + 3);
  EXPECT_EQ(ClassCircle({Initializer("Prices"), sleeps}).explanation(), "");
  EXPECT_EQ(ClassCircle({Initializer("Prices"), kUser}).explanation(), "");
  // It loads a class that it is about to initialize.
  StackOf loads = Initializer("Taxes");
  loads.functions[1] = "SystemDictionary::resolve_or_fail@libjvm.so";
  EXPECT_EQ(ClassCircle({Initializer("Prices"), loads}).explanation(), "");
}

}  // namespace
}  // namespace stackd
