#include "tests/bench/hung_threads.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Uses nothing of the C++ library, on purpose. With <future> and <functional> in this file, gdb takes 6 times as long for
// its stacks and eu-stack 17 times. The peers get the easy case.

namespace stackd::bench {
namespace {

struct Request {
  int id = 0;
  const char* tenant = "";
  uint64_t checksum = 0;
};

// A frame of its own.
#define BENCH_FRAME [[gnu::noinline, gnu::noclone]]

// After a call: what follows keeps it from becoming a jump, and the locals in the frame.
template <typename T>
inline void Keep(T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

// Small functions that the compiler inlines, as accessors and checks are.
inline uint64_t Mix(uint64_t seed, int id) { return (seed ^ static_cast<uint64_t>(id)) * 0x9e3779b97f4a7c15ull; }
inline bool Admitted(const Request& request) { return request.id >= 0 && request.tenant[0] != 0; }

template <typename Lock>
class Guard {
 public:
  explicit Guard(Lock& lock) : lock_(lock) { lock_.Acquire(); }
  ~Guard() { lock_.Release(); }

 private:
  Lock& lock_;
};

// --- Where threads wait. Each is made by the main thread, which takes what the others want. ---

class Mutex {
 public:
  void Acquire() { pthread_mutex_lock(&mutex_); }
  void Release() { pthread_mutex_unlock(&mutex_); }
  pthread_mutex_t* get() { return &mutex_; }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

struct MutexWait {
  Mutex mutex;
  MutexWait() { mutex.Acquire(); }
  BENCH_FRAME void Wait(Request& request) {
    Guard guard(mutex);
    Keep(request);
  }
};

class Condition {
 public:
  template <typename Predicate>
  void Await(Mutex& mutex, Predicate ready) {
    while (!ready()) pthread_cond_wait(&condition_, mutex.get());
  }
  template <typename Predicate>
  bool AwaitUntil(Mutex& mutex, const timespec& deadline, Predicate ready) {
    while (!ready()) {
      if (pthread_cond_timedwait(&condition_, mutex.get(), &deadline) != 0) return false;
    }
    return true;
  }

 private:
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

struct ConditionWait {
  Mutex mutex;
  Condition changed;
  bool ready = false;
  BENCH_FRAME void Wait(Request& request) {
    Guard guard(mutex);
    changed.Await(mutex, [this] { return ready; });
    Keep(request);
  }
};

struct TimedWait {
  Mutex mutex;
  Condition changed;
  bool ready = false;
  BENCH_FRAME void Wait(Request& request) {
    timespec tomorrow{time(nullptr) + 86400, 0};
    Guard guard(mutex);
    changed.AwaitUntil(mutex, tomorrow, [this] { return ready; });
    Keep(request);
  }
};

class SharedLock {
 public:
  void AcquireAlone() { pthread_rwlock_wrlock(&lock_); }
  void Acquire() { pthread_rwlock_rdlock(&lock_); }
  void Release() { pthread_rwlock_unlock(&lock_); }

 private:
  pthread_rwlock_t lock_ = PTHREAD_RWLOCK_INITIALIZER;
};

struct SharedLockWait {
  SharedLock lock;
  SharedLockWait() { lock.AcquireAlone(); }
  BENCH_FRAME void Wait(Request& request) {
    Guard guard(lock);
    Keep(request);
  }
};

struct SemaphoreWait {
  sem_t slots;
  SemaphoreWait() { sem_init(&slots, 0, 0); }
  BENCH_FRAME void Wait(Request& request) {
    while (sem_wait(&slots) != 0) Keep(request);
    Keep(request);
  }
};

struct BarrierWait {
  pthread_barrier_t barrier;
  BarrierWait() { pthread_barrier_init(&barrier, nullptr, 1u << 20); }
  BENCH_FRAME void Wait(Request& request) {
    pthread_barrier_wait(&barrier);
    Keep(request);
  }
};

// --- The way there ---

template <typename Waiting>
Waiting row;

template <typename Waiting>
class Table {
 public:
  BENCH_FRAME static void Lookup(Request& request) {
    char key[96] = {};
    snprintf(key, sizeof(key), "%s/%d", request.tenant, request.id);
    row<Waiting>.Wait(request);
    Keep(key);
  }
};

// A tree walk: `depth` + 1 frames of one function.
template <typename Waiting, typename Key>
struct TreeNode {
  BENCH_FRAME static void Descend(Request& request, Key key, int depth) {
    uint64_t path[6];
    for (uint64_t& step : path) step = request.checksum = Mix(request.checksum, depth);
    if (depth > 0) {
      Descend(request, static_cast<Key>(key / 2), depth - 1);
    } else {
      Table<Waiting>::Lookup(request);
    }
    Keep(path);
  }
};

template <int kLevel, typename Next>
struct Filter {
  template <typename Sink>
  BENCH_FRAME static void Apply(Request& request, const Sink& sink) {
    uint64_t digest[4] = {Mix(request.checksum, kLevel), 0, 0, 0};
    if (Admitted(request)) Next::Apply(request, sink);
    Keep(digest);
  }
};

struct LastFilter {
  template <typename Sink>
  BENCH_FRAME static void Apply(Request& request, const Sink& sink) {
    sink(request);
    Keep(request);
  }
};

class Session {
 public:
  virtual ~Session() = default;
  virtual void OnMessage(Request& request) = 0;
};

template <typename Waiting, typename Key>
class TypedSession : public Session {
 public:
  explicit TypedSession(int depth) : depth_(depth) {}

  BENCH_FRAME void OnMessage(Request& request) override {
    char token[64] = {};
    snprintf(token, sizeof(token), "%d", request.id);
    Parse(request, [this](Request& filtered) { TreeNode<Waiting, Key>::Descend(filtered, Key{}, depth_); });
    Keep(token);
  }

 private:
  using Filters = Filter<1, Filter<2, Filter<3, Filter<4, Filter<5, Filter<6, LastFilter>>>>>>;

  template <typename Sink>
  BENCH_FRAME void Parse(Request& request, const Sink& sink) {
    Filters::Apply(request, sink);
    Keep(request);
  }

  int depth_;
};

class Task {
 public:
  virtual ~Task() = default;
  virtual void Run() = 0;
};

template <typename Callable>
class BoundTask : public Task {
 public:
  explicit BoundTask(Callable callable) : callable_(callable) {}
  BENCH_FRAME void Run() override {
    callable_();
    Keep(callable_);
  }

 private:
  Callable callable_;
};

BENCH_FRAME void Deliver(Session& session, Request& request) {
  session.OnMessage(request);
  Keep(request);
}

BENCH_FRAME void RunTimed(Task& task) {
  timespec begin;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  task.Run();
  Keep(begin);
}

BENCH_FRAME void RunGuarded(Task& task) {
  try {
    RunTimed(task);
  } catch (const char* error) {
    fprintf(stderr, "task: %s\n", error);
  }
}

BENCH_FRAME void RunQueue(Task* (&queue)[2]) {
  for (Task* task : queue) {
    if (task != nullptr) RunGuarded(*task);
  }
  Keep(queue);
}

template <typename Waiting, typename Key>
BENCH_FRAME void Serve(int index) {
  auto task = [index] {
    Request request{index, "tenant", 1};
    TypedSession<Waiting, Key> session(2 + index / 18 % 5);
    Deliver(session, request);
  };
  BoundTask<decltype(task)> bound(task);
  Task* queue[2] = {&bound, nullptr};
  RunQueue(queue);
}

template <typename Waiting>
BENCH_FRAME void Dispatch(int index) {
  constexpr void (*kServeBy[])(int) = {Serve<Waiting, int>, Serve<Waiting, long>, Serve<Waiting, unsigned short>};
  kServeBy[index / 6 % 3](index);
  Keep(index);
}

BENCH_FRAME void WorkerLoop(int index) {
  constexpr void (*kDispatch[])(int) = {Dispatch<MutexWait>,      Dispatch<ConditionWait>, Dispatch<TimedWait>,
                                        Dispatch<SharedLockWait>, Dispatch<SemaphoreWait>, Dispatch<BarrierWait>};
  kDispatch[index % 6](index);
  Keep(index);
}

struct Start {
  int index = 0;
  int tid = 0;
};

BENCH_FRAME void* ThreadMain(void* argument) {
  auto* start = static_cast<Start*>(argument);
  __atomic_store_n(&start->tid, static_cast<int>(syscall(SYS_gettid)), __ATOMIC_RELEASE);
  WorkerLoop(start->index);
  return nullptr;
}

// The kernel offers no event for "this thread sleeps in futex": ask until it does.
void AwaitFutexWait(int tid) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
  for (;; usleep(200)) {
    char text[128] = {};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0) close(fd);
    if (got > 0 && text[0] != 'r' && strtol(text, nullptr, 10) == SYS_futex) return;
  }
}

}  // namespace

void StartHungThreads(int count) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  auto* starts = new Start[static_cast<size_t>(count)];
  for (int i = 0; i < count; ++i) {
    starts[i].index = i;
    pthread_t thread;
    if (int error = pthread_create(&thread, &attributes, ThreadMain, &starts[i]); error != 0) {
      fprintf(stderr, "thread %d of %d: %s\n", i, count, strerror(error));
      exit(1);
    }
    pthread_detach(thread);
  }
  pthread_attr_destroy(&attributes);
  for (int i = 0; i < count; ++i) {
    while (__atomic_load_n(&starts[i].tid, __ATOMIC_ACQUIRE) == 0) usleep(100);
    AwaitFutexWait(starts[i].tid);
  }
}

}  // namespace stackd::bench
