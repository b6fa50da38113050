// thread_churn WAITING WORKERS: WAITING threads wait on a condition variable. WORKERS each create a thread, in it copy 20
// MB with memcpy, join it, and so on for ever. Programs like it queue up in glibc's thread creation and release.
//
// Says "ready" when all wait and the workers are at it. Says the number of threads ended so far for each line on stdin. The
// test sees that the program is alive and not just standing.
#include <atomic>
#include <memory>
#include <vector>

#include "tests/programs/victim.h"

namespace {

constexpr size_t kCopyBytes = 20 << 20;

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t never = PTHREAD_COND_INITIALIZER;
// Copied by all workers: 500 with a buffer each would be 20 GB.
std::unique_ptr<char[]> source(new char[kCopyBytes]());
std::atomic<uint64_t> threads_ended = 0;
// Workers start together: those that ran already would keep the last ones from ever being made.
pthread_barrier_t all_made;

VICTIM_NOINLINE void* WaitForWork(void*) {
  pthread_mutex_lock(&mutex);
  for (;;) pthread_cond_wait(&never, &mutex);
}

VICTIM_NOINLINE void* CopyOnce(void*) {
  // A window of 1 MB that stays this thread's own, 20 times: 20 MB copied, 1 MB held.
  constexpr size_t kWindowBytes = 1 << 20;
  std::unique_ptr<char[]> target(new char[kWindowBytes]);
  for (size_t offset = 0; offset < kCopyBytes; offset += kWindowBytes) {
    memcpy(target.get(), source.get() + offset, kWindowBytes);
    asm volatile("" ::"r"(target.get()) : "memory");
  }
  return nullptr;
}

VICTIM_NOINLINE void* CreateAndJoin(void*) {
  pthread_barrier_wait(&all_made);
  for (;;) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, CopyOnce, nullptr) != 0) {
      perror("pthread_create");
      exit(1);
    }
    pthread_join(thread, nullptr);
    ++threads_ended;
  }
}

}  // namespace

int main(int argc, char** argv) {
  int waiting = argc > 1 ? atoi(argv[1]) : 1000;
  int workers = argc > 2 ? atoi(argv[2]) : 40;
  std::vector<victim_thread> threads(waiting + workers);
  for (int i = 0; i < waiting; ++i) victim_start(&threads[i], "waiter", WaitForWork, nullptr, 64 << 10);
  for (int i = 0; i < waiting; ++i) victim_await_syscall(threads[i].tid, SYS_futex);
  pthread_barrier_init(&all_made, nullptr, workers + 1);
  for (int i = waiting; i < waiting + workers; ++i) {
    victim_start(&threads[i], "worker", CreateAndJoin, nullptr, 64 << 10);
  }
  pthread_barrier_wait(&all_made);
  while (threads_ended == 0) usleep(1000);
  victim_ready();
  for (char line[16]; fgets(line, sizeof line, stdin) != nullptr;) {
    printf("%llu\n", static_cast<unsigned long long>(threads_ended.load()));
    fflush(stdout);
  }
}
