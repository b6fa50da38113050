/* Locks in memory that processes share: their words hold tids, which other processes may have written. */
#include <fcntl.h>
#include <linux/futex.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>

#include "tests/hangs/hang.h"

typedef struct shared_locks {
  pthread_mutex_t orders_lock;
  pthread_mutex_t stock_lock;
  pthread_rwlock_t prices_lock;
  sem_t orders_came;
  unsigned stock_changed;
} shared_locks;

static shared_locks* locks;
static shared_locks own_locks;

static void initialize(int sharing) {
  pthread_mutexattr_t mutex_kind;
  pthread_mutexattr_init(&mutex_kind);
  pthread_mutexattr_setpshared(&mutex_kind, sharing);
  pthread_mutex_init(&locks->orders_lock, &mutex_kind);
  pthread_mutex_init(&locks->stock_lock, &mutex_kind);
  pthread_rwlockattr_t rwlock_kind;
  pthread_rwlockattr_init(&rwlock_kind);
  pthread_rwlockattr_setpshared(&rwlock_kind, sharing);
  pthread_rwlock_init(&locks->prices_lock, &rwlock_kind);
  sem_init(&locks->orders_came, sharing == PTHREAD_PROCESS_SHARED, 0);
}

static void share(int sharing) {
  locks = mmap(NULL, sizeof *locks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  victim_check(locks != MAP_FAILED, "mmap");
  initialize(sharing);
}

/* Returns when a child has done `take`; it stays until this process ends, or ends at once. */
static void start_child(void (*take)(void), int stays) {
  int done[2];
  victim_check(pipe(done) == 0, "pipe");
  pid_t child = fork();
  victim_check(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    take();
    victim_check(write(done[1], "", 1) == 1, "write");
    if (stays) hang_sleep();
    _exit(0);
  }
  char byte;
  victim_check(read(done[0], &byte, 1) == 1, "read");
  printf("child %d\n", (int)child);
  fflush(stdout);
}

VICTIM_NOINLINE static void* take_orders(void* unused) {
  pthread_mutex_lock(&locks->orders_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

VICTIM_NOINLINE static void* read_prices(void* unused) {
  pthread_rwlock_rdlock(&locks->prices_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void lock_orders(void) { pthread_mutex_lock(&locks->orders_lock); }
static void write_prices(void) { pthread_rwlock_wrlock(&locks->prices_lock); }

static void add_waiters(void) {
  hang_thread_in(SYS_futex, "waiter-1", take_orders, NULL);
  hang_thread_in(SYS_futex, "waiter-2", take_orders, NULL);
}

/* --- another process has it --- */

static void held_by_child(void) {
  share(PTHREAD_PROCESS_SHARED);
  start_child(lock_orders, 1);
  add_waiters();
}

static void child_ended_with_it(void) {
  share(PTHREAD_PROCESS_SHARED);
  start_child(lock_orders, 0);
  add_waiters();
}

/* The program forgot to say that processes share it: the memory says so. */
static void private_kind_held_by_child(void) {
  share(PTHREAD_PROCESS_PRIVATE);
  start_child(lock_orders, 1);
  add_waiters();
}

static void rwlock_held_by_child(void) {
  share(PTHREAD_PROCESS_SHARED);
  start_child(write_prices, 1);
  hang_thread_in(SYS_futex, "reader", read_prices, NULL);
}

/* Two processes in PID namespaces of their own have main threads with the same tid; one has the lock. */
static void open_file_of_both(void) {
  const char* path = getenv("HANG_SHARED_FILE");
  victim_check(path != NULL, "HANG_SHARED_FILE");
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  victim_check(fd >= 0 && ftruncate(fd, sizeof *locks) == 0, path);
  locks = mmap(NULL, sizeof *locks, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  victim_check(locks != MAP_FAILED, "mmap");
}

static void namespace_holds(void) {
  open_file_of_both();
  initialize(PTHREAD_PROCESS_SHARED);
  lock_orders();
}

static void namespace_waits(void) {
  open_file_of_both();
  hang_ready_when_blocked(SYS_futex);
  take_orders(NULL);
}

static void lock_stock(void) { pthread_mutex_lock(&locks->stock_lock); }

/* Reports that it has its lock, and waits for the other process's from then on. */
static void lock_stock_then_orders(void) {
  lock_stock();
  hang_thread("stock-first", take_orders, NULL);
}

VICTIM_NOINLINE static void* take_stock(void* unused) {
  lock_stock();
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void cycle_of_processes(void) {
  share(PTHREAD_PROCESS_SHARED);
  lock_orders();
  start_child(lock_stock_then_orders, 1);
  hang_thread_in(SYS_futex, "orders-first", take_stock, NULL);
}

/* --- a thread of the same process has it --- */

VICTIM_NOINLINE static void* sleep_with_orders(void* unused) {
  pthread_mutex_lock(&locks->orders_lock);
  hang_sleep();
  return unused;
}

static void held_by_own_thread(void) {
  share(PTHREAD_PROCESS_SHARED);
  hang_thread_in(SYS_clock_nanosleep, "owner", sleep_with_orders, NULL);
  add_waiters();
}

VICTIM_NOINLINE static void* take_orders_then_stock(void* both_have_one) {
  pthread_mutex_lock(&locks->orders_lock);
  pthread_barrier_wait(both_have_one);
  hang_pass();
  pthread_mutex_lock(&locks->stock_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

VICTIM_NOINLINE static void* take_stock_then_orders(void* both_have_one) {
  pthread_mutex_lock(&locks->stock_lock);
  pthread_barrier_wait(both_have_one);
  hang_pass();
  pthread_mutex_lock(&locks->orders_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void cycle(void) {
  static pthread_barrier_t both_have_one;
  share(PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&both_have_one, NULL, 2);
  pid_t first = hang_thread("orders-first", take_orders_then_stock, &both_have_one)->tid;
  pid_t second = hang_thread("stock-first", take_stock_then_orders, &both_have_one)->tid;
  hang_await_passed(2);
  victim_await_syscall(first, SYS_futex);
  victim_await_syscall(second, SYS_futex);
}

/* Its kind says that processes share it, and no other process can have this memory. */
VICTIM_NOINLINE static void* lock_twice(void* unused) {
  pthread_mutex_lock(&locks->orders_lock);
  pthread_mutex_lock(&locks->orders_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void self_in_own_memory(void) {
  locks = &own_locks;
  initialize(PTHREAD_PROCESS_SHARED);
  hang_thread_in(SYS_futex, "selfish", lock_twice, NULL);
}

/* --- another process is to post --- */

VICTIM_NOINLINE static void* await_orders(void* unused) {
  sem_wait(&locks->orders_came);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

VICTIM_NOINLINE static void* await_stock(void* unused) {
  syscall(SYS_futex, &locks->stock_changed, FUTEX_WAIT, 0, NULL);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void do_nothing(void) {}

static void await_child(int stays) {
  share(PTHREAD_PROCESS_SHARED);
  start_child(do_nothing, stays);
  hang_thread_in(SYS_futex, "orders", await_orders, NULL);
  hang_thread_in(SYS_futex, "stock", await_stock, NULL);
}

static void poster_ended(void) { await_child(0); }
static void poster_lives(void) { await_child(1); }

static const hang_mode kModes[] = {
    {"child_ended_with_it", child_ended_with_it},
    {"circle", cycle},
    {"circle_of_processes", cycle_of_processes},
    {"held_by_child", held_by_child},
    {"held_by_own_thread", held_by_own_thread},
    {"namespace_holds", namespace_holds},
    {"namespace_waits", namespace_waits},
    {"poster_ended", poster_ended},
    {"poster_lives", poster_lives},
    {"private_kind_held_by_child", private_kind_held_by_child},
    {"rwlock_held_by_child", rwlock_held_by_child},
    {"self_in_own_memory", self_in_own_memory},
};

int main(int argc, char** argv) { return hang_run(argc, argv, kModes, sizeof kModes / sizeof kModes[0]); }
