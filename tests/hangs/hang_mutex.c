/* Mutexes of the C library: who waits for whom, and owners that do not let go. */
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include "tests/hangs/hang.h"

#define MAX_CYCLE 10

static pthread_mutex_t accounts_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t orders_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t stock_lock = PTHREAD_MUTEX_INITIALIZER;

/* --- cycles --- */

typedef struct place {
  pthread_mutex_t* own;
  pthread_mutex_t* next;
  pthread_barrier_t* all_hold_one;
} place;

VICTIM_NOINLINE static void* take_own_then_next(void* argument) {
  place* at = argument;
  pthread_mutex_lock(at->own);
  pthread_barrier_wait(at->all_hold_one);
  hang_pass();
  pthread_mutex_lock(at->next);
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void make_cycle(pthread_mutex_t* const* locks, int count) {
  static pthread_barrier_t all_hold_one;
  static place places[MAX_CYCLE];
  static char names[MAX_CYCLE][16];
  victim_thread* threads[MAX_CYCLE];
  pthread_barrier_init(&all_hold_one, NULL, (unsigned)count);
  for (int i = 0; i < count; ++i) {
    places[i] = (place){locks[i], locks[(i + 1) % count], &all_hold_one};
    snprintf(names[i], sizeof names[i], "cycle-%d", i);
    threads[i] = hang_thread(names[i], take_own_then_next, &places[i]);
  }
  hang_await_passed(count);
  for (int i = 0; i < count; ++i) victim_await_syscall(threads[i]->tid, SYS_futex);
}

static void cycle_2(void) { make_cycle((pthread_mutex_t*[]){&accounts_lock, &orders_lock}, 2); }

static void cycle_3(void) { make_cycle((pthread_mutex_t*[]){&accounts_lock, &orders_lock, &stock_lock}, 3); }

static void cycle_10_on_heap(void) {
  pthread_mutex_t* locks[MAX_CYCLE];
  for (int i = 0; i < MAX_CYCLE; ++i) {
    locks[i] = malloc(sizeof *locks[i]);
    pthread_mutex_init(locks[i], NULL);
  }
  make_cycle(locks, MAX_CYCLE);
}

static void init_mutex(pthread_mutex_t* mutex, int type, int robust, int protocol) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, type);
  pthread_mutexattr_setrobust(&attributes, robust);
  pthread_mutexattr_setprotocol(&attributes, protocol);
  victim_check(pthread_mutex_init(mutex, &attributes) == 0, "pthread_mutex_init");
}

static void cycle_of(int type, int robust, int protocol) {
  init_mutex(&accounts_lock, type, robust, protocol);
  init_mutex(&orders_lock, type, robust, protocol);
  cycle_2();
}

static void cycle_recursive(void) { cycle_of(PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE); }
static void cycle_errorcheck(void) { cycle_of(PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE); }
static void cycle_adaptive(void) { cycle_of(PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE); }
static void cycle_robust(void) { cycle_of(PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE); }
/* The kernel sees this cycle as well: it refuses the last lock, and the C library has that thread wait for ever. */
static void cycle_priority_inheritance(void) {
  cycle_of(PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_INHERIT);
}

/* --- one thread alone --- */

