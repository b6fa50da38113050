// What C++ has: futures, pools, atomic waits and what is built on them, static variables, its own mutexes.
#include <signal.h>

#include <array>
#include <atomic>
#include <barrier>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <vector>

#include "tests/hangs/hang.h"

namespace {

// Lives for ever, as does `body`.
victim_thread* Thread(const char* name, std::function<void()> body) {
  auto* kept = new std::function<void()>(std::move(body));
  return hang_thread(
      name,
      [](void* function) -> void* {
        (*static_cast<std::function<void()>*>(function))();
        return nullptr;
      },
      kept);
}

void BlockedThread(const char* name, std::function<void()> body) {
  victim_await_syscall(Thread(name, std::move(body))->tid, SYS_futex);
}

// Waits for two threads that say hang_pass() when they are past what is no part of their hang.
void AwaitBoth(const victim_thread* one, const victim_thread* other) {
  hang_await_passed(2);
  victim_await_syscall(one->tid, SYS_futex);
  victim_await_syscall(other->tid, SYS_futex);
}

// --- mutexes ---

struct Account {
  std::mutex mutex;
  long balance = 100;
};

VICTIM_NOINLINE void Transfer(Account& from, Account& to, std::barrier<>& both_hold_one) {
  std::lock_guard hold_from(from.mutex);
  both_hold_one.arrive_and_wait();
  hang_pass();
  std::lock_guard hold_to(to.mutex);
  --from.balance;
  ++to.balance;
}

void TransferCycle() {
  static auto savings = std::make_unique<Account>();
  static auto checking = std::make_unique<Account>();
  static std::barrier both_hold_one(2);
  auto* there = Thread("there", [] { Transfer(*savings, *checking, both_hold_one); });
  auto* back = Thread("back", [] { Transfer(*checking, *savings, both_hold_one); });
  AwaitBoth(there, back);
}

void SharedMutexCycle() {
  static std::shared_mutex prices, taxes;
  static std::barrier both_hold_one(2);
  auto* prices_first = Thread("prices-first", [] {
    std::unique_lock hold(prices);
    both_hold_one.arrive_and_wait();
    hang_pass();
    std::shared_lock also(taxes);
  });
  auto* taxes_first = Thread("taxes-first", [] {
    std::unique_lock hold(taxes);
    both_hold_one.arrive_and_wait();
    hang_pass();
    std::shared_lock also(prices);
  });
  AwaitBoth(prices_first, taxes_first);
}

// --- futures and pools ---

void FutureNeverSet() {
  static std::promise<int> answer;
  BlockedThread("asker", [] { answer.get_future().get(); });
}

class Pool {
 public:
  explicit Pool(int worker_count) {
    static const char* const kNames[] = {"worker-0", "worker-1", "worker-2", "worker-3"};
    for (int i = 0; i < worker_count; ++i) workers_.push_back(Thread(kNames[i], [this] { WorkerLoop(); }));
  }

  std::future<int> Submit(std::function<int()> work) {
    std::packaged_task<int()> task(std::move(work));
    std::future<int> result = task.get_future();
    {
      std::lock_guard hold(mutex_);
      tasks_.push_back(std::move(task));
    }
    work_came_.notify_one();
    return result;
  }

  void AwaitAllBlocked() const {
    for (const victim_thread* worker : workers_) victim_await_syscall(worker->tid, SYS_futex);
  }

