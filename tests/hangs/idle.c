/* Programs that are well: they wait for work, time, events or each other's results. No finding may call them hung. */
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ptrace.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/hangs/hang.h"

/* --- pools --- */

typedef struct pool {
  pthread_mutex_t mutex;
  pthread_cond_t work_came;
} pool;

VICTIM_NOINLINE static void* await_work(void* argument) {
  pool* self = argument;
  pthread_mutex_lock(&self->mutex);
  for (;;) pthread_cond_wait(&self->work_came, &self->mutex);
  return NULL;
}

static victim_thread* start_pool(pool* self, const char* name, int worker_count) {
  victim_thread* last = NULL;
  for (int i = 0; i < worker_count; ++i) last = hang_thread_in(SYS_futex, name, await_work, self);
  return last;
}

#define POOL_INITIALIZER {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER}
static pool fetchers = POOL_INITIALIZER, parsers = POOL_INITIALIZER, writers = POOL_INITIALIZER;

static void condition_variable_pools(void) {
  start_pool(&fetchers, "fetcher", 4);
  start_pool(&parsers, "parser", 8);
  start_pool(&writers, "writer", 2);
}

/* As many a main() ends. */
VICTIM_NOINLINE static void* await_end_of(void* thread) {
  pthread_join(((victim_thread*)thread)->handle, NULL);
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void joined_pool(void) { hang_thread_in(SYS_futex, "joiner", await_end_of, start_pool(&fetchers, "fetcher", 4)); }

static sem_t tasks;

VICTIM_NOINLINE static void* await_task(void* unused) {
  for (;;) sem_wait(&tasks);
  return unused;
}

static void semaphore_pool(void) {
  sem_init(&tasks, 0, 0);
  for (int i = 0; i < 4; ++i) hang_thread_in(SYS_futex, "taker", await_task, NULL);
}

/* --- events --- */

static int watched_eventfd;

VICTIM_NOINLINE static void* epoll_loop(void* unused) {
  int instance = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN};
  victim_check(epoll_ctl(instance, EPOLL_CTL_ADD, watched_eventfd, &event) == 0, "epoll_ctl");
  for (;;) epoll_wait(instance, &event, 1, -1);
  return unused;
}

VICTIM_NOINLINE static void* poll_loop(void* unused) {
  for (struct pollfd entry = {.fd = watched_eventfd, .events = POLLIN};;) poll(&entry, 1, -1);
  return unused;
}

VICTIM_NOINLINE static void* select_loop(void* unused) {
  for (;;) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(watched_eventfd, &set);
    select(watched_eventfd + 1, &set, NULL, NULL, NULL);
  }
  return unused;
}

static void event_loops(void) {
  watched_eventfd = eventfd(0, EFD_CLOEXEC);
  victim_check(watched_eventfd >= 0, "eventfd");
  hang_thread_in(SYS_epoll_wait, "epoller", epoll_loop, NULL);
  hang_thread_in(SYS_poll, "poller", poll_loop, NULL);
  hang_thread_in(SYS_pselect6, "selecter", select_loop, NULL);
}

static int listener;

VICTIM_NOINLINE static void* accept_loop(void* unused) {
  for (;;) accept(listener, NULL, NULL);
  return unused;
}

static int accepted;

VICTIM_NOINLINE static void* receive_loop(void* unused) {
  char request[64];
  for (;;) recv(accepted, request, sizeof request, 0);
  return unused;
}

static void server(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  victim_check(bind(listener, (struct sockaddr*)&address, size) == 0 && listen(listener, 1) == 0, "listen");
  getsockname(listener, (struct sockaddr*)&address, &size);
  int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  victim_check(connect(client, (struct sockaddr*)&address, size) == 0, "connect");
  accepted = accept(listener, NULL, NULL);
  hang_thread_in(SYS_recvfrom, "receiver", receive_loop, NULL);
  hang_thread_in(SYS_accept, "accepter", accept_loop, NULL);
}

static sigset_t awaited_signals;

VICTIM_NOINLINE static void* signal_loop(void* unused) {
  int number;
  for (;;) sigwait(&awaited_signals, &number);
  return unused;
}

static void signals(void) {
  sigemptyset(&awaited_signals);
  sigaddset(&awaited_signals, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &awaited_signals, NULL);
  hang_thread_in(SYS_rt_sigtimedwait, "signal-waiter", signal_loop, NULL);
}

/* --- time --- */

VICTIM_NOINLINE static void* timer_loop(void* unused) {
  int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  struct itimerspec hourly = {{3600, 0}, {3600, 0}};
  timerfd_settime(timer, 0, &hourly, NULL);
  uint64_t expirations;
  while (read(timer, &expirations, sizeof expirations) > 0) {
  }
  return unused;
}