VICTIM_NOINLINE static void* lock_twice(void* mutex) {
  pthread_mutex_lock(mutex);
  pthread_mutex_lock(mutex);
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void self_normal(void) { hang_thread_in(SYS_futex, "selfish", lock_twice, &accounts_lock); }

static void self_robust(void) {
  init_mutex(&accounts_lock, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
  hang_thread_in(SYS_futex, "selfish", lock_twice, &accounts_lock);
}

/* A mutex that its owner may ask for twice, and what it is told the second time. */
static struct {
  pthread_mutex_t mutex;
  int answer;
} asked_twice;

VICTIM_NOINLINE static void* lock_twice_then_sleep(void* unused) {
  pthread_mutex_lock(&asked_twice.mutex);
  victim_check(pthread_mutex_lock(&asked_twice.mutex) == asked_twice.answer, "second lock");
  hang_sleep();
  return unused;
}

static void ask_twice(int type, int answer) {
  init_mutex(&asked_twice.mutex, type, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
  asked_twice.answer = answer;
  hang_thread_in(SYS_clock_nanosleep, "careful", lock_twice_then_sleep, NULL);
}

static void self_errorcheck(void) { ask_twice(PTHREAD_MUTEX_ERRORCHECK, EDEADLK); }
static void self_recursive(void) { ask_twice(PTHREAD_MUTEX_RECURSIVE, 0); }

/* --- an owner that does something else --- */

VICTIM_NOINLINE static void* take_accounts(void* unused) {
  pthread_mutex_lock(&accounts_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void add_waiters(int count) {
  static char names[500][16];
  victim_thread* threads[500];
  for (int i = 0; i < count; ++i) {
    snprintf(names[i], sizeof names[i], "waiter-%d", i);
    threads[i] = hang_thread(names[i], take_accounts, NULL);
  }
  for (int i = 0; i < count; ++i) victim_await_syscall(threads[i]->tid, SYS_futex);
}

VICTIM_NOINLINE static void* leave_without_unlock(void* unused) {
  pthread_mutex_lock(&accounts_lock);
  return unused;
}

static void abandoned(void) {
  victim_thread* leaver = hang_thread("leaver", leave_without_unlock, NULL);
  pthread_join(leaver->handle, NULL);
  add_waiters(2);
}

/* The next one is told, and can repair what the lock protects. */
static void robust_owner_died(void) {
  init_mutex(&accounts_lock, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
  pthread_join(hang_thread("leaver", leave_without_unlock, NULL)->handle, NULL);
  victim_check(pthread_mutex_lock(&accounts_lock) == EOWNERDEAD, "EOWNERDEAD");
  pthread_mutex_consistent(&accounts_lock);
  pthread_mutex_unlock(&accounts_lock);
}

VICTIM_NOINLINE static void* sleep_with_lock(void* unused) {
  pthread_mutex_lock(&accounts_lock);
  hang_sleep();
  return unused;
}

static void owner_asleep(void) {
  hang_thread_in(SYS_clock_nanosleep, "owner", sleep_with_lock, NULL);
  add_waiters(3);
}

VICTIM_NOINLINE static void* take_accounts_in_time(void* unused) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 3600;
  pthread_mutex_timedlock(&accounts_lock, &end);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void owner_asleep_timed_waiter(void) {
  hang_thread_in(SYS_clock_nanosleep, "owner", sleep_with_lock, NULL);
  hang_thread_in(SYS_futex, "patient", take_accounts_in_time, NULL);
}

static int answers[2];

VICTIM_NOINLINE static void* read_answer_with_lock(void* unused) {
  pthread_mutex_lock(&accounts_lock);
  char answer;
  victim_check(read(answers[0], &answer, 1) >= 0, "read");
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void owner_reads_socket(void) {
  victim_check(socketpair(AF_UNIX, SOCK_STREAM, 0, answers) == 0, "socketpair");
  hang_thread_in(SYS_read, "owner", read_answer_with_lock, NULL);
  add_waiters(3);
}

/* The owner of what the first ones wait for waits itself, for one that sleeps. */
VICTIM_NOINLINE static void* take_accounts_then_orders(void* unused) {
  pthread_mutex_lock(&accounts_lock);
  pthread_mutex_lock(&orders_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

VICTIM_NOINLINE static void* sleep_with_orders(void* unused) {
  pthread_mutex_lock(&orders_lock);
  hang_sleep();
  return unused;
}

static void chain(void) {
  hang_thread_in(SYS_clock_nanosleep, "sleeper", sleep_with_orders, NULL);
  hang_thread_in(SYS_futex, "middle", take_accounts_then_orders, NULL);
  add_waiters(3);
}

static int holds_lock;

VICTIM_NOINLINE static void* compute_with_lock(void* unused) {
  pthread_mutex_lock(&accounts_lock);
  __atomic_store_n(&holds_lock, 1, __ATOMIC_RELEASE);
  hang_compute();
  return unused;
}

static void convoy_500(void) {
  hang_thread("owner", compute_with_lock, NULL);
  while (!__atomic_load_n(&holds_lock, __ATOMIC_ACQUIRE)) usleep(100);
  add_waiters(500);
}

/* --- words that say what is not true --- */

/* As after a use of freed memory: locked, by an owner that cannot be a thread. */
static void owner_is_nonsense(void) {
  accounts_lock.__data.__lock = 2;
  accounts_lock.__data.__owner = 0x41414141;
  accounts_lock.__data.__nusers = 0x41414141;
  add_waiters(2);
}

/* The child has the lock as it was, and not the thread that could release it. */
static void fork_with_lock(void) {
  hang_thread_in(SYS_clock_nanosleep, "owner", sleep_with_lock, NULL);
  pid_t child = fork();
  victim_check(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    take_accounts(NULL);
    _exit(1);
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/syscall", (int)child);
  victim_await_syscall_file(path, SYS_futex);
  printf("child %d\n", (int)child);
  fflush(stdout);
}

/* --- a number that is used again, in a PID namespace of its own --- */

/* The kernel gives the next thread the number behind this one. */
static void give_next(pid_t tid) {
  FILE* last = fopen("/proc/sys/kernel/ns_last_pid", "w");
  victim_check(last != NULL && fprintf(last, "%d", (int)tid - 1) > 0 && fclose(last) == 0, "ns_last_pid");
}

VICTIM_NOINLINE static void* read_answer(void* unused) {
  char answer;
  victim_check(read(answers[0], &answer, 1) >= 0, "read");
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

/* A thread ends with the lock that others wait for. On request another one begins, with its number. */
static void use_number_again(void* (*body)(void*), long number) {
  victim_check(socketpair(AF_UNIX, SOCK_STREAM, 0, answers) == 0, "socketpair");
  victim_thread* leaver = hang_thread("leaver", leave_without_unlock, NULL);
  pid_t tid = leaver->tid;
  pthread_join(leaver->handle, NULL);
  add_waiters(2);
  hang_ready();
  char line[64];
  victim_check(fgets(line, sizeof line, stdin) != NULL, "fgets");
  give_next(tid);
  victim_check(hang_thread_in(number, "innocent", body, NULL)->tid == tid, "the number was not used again");
}

static void tid_reused(void) { use_number_again(read_answer, SYS_read); }
static void tid_reused_by_waiter(void) { use_number_again(take_accounts, SYS_futex); }

static const hang_mode kModes[] = {
    {"abandoned", abandoned},
    {"chain", chain},
    {"convoy_500", convoy_500},
    {"cycle_2", cycle_2},
    {"cycle_3", cycle_3},
    {"cycle_10_on_heap", cycle_10_on_heap},
    {"cycle_adaptive", cycle_adaptive},
    {"cycle_errorcheck", cycle_errorcheck},
    {"cycle_priority_inheritance", cycle_priority_inheritance},
    {"cycle_recursive", cycle_recursive},
    {"cycle_robust", cycle_robust},
    {"fork_with_lock", fork_with_lock},
    {"owner_asleep", owner_asleep},
    {"owner_asleep_timed_waiter", owner_asleep_timed_waiter},
    {"owner_is_nonsense", owner_is_nonsense},
    {"owner_reads_socket", owner_reads_socket},
    {"robust_owner_died", robust_owner_died},
    {"self_errorcheck", self_errorcheck},
    {"self_normal", self_normal},
    {"self_recursive", self_recursive},
    {"self_robust", self_robust},
    {"tid_reused", tid_reused},
    {"tid_reused_by_waiter", tid_reused_by_waiter},
};

int main(int argc, char** argv) { return hang_run(argc, argv, kModes, sizeof kModes / sizeof kModes[0]); }
