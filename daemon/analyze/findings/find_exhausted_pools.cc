#include "daemon/analyze/findings/find_exhausted_pools.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "daemon/analyze/names/runtime_frame.h"
#include "daemon/base/clock.h"

namespace stackd {
namespace {

using Finding = v1::Finding;
using Wait = v1::Wait;

// So many that wait are worth an operator's look, or one for so long. A pool is there to be waited for now and then.
constexpr int kMinWaiters = 3;
constexpr int64_t kLongSeconds = 1;
constexpr size_t kMaxPlaces = 5;

// A function that lends what a pool has, and waits where nothing is free.
struct Lender {
  LibraryFunction function;
  std::string_view pool;  // in words
};

// Each was seen in its library: HikariCP 7.1, Commons Pool 2.13, Tomcat JDBC 11.0. In Python SQLAlchemy 2.1,
// psycopg_pool 3.3, urllib3 2.8 and redis-py 8.1.
constexpr Lender kLenders[] = {
    {{"HikariPool.getConnection", "HikariPool.java"}, "a connection of a HikariCP pool"},
    {{"GenericObjectPool.borrowObject", "GenericObjectPool.java"}, "an object of a pool of Apache Commons"},
    {{"ConnectionPool.borrowConnection", "ConnectionPool.java"}, "a connection of a Tomcat JDBC pool"},
    {{"_do_get", "sqlalchemy/pool/impl.py"}, "a connection of a SQLAlchemy pool"},
    {{"getconn", "psycopg_pool/pool.py"}, "a connection of a psycopg pool"},
    {{"_get_conn", "urllib3/connectionpool.py"}, "a connection of a urllib3 pool"},
    {{"get_connection", "redis/connection.py"}, "a connection of a redis-py pool"},
    {{"sql.(*DB).conn", "database/sql/sql.go"}, "a connection of database/sql"},
};

// nullptr: it is none.
const Lender* LenderOf(const v1::Frame& frame) {
  const auto* found =
      std::ranges::find_if(kLenders, [&](const Lender& lender) { return IsCallOf(frame, lender.function); });
  return found == std::end(kLenders) ? nullptr : found;
}

// Whether a thread of the pool ends the wait, or a time limit. In other waits the thread makes a new connection.
bool IsWaitForPool(Wait::Kind kind) {
  switch (kind) {
    case Wait::MUTEX:
    case Wait::CONDITION_VARIABLE:
    case Wait::SEMAPHORE:
    case Wait::FUTEX:
    case Wait::MONITOR:
    case Wait::SLEEP:
      return true;
    default:
      return false;
  }
}

// The folder of a file, or the package of a class in Java, whose files have no folder.
std::string_view LibraryOf(const v1::Frame& frame) {
  const std::string_view file = frame.file(), function = frame.function();
  if (const size_t slash = file.rfind('/'); slash != file.npos) return file.substr(0, slash);
  const size_t method = function.rfind('.');
  const size_t type = method == function.npos ? method : function.rfind('.', method - 1);
  return type == function.npos ? std::string_view() : function.substr(0, type);
}

struct WaitForPool {
  const Lender* lender = nullptr;
  const v1::Frame* caller = nullptr;  // the first function outside of the pool's library; nullptr: not known
};

// Without a lender where the stack goes through none.
WaitForPool PoolOf(const v1::Stack& stack) {
  WaitForPool wait;
  std::string_view library;
  for (const v1::Frame& frame : stack.frames()) {
    if (wait.lender == nullptr) {
      wait.lender = LenderOf(frame);
      if (wait.lender != nullptr) library = LibraryOf(frame);
    } else if (IsOfRuntime(frame) && !LibraryOf(frame).starts_with(library.substr(0, library.find_last_of("./")))) {
      wait.caller = &frame;
      break;
    }
  }
  return wait;
}

bool MayWaitForPool(const v1::Thread& thread) { return thread.has_wait() && IsWaitForPool(thread.wait().kind()); }

// A goroutine that waits for the network makes a connection, or uses one.
bool MayWaitForPool(const v1::Task& task) {
  return task.kind() == v1::Task::GOROUTINE && task.state() == "waiting" && task.wait_reason() != "IO wait";
}

struct Waiters {
  std::vector<const v1::Thread*> threads;
  int64_t goroutine_count = 0;
  bool is_long = false;
  std::map<std::string, size_t> callers;