VICTIM_NOINLINE static void* sleep_loop(void* unused) {
  hang_sleep();
  return unused;
}

VICTIM_NOINLINE static void* timed_wait_loop(void* argument) {
  pool* self = argument;
  pthread_mutex_lock(&self->mutex);
  for (;;) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 3600;
    pthread_cond_timedwait(&self->work_came, &self->mutex, &end);
  }
  return NULL;
}

static void timers(void) {
  hang_thread_in(SYS_read, "timer", timer_loop, NULL);
  hang_thread_in(SYS_clock_nanosleep, "sleeper-1", sleep_loop, NULL);
  hang_thread_in(SYS_clock_nanosleep, "sleeper-2", sleep_loop, NULL);
  hang_thread_in(SYS_futex, "flusher", timed_wait_loop, &writers);
}

/* --- at work --- */

VICTIM_NOINLINE static void* compute(void* unused) {
  hang_compute();
  return unused;
}

/* A stop of the world: all wait until one has done its work. */
static void garbage_collection_pause(void) {
  start_pool(&fetchers, "mutator", 16);
  hang_thread("collector", compute, NULL);
}

static void joined_computation(void) {
  hang_thread_in(SYS_futex, "joiner", await_end_of, hang_thread("worker", compute, NULL));
}

static unsigned completion;

VICTIM_NOINLINE static void* await_completion(void* unused) {
  for (;;) {
    syscall(SYS_futex, &completion, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, FUTEX_BITSET_MATCH_ANY);
  }
  return unused;
}

/* Parked on the completion of another's work: no lock, and no contention. */
static void completion_waiters(void) {
  hang_thread("worker", compute, NULL);
  for (int i = 0; i < 3; ++i) hang_thread_in(SYS_futex, "waiter", await_completion, NULL);
}

static pthread_mutex_t ledger_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long long ledger;

/* Much of its own, and a moment of what all share. */
VICTIM_NOINLINE static void* book(void* unused) {
  for (unsigned long long sum = 1;;) {
    for (int i = 0; i < 1000000; ++i) {
      sum = sum * 6364136223846793005u + 1;
      __asm__ volatile("" : "+r"(sum)); /* is needed, says this */
    }
    pthread_mutex_lock(&ledger_lock);
    ledger += sum;
    pthread_mutex_unlock(&ledger_lock);
  }
  return unused;
}

static void busy(void) {
  for (int i = 0; i < 4; ++i) hang_thread("booker", book, NULL);
}

static unsigned long long hits;

/* Nearly always in the kernel, to wait for a lock that goes from hand to hand or to wake who does. */
VICTIM_NOINLINE static void* hit(void* unused) {
  for (;;) {
    pthread_mutex_lock(&ledger_lock);
    ++hits;
    pthread_mutex_unlock(&ledger_lock);
  }
  return unused;
}

static void hot_mutex(void) {
  for (int i = 0; i < 3; ++i) hang_thread("hitter", hit, NULL);
}

/* --- in a debugger --- */

/* Stops each thread of its parent as a debugger does, says so, and stays. */
static void stop_parent(pid_t parent) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
  DIR* tasks_of_parent = opendir(path);
  victim_check(tasks_of_parent != NULL, "opendir");
  for (struct dirent* entry; (entry = readdir(tasks_of_parent)) != NULL;) {
    pid_t tid = atoi(entry->d_name);
    if (tid == 0) continue;
    victim_check(ptrace(PTRACE_SEIZE, tid, NULL, NULL) == 0, "PTRACE_SEIZE");
    victim_check(ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) == 0, "PTRACE_INTERRUPT");
    victim_check(waitpid(tid, NULL, __WALL) == tid, "waitpid");
  }
  hang_ready();
  hang_sleep();
}

/* Says "ready" once its threads are in place, and a second time, on a line from its standard input, when all are stopped.
 */
static void in_debugger(void) {
  start_pool(&fetchers, "fetcher", 4);
  pid_t parent = getpid();
  pid_t child = fork();
  victim_check(child >= 0, "fork");
  if (child != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  char line[8];
  if (read(STDIN_FILENO, line, sizeof line) > 0) stop_parent(parent);
  _exit(0);
}

static const hang_mode kModes[] = {
    {"busy", busy},
    {"completion_waiters", completion_waiters},
    {"condition_variable_pools", condition_variable_pools},
    {"event_loops", event_loops},
    {"garbage_collection_pause", garbage_collection_pause},
    {"hot_mutex", hot_mutex},
    {"in_debugger", in_debugger},
    {"joined_computation", joined_computation},
    {"joined_pool", joined_pool},
    {"semaphore_pool", semaphore_pool},
    {"server", server},
    {"signals", signals},
    {"timers", timers},
};

int main(int argc, char** argv) { return hang_run(argc, argv, kModes, sizeof kModes / sizeof kModes[0]); }