 private:
  VICTIM_NOINLINE void WorkerLoop() {
    for (;;) {
      std::unique_lock hold(mutex_);
      work_came_.wait(hold, [this] { return !tasks_.empty(); });
      std::packaged_task<int()> task = std::move(tasks_.front());
      tasks_.pop_front();
      hold.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_came_;
  std::deque<std::packaged_task<int()>> tasks_;
  std::vector<victim_thread*> workers_;
};

// Each task of the pool waits at a latch for another that no worker is left to do. A pool with nothing to do looks so, too.
void LatchPool() {
  static constexpr int kWorkers = 3;
  static Pool pool(kWorkers);
  static std::latch all_busy(kWorkers);
  static std::latch parts_done(kWorkers);
  for (int i = 0; i < kWorkers; ++i) {
    pool.Submit([] {
      all_busy.arrive_and_wait();
      pool.Submit([] {
        parts_done.count_down();
        return 1;
      });
      hang_pass();
      parts_done.wait();
      return 1;
    });
  }
  hang_await_passed(kWorkers);
  pool.AwaitAllBlocked();
}

// Likewise by a condition variable.
void ConditionPool() {
  static constexpr int kWorkers = 3;
  static Pool pool(kWorkers);
  static std::latch all_busy(kWorkers);
  static std::mutex mutex;
  static std::condition_variable part_done;
  static int parts_done = 0;
  for (int i = 0; i < kWorkers; ++i) {
    pool.Submit([] {
      all_busy.arrive_and_wait();
      pool.Submit([] {
        std::lock_guard hold(mutex);
        ++parts_done;
        part_done.notify_all();
        return 1;
      });
      hang_pass();
      std::unique_lock hold(mutex);
      part_done.wait(hold, [] { return parts_done == kWorkers; });
      return 1;
    });
  }
  hang_await_passed(kWorkers);
  pool.AwaitAllBlocked();
}

// A wait that does not know of the stop that its thread was asked for, and a thread that waits for its end.
void StopThatIsNotHeard() {
  static std::mutex mutex;
  static std::condition_variable work_came;
  victim_thread* worker = Thread("worker", [] {
    std::unique_lock hold(mutex);
    for (;;) work_came.wait(hold);
  });
  victim_await_syscall(worker->tid, SYS_futex);
  BlockedThread("stopper", [worker] { pthread_join(worker->handle, nullptr); });
}

// Each task of the pool needs another, and no worker is left to do it.
void StarvedPool() {
  static constexpr int kWorkers = 3;
  static Pool pool(kWorkers);
  static std::latch all_busy(kWorkers);
  for (int i = 0; i < kWorkers; ++i) {
    pool.Submit([] {
      all_busy.arrive_and_wait();
      std::future<int> needed = pool.Submit([] { return 1; });
      hang_pass();
      return needed.get();
    });
  }
  hang_await_passed(kWorkers);
  pool.AwaitAllBlocked();
}

// The same pool with nothing to do.
void IdlePool() {
  static Pool pool(4);
  pool.AwaitAllBlocked();
}

// --- threads that wait for the end of the program: no pool, and nothing is wrong ---

std::promise<void> stop;
std::shared_future<void> stopped = stop.get_future().share();

// As programs that take their signals in main() and end cleanly.
VICTIM_NOINLINE void AwaitSignal() {
  sigset_t signals;
  sigfillset(&signals);
  hang_ready();
  for (int number = 0; number != SIGTERM;) sigwait(&signals, &number);
  stop.set_value();
  _exit(0);
}

void BlockSignals() {
  sigset_t signals;
  sigfillset(&signals);
  pthread_sigmask(SIG_SETMASK, &signals, nullptr);
}

void GateAndSigwait() {
  BlockSignals();
  for (const char* name : {"parked-1", "parked-2"}) BlockedThread(name, [] { stopped.wait(); });
  AwaitSignal();
}

void GateAndSleep() {
  for (const char* name : {"parked-1", "parked-2", "parked-3"}) BlockedThread(name, [] { stopped.wait(); });
  hang_ready();
  hang_sleep();
}

void GateOfAsyncAndSigwait() {
  BlockSignals();
  static std::vector<std::future<void>> parked;
  static std::atomic<pid_t> tid;
  for (int i = 0; i < 2; ++i) {
    tid = 0;
    parked.push_back(std::async(std::launch::async, [] {
      tid = victim_tid();
      stopped.wait();
    }));
    while (tid == 0) usleep(50);
    victim_await_syscall(tid, SYS_futex);
  }
  AwaitSignal();
}

// Each waits for the order to end that is its own.
void OwnGatesAndSigwait() {
  BlockSignals();
  static std::array<std::promise<void>, 3> orders;
  for (auto& order : orders) BlockedThread("parked", [&order] { order.get_future().wait(); });
  AwaitSignal();
}

// Hung, and no pool either: each is to set what the other waits for.
void TwoFutures() {
  static std::promise<void> first, second;
  BlockedThread("first", [] {
    second.get_future().wait();
    first.set_value();
  });
  BlockedThread("second", [] {
    first.get_future().wait();
    second.set_value();
  });
}

// --- atomic waits ---

void AtomicWait() {
  static std::atomic<int> state{0};
  BlockedThread("atomic", [] { state.wait(0); });
}

void Latch() {
  static std::latch two(2);
  BlockedThread("latch", [] { two.arrive_and_wait(); });
}

void Semaphore() {
  static std::counting_semaphore<8> tickets(0);
  BlockedThread("semaphore", [] { tickets.acquire(); });
}

void Barrier() {
  static std::barrier three(3);
  BlockedThread("barrier-1", [] { three.arrive_and_wait(); });
  BlockedThread("barrier-2", [] { three.arrive_and_wait(); });
}

// --- initialization ---

std::latch both_initialize(2);

struct Settings {
  Settings();
};
struct Registry {
  Registry();
};

VICTIM_NOINLINE Settings& TheSettings() {
  static Settings settings;
  return settings;
}
VICTIM_NOINLINE Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

Settings::Settings() {
  both_initialize.arrive_and_wait();
  hang_pass();
  TheRegistry();
}
Registry::Registry() {
  both_initialize.arrive_and_wait();
  hang_pass();
  TheSettings();
}

void StaticVariablesCycle() {
  auto* settings = Thread("settings", [] { TheSettings(); });
  auto* registry = Thread("registry", [] { TheRegistry(); });
  AwaitBoth(settings, registry);
}

std::once_flag loaded;

VICTIM_NOINLINE void Load() {
  std::call_once(loaded, Load);
  VICTIM_NOT_A_TAIL_CALL();
}

void CallOnceRecursion() {
  BlockedThread("loader", [] { std::call_once(loaded, Load); });
}

std::once_flag opened;
std::mutex ledger;

VICTIM_NOINLINE void Open() {
  both_initialize.arrive_and_wait();
  hang_pass();
  std::lock_guard hold(ledger);
}

// The initializer wants a mutex, whose owner wants the initialization.
void CallOnceAndMutex() {
  auto* opener = Thread("opener", [] { std::call_once(opened, Open); });
  auto* booker = Thread("booker", [] {
    std::lock_guard hold(ledger);
    both_initialize.arrive_and_wait();
    hang_pass();
    std::call_once(opened, Open);
  });
  AwaitBoth(opener, booker);
}

constexpr hang_mode kModes[] = {
    {"atomic_wait", AtomicWait},
    {"barrier", Barrier},
    {"call_once_and_mutex", CallOnceAndMutex},
    {"call_once_recursion", CallOnceRecursion},
    {"future_never_set", FutureNeverSet},
    {"gate_and_sigwait", GateAndSigwait},
    {"gate_and_sleep", GateAndSleep},
    {"gate_of_async_and_sigwait", GateOfAsyncAndSigwait},
    {"idle_pool", IdlePool},
    {"condition_pool", ConditionPool},
    {"latch", Latch},
    {"latch_pool", LatchPool},
    {"own_gates_and_sigwait", OwnGatesAndSigwait},
    {"semaphore", Semaphore},
    {"shared_mutex_cycle", SharedMutexCycle},
    {"starved_pool", StarvedPool},
    {"stop_not_heard", StopThatIsNotHeard},
    {"static_variables_cycle", StaticVariablesCycle},
    {"transfer_cycle", TransferCycle},
    {"two_futures", TwoFutures},
};

}  // namespace

int main(int argc, char** argv) { return hang_run(argc, argv, kModes, std::size(kModes)); }