  int64_t count() const { return std::ssize(threads) + goroutine_count; }

  void AddCaller(const v1::Frame* caller) {
    if (caller != nullptr) ++callers[WaitScene::FrameInWords(*caller)];
  }
};

// "3 threads", "1 goroutine"
std::string CountInWords(int64_t count, bool are_goroutines) {
  if (!are_goroutines) return ThreadsInWords(static_cast<size_t>(count));
  return std::to_string(count) + (count == 1 ? " goroutine" : " goroutines");
}

Finding Describe(const Lender& lender, const Waiters& waiters, WaitScene* scene) {
  const bool is_worth_a_look = waiters.count() >= kMinWaiters || waiters.is_long;
  const bool are_goroutines = waiters.threads.empty();
  Finding finding;
  finding.set_kind(Finding::EXHAUSTED_POOL);
  finding.set_severity(is_worth_a_look ? Finding::SUSPICIOUS : Finding::HARMLESS);
  const bool is_one_thread = waiters.count() == 1 && !are_goroutines;
  finding.set_explanation(
      (is_one_thread ? scene->Name(waiters.threads[0]->tid()) : CountInWords(waiters.count(), are_goroutines)) +
      (waiters.count() == 1 ? " waits for " : " wait for ") + std::string(lender.pool) + ": none is free");
  std::vector<std::pair<size_t, std::string>> callers;
  for (const auto& [place, threads] : waiters.callers) callers.emplace_back(threads, place);
  std::ranges::sort(callers, std::greater());
  for (size_t i = 0; i < std::min(callers.size(), kMaxPlaces); ++i) {
    finding.add_details(CountInWords(static_cast<int64_t>(callers[i].first), are_goroutines) + " called by " +
                        callers[i].second);
  }
  for (const v1::Thread* thread : waiters.threads) {
    finding.add_tids(thread->tid());
    scene->SetExplained(thread->tid());
  }
  return finding;
}

}  // namespace

void FindExhaustedPools(WaitScene* scene, std::vector<Finding>* findings) {
  const v1::Dump& dump = scene->dump();
  std::map<const Lender*, Waiters> pools;
  for (const v1::Thread& thread : dump.threads()) {
    const v1::Stack* stack = scene->StackOf(thread);
    if (stack == nullptr || scene->IsExplained(thread.tid()) || !MayWaitForPool(thread)) continue;
    const WaitForPool wait = PoolOf(*stack);
    if (wait.lender == nullptr) continue;
    Waiters& waiters = pools[wait.lender];
    waiters.threads.push_back(&thread);
    waiters.is_long |= thread.wait().duration().seconds() >= kLongSeconds;
    waiters.AddCaller(wait.caller);
  }
  for (const v1::Task& task : dump.tasks()) {
    const bool has_stack = task.has_stack() && task.stack() >= 0 && task.stack() < dump.stacks_size();
    if (!has_stack || !MayWaitForPool(task)) continue;
    const WaitForPool wait = PoolOf(dump.stacks(task.stack()));
    if (wait.lender == nullptr) continue;
    Waiters& waiters = pools[wait.lender];
    ++waiters.goroutine_count;
    waiters.is_long |= task.wait_duration().seconds() >= kLongSeconds;
    waiters.AddCaller(wait.caller);
  }
  for (const auto& [lender, waiters] : pools) findings->push_back(Describe(*lender, waiters, scene));
}

}  // namespace stackd
