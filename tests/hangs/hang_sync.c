/* What the C library has besides mutexes: rwlocks, joins, condition variables, once, semaphores, barriers, its own locks.
 */
#include <malloc.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>

#include "tests/hangs/hang.h"

static pthread_mutex_t orders_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t prices_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t taxes_lock = PTHREAD_RWLOCK_INITIALIZER;

/* --- rwlocks --- */

VICTIM_NOINLINE static void* read_then_write(void* unused) {
  pthread_rwlock_rdlock(&prices_lock);
  pthread_rwlock_wrlock(&prices_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void rwlock_upgrade(void) { hang_thread_in(SYS_futex, "upgrader", read_then_write, NULL); }

VICTIM_NOINLINE static void* write_and_sleep(void* unused) {
  pthread_rwlock_wrlock(&prices_lock);
  hang_sleep();
  return unused;
}

VICTIM_NOINLINE static void* read_prices(void* unused) {
  pthread_rwlock_rdlock(&prices_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

VICTIM_NOINLINE static void* write_prices(void* unused) {
  pthread_rwlock_wrlock(&prices_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void rwlock_writer_asleep(void) {
  hang_thread_in(SYS_clock_nanosleep, "owner", write_and_sleep, NULL);
  hang_thread_in(SYS_futex, "reader", read_prices, NULL);
  hang_thread_in(SYS_futex, "writer", write_prices, NULL);
}

VICTIM_NOINLINE static void* read_and_sleep(void* unused) {
  pthread_rwlock_rdlock(&prices_lock);
  hang_sleep();
  return unused;
}

static void rwlock_reader_asleep(void) {
  hang_thread_in(SYS_clock_nanosleep, "owner", read_and_sleep, NULL);
  hang_thread_in(SYS_futex, "writer", write_prices, NULL);
}

static pthread_rwlock_t fees_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static sem_t writer_waits;

VICTIM_NOINLINE static void* read_again(void* unused) {
  pthread_rwlock_rdlock(&fees_lock);
  while (sem_wait(&writer_waits) != 0) {
  }
  hang_pass();
  pthread_rwlock_rdlock(&fees_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

VICTIM_NOINLINE static void* write_fees(void* unused) {
  pthread_rwlock_wrlock(&fees_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

/* The writer waits for a reader, which waits behind the writer. */
static void rwlock_read_again(void) {
  sem_init(&writer_waits, 0, 0);
  victim_thread* reader = hang_thread_in(SYS_futex, "reader", read_again, NULL);
  hang_thread_in(SYS_futex, "writer", write_fees, NULL);
  sem_post(&writer_waits);
  hang_await_passed(1);
  victim_await_syscall(reader->tid, SYS_futex);
}

static pthread_barrier_t both_hold_one;

VICTIM_NOINLINE static void* write_prices_then_orders(void* unused) {
  pthread_rwlock_wrlock(&prices_lock);
  pthread_barrier_wait(&both_hold_one);
  hang_pass();
  pthread_mutex_lock(&orders_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

VICTIM_NOINLINE static void* orders_then_read_prices(void* unused) {
  pthread_mutex_lock(&orders_lock);
  pthread_barrier_wait(&both_hold_one);
  hang_pass();
  pthread_rwlock_rdlock(&prices_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void mixed_cycle(void) {
  pthread_barrier_init(&both_hold_one, NULL, 2);
  victim_thread* writer = hang_thread("writer", write_prices_then_orders, NULL);
  victim_thread* reader = hang_thread("reader", orders_then_read_prices, NULL);
  hang_await_passed(2);
  victim_await_syscall(writer->tid, SYS_futex);
  victim_await_syscall(reader->tid, SYS_futex);
}

VICTIM_NOINLINE static void* write_prices_then_taxes(void* unused) {
  pthread_rwlock_wrlock(&prices_lock);
  pthread_barrier_wait(&both_hold_one);
  hang_pass();
  pthread_rwlock_wrlock(&taxes_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

VICTIM_NOINLINE static void* write_taxes_then_prices(void* unused) {
  pthread_rwlock_wrlock(&taxes_lock);
  pthread_barrier_wait(&both_hold_one);
  hang_pass();
  pthread_rwlock_wrlock(&prices_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void rwlock_cycle(void) {
  pthread_barrier_init(&both_hold_one, NULL, 2);
  victim_thread* one = hang_thread("prices-first", write_prices_then_taxes, NULL);
  victim_thread* other = hang_thread("taxes-first", write_taxes_then_prices, NULL);
  hang_await_passed(2);
  victim_await_syscall(one->tid, SYS_futex);
  victim_await_syscall(other->tid, SYS_futex);
}

/* --- joins --- */

#define JOINERS 3 /* of two the C library itself refuses the second */
static victim_thread* joiners[JOINERS];
static int all_joiners_are_there;

VICTIM_NOINLINE static void* join_next(void* index) {
  while (!__atomic_load_n(&all_joiners_are_there, __ATOMIC_ACQUIRE)) usleep(100);
  pthread_join(joiners[((size_t)index + 1) % JOINERS]->handle, NULL);
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void join_cycle(void) {
  static const char* const names[JOINERS] = {"joiner-0", "joiner-1", "joiner-2"};
  for (size_t i = 0; i < JOINERS; ++i) joiners[i] = hang_thread(names[i], join_next, (void*)i);
  __atomic_store_n(&all_joiners_are_there, 1, __ATOMIC_RELEASE);
  for (size_t i = 0; i < JOINERS; ++i) victim_await_syscall(joiners[i]->tid, SYS_futex);
}

VICTIM_NOINLINE static void* take_orders(void* unused) {
  pthread_mutex_lock(&orders_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static victim_thread* worker;

VICTIM_NOINLINE static void* join_with_orders(void* unused) {
  pthread_mutex_lock(&orders_lock);
  victim_thread* started = hang_thread_in(SYS_futex, "worker", take_orders, NULL);
  __atomic_store_n(&worker, started, __ATOMIC_RELEASE);
  pthread_join(started->handle, NULL);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void join_with_lock(void) {
  victim_thread* stopper = hang_thread("stopper", join_with_orders, NULL);
  while (__atomic_load_n(&worker, __ATOMIC_ACQUIRE) == NULL) usleep(100);
  victim_await_syscall(stopper->tid, SYS_futex);
}

/* --- condition variables --- */

static pthread_cond_t work_came = PTHREAD_COND_INITIALIZER;

/* The signal came before the wait, and no flag tells of it. */
VICTIM_NOINLINE static void* consume(void* unused) {
  pthread_mutex_lock(&orders_lock);
  pthread_cond_wait(&work_came, &orders_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

VICTIM_NOINLINE static void* await_end_of(void* thread) {
  pthread_join(((victim_thread*)thread)->handle, NULL);
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void lost_wakeup(void) {
  pthread_cond_signal(&work_came);
  victim_thread* consumer = hang_thread_in(SYS_futex, "consumer", consume, NULL);
  hang_thread_in(SYS_futex, "shutdown", await_end_of, consumer);
}

/* Waits for work with a lock that is not the one of the condition variable. */
VICTIM_NOINLINE static void* consume_with_prices(void* unused) {
  pthread_rwlock_wrlock(&prices_lock);
  consume(unused);
  return unused;
}

static void owner_in_condition_wait(void) {
  hang_thread_in(SYS_futex, "owner", consume_with_prices, NULL);
  hang_thread_in(SYS_futex, "reader", read_prices, NULL);
}

VICTIM_NOINLINE static void* destroy_work_came(void* unused) {
  pthread_cond_destroy(&work_came);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

/* As the destructor of a static object does at exit, while a worker waits for work. */
static void destroyed_with_waiter(void) {
  hang_thread_in(SYS_futex, "consumer", consume, NULL);
  hang_thread_in(SYS_futex, "destroyer", destroy_work_came, NULL);
}

/* --- once --- */

static pthread_once_t settings_once = PTHREAD_ONCE_INIT;

VICTIM_NOINLINE static void read_settings(void) {
  pthread_once(&settings_once, read_settings);
  VICTIM_NOT_A_TAIL_CALL();
}

VICTIM_NOINLINE static void* need_settings(void* unused) {
  pthread_once(&settings_once, read_settings);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void once_recursion(void) { hang_thread_in(SYS_futex, "initializer", need_settings, NULL); }

static void sleepy_settings(void) { hang_sleep(); }

VICTIM_NOINLINE static void* need_sleepy_settings(void* unused) {
  pthread_once(&settings_once, sleepy_settings);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void once_initializer_asleep(void) {
  hang_thread_in(SYS_clock_nanosleep, "initializer", need_sleepy_settings, NULL);
  hang_thread_in(SYS_futex, "user-1", need_sleepy_settings, NULL);
  hang_thread_in(SYS_futex, "user-2", need_sleepy_settings, NULL);
}

/* --- semaphores and barriers --- */

static sem_t tickets;

VICTIM_NOINLINE static void* take_ticket(void* unused) {
  sem_wait(&tickets);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

VICTIM_NOINLINE static void* take_ticket_in_time(void* unused) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 3600;
  sem_timedwait(&tickets, &end);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void semaphore(void) {
  sem_init(&tickets, 0, 0);
  hang_thread_in(SYS_futex, "taker", take_ticket, NULL);
  hang_thread_in(SYS_futex, "patient", take_ticket_in_time, NULL);
}

static pthread_barrier_t three_come;

VICTIM_NOINLINE static void* meet(void* unused) {
  pthread_barrier_wait(&three_come);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void barrier_one_missing(void) {
  pthread_barrier_init(&three_come, NULL, 3);
  hang_thread_in(SYS_futex, "early-1", meet, NULL);
  hang_thread_in(SYS_futex, "early-2", meet, NULL);
}

/* --- locks inside of the C library --- */

static void allocate_in_handler(int number) {
  (void)number;
  void* volatile block = malloc(5000);
  free(block);
}

/* Is interrupted while the allocator has its lock and asks the kernel for memory. */
VICTIM_NOINLINE static void* allocate_much(void* unused) {
  hang_block_syscall(SYS_brk);
  for (;;) {
    void* volatile block = malloc(100000);
    (void)block;
  }
  return unused;
}

static void malloc_in_handler(void) {
  mallopt(M_ARENA_MAX, 1);
  victim_check(signal(SIGUSR1, allocate_in_handler) != SIG_ERR, "signal");
  victim_thread* thread = hang_thread_in(SYS_brk, "allocator", allocate_much, NULL);
  pthread_kill(thread->handle, SIGUSR1);
  victim_await_syscall(thread->tid, SYS_futex);
}

static void read_clock_in_handler(int unused) {
  (void)unused;
  time_t now = 0;
  localtime(&now);
}

/* Is interrupted while the C library has its lock and reads the time zone. */
VICTIM_NOINLINE static void* read_time_zone(void* unused) {
  hang_block_syscall(SYS_openat);
  tzset();
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static victim_thread* start_reading_time_zone(void) {
  victim_check(setenv("TZ", "Europe/Berlin", 1) == 0, "setenv");
  return hang_thread_in(SYS_openat, "clock", read_time_zone, NULL);
}

static void time_zone_in_handler(void) {
  victim_check(signal(SIGUSR1, read_clock_in_handler) != SIG_ERR, "signal");
  victim_thread* thread = start_reading_time_zone();
  pthread_kill(thread->handle, SIGUSR1);
  victim_await_syscall(thread->tid, SYS_futex);
}

/* The child has the lock as it was, and not the thread that could release it. */
static void time_zone_after_fork(void) {
  start_reading_time_zone();
  pid_t child = fork();
  victim_check(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    read_clock_in_handler(0);
    _exit(1);
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/syscall", (int)child);
  victim_await_syscall_file(path, SYS_futex);
  printf("child %d\n", (int)child);
  fflush(stdout);
}

/* More than the C library keeps of the stacks of ended threads: the next one who joins unmaps, with the lock of the list.
 */
#define LARGE_STACK_BYTES ((size_t)64 << 20)

VICTIM_NOINLINE static void* end_at_once(void* unused) { return unused; }

VICTIM_NOINLINE static void* join_large(void* thread) {
  /* The allocator unmaps something, too, the first time in a thread. */
  void* volatile block = malloc(1);
  free(block);
  hang_block_syscall(SYS_munmap);
  pthread_join(((victim_thread*)thread)->handle, NULL);
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static int is_unmapping;

VICTIM_NOINLINE static void* create_thread(void* unused) {
  while (!__atomic_load_n(&is_unmapping, __ATOMIC_ACQUIRE)) usleep(100);
  pthread_t thread;
  pthread_create(&thread, NULL, end_at_once, NULL);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void stack_cache_in_munmap(void) {
  /* They are there before any thread has the lock that their own creation needs. */
  victim_thread* creators[] = {hang_thread("creator-1", create_thread, NULL), hang_thread("creator-2", create_thread, NULL),
                               hang_thread("creator-3", create_thread, NULL)};
  static victim_thread large;
  victim_start(&large, "large", end_at_once, NULL, LARGE_STACK_BYTES);
  hang_thread_in(SYS_munmap, "unmapper", join_large, &large);
  __atomic_store_n(&is_unmapping, 1, __ATOMIC_RELEASE);
  for (size_t i = 0; i < sizeof creators / sizeof creators[0]; ++i) victim_await_syscall(creators[i]->tid, SYS_futex);
}

static const hang_mode kModes[] = {
    {"barrier_one_missing", barrier_one_missing},
    {"destroyed_with_waiter", destroyed_with_waiter},
    {"join_cycle", join_cycle},
    {"join_with_lock", join_with_lock},
    {"lost_wakeup", lost_wakeup},
    {"malloc_in_handler", malloc_in_handler},
    {"mixed_cycle", mixed_cycle},
    {"once_initializer_asleep", once_initializer_asleep},
    {"once_recursion", once_recursion},
    {"owner_in_condition_wait", owner_in_condition_wait},
    {"rwlock_cycle", rwlock_cycle},
    {"rwlock_read_again", rwlock_read_again},
    {"rwlock_reader_asleep", rwlock_reader_asleep},
    {"rwlock_upgrade", rwlock_upgrade},
    {"rwlock_writer_asleep", rwlock_writer_asleep},
    {"semaphore", semaphore},
    {"stack_cache_in_munmap", stack_cache_in_munmap},
    {"time_zone_after_fork", time_zone_after_fork},
    {"time_zone_in_handler", time_zone_in_handler},
};

int main(int argc, char** argv) { return hang_run(argc, argv, kModes, sizeof kModes / sizeof kModes[0]); }
