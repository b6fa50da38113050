#include "agent/helper/life.h"

#include <errno.h>
#include <stdatomic.h>

#include "agent/crash/crash_link.h"
#include "agent/helper/clone.h"
#include "agent/signals/dump_signal.h"
#include "agent/sys/filtered.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/kernel.h"
#include "agent/sys/lock.h"

#define MS 1000000ull
#define END_WITHIN_NS (1000 * MS)
/* How long it may go on with what it does for the daemon: a dump, of which this thread is a part. */
#define FINISH_WITHIN_NS (50 * MS)
#define LOOK_NS (5 * MS)
#define LEAVES_NS 20000u

static STACKD_AT_FORK struct stackd_lock lock;
static void (*allowed)(void); /* what it does; NULL: it may not be started yet */
static bool is_wanted;        /* from the first start on */
static uint32_t holds;
static uint32_t tid;       /* a futex word, which the kernel clears when the thread has ended */
static uint32_t is_to_end; /* a futex word */
static uint32_t is_to_hurry;
static bool is_leaving; /* the helper, by itself */
static bool is_new;     /* the helper has not waited for anything so far */
static const struct stackd_own_fd* _Atomic wake_read_end;
static const struct stackd_own_fd* _Atomic wake_write_end;

static void run(void) {
  static const char name[16] = "stackd-agent";
  is_new = true;
  stackd_syscall6(SYS_prctl, PR_SET_NAME, (long)name, 0, 0, 0, 0);
  allowed();
}

STACKD_HANDLER static bool may_start(void) {
  return __atomic_load_n(&allowed, __ATOMIC_ACQUIRE) != NULL && __atomic_load_n(&holds, __ATOMIC_ACQUIRE) == 0 &&
         !stackd_is_filtered();
}

/* Waits for a helper that leaves, some microseconds, unless it stays. */
STACKD_HANDLER static void await_leave(void) {
  uint32_t leaving;
  while ((leaving = __atomic_load_n(&tid, __ATOMIC_ACQUIRE)) != 0 && __atomic_load_n(&is_leaving, __ATOMIC_SEQ_CST)) {
    struct timespec timeout = stackd_timespec(LOOK_NS);
    stackd_futex_wait(&tid, leaving, &timeout, 0);
  }
}

/* Called with the lock. */
STACKD_HANDLER static int start(void) {
  await_leave();
  if (__atomic_load_n(&tid, __ATOMIC_ACQUIRE) != 0) return 0;
  if (!may_start()) return -EPERM;
  __atomic_store_n(&is_leaving, false, __ATOMIC_RELAXED);
  __atomic_store_n(&is_to_end, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&is_to_hurry, 0, __ATOMIC_RELAXED);
  uint64_t mask = stackd_set_signal_mask(~0ull); /* which the thread inherits */
  int error = stackd_clone_thread(run, &tid);
  stackd_set_signal_mask(mask);
  return error;
}

/* The kernel clears its number some microseconds before it is no part of the process any more. */
static bool has_left(uint32_t former) { return stackd_syscall6(SYS_tgkill, stackd_getpid(), former, 0, 0, 0, 0) == -ESRCH; }

static void end_wait(void) {
  const struct stackd_own_fd* end = atomic_load(&wake_write_end);
  int fd = end != NULL ? stackd_own_fd_get(end) : -1;
  const char byte = 0;
  if (fd >= 0) stackd_syscall6(SYS_write, fd, (long)&byte, sizeof(byte), 0, 0, 0);
}

/* Called with the lock, so that one thread alone waits for this. */
static void end(uint32_t ending) {
  uint64_t begin_ns = stackd_clock_ns(CLOCK_MONOTONIC);
  uint64_t mask = stackd_set_signal_mask(~(1ull << (stackd_handler_signal() - 1)) & ~(1ull << (SIGSYS - 1)));
  __atomic_store_n(&is_to_end, 1, __ATOMIC_SEQ_CST);
  stackd_futex_wake(&is_to_end, FUTEX_PRIVATE_FLAG);
  end_wait();
  for (;;) {
    uint32_t running = __atomic_load_n(&tid, __ATOMIC_ACQUIRE);
    uint64_t waited_ns = stackd_clock_ns(CLOCK_MONOTONIC) - begin_ns;
    if ((running == 0 && has_left(ending)) || waited_ns >= END_WITHIN_NS) break;
    if (waited_ns >= FINISH_WITHIN_NS) __atomic_store_n(&is_to_hurry, 1, __ATOMIC_RELAXED);
    if (running == 0) {
      stackd_pause_ns(LEAVES_NS);
      continue;
    }
    struct timespec timeout = stackd_timespec(LOOK_NS);
    stackd_futex_wait(&tid, running, &timeout, 0);
  }
  stackd_set_signal_mask(mask);
}

void stackd_helper_allow(void (*run_helper)(void)) { __atomic_store_n(&allowed, run_helper, __ATOMIC_RELEASE); }

int stackd_helper_start(void) {
  /* Either the helper sees this before it leaves, or it is seen here to leave. */
  __atomic_store_n(&is_wanted, true, __ATOMIC_SEQ_CST);
  /* No system call where there is nothing to do: a filter of the program's may forbid it. */
  bool is_there = __atomic_load_n(&tid, __ATOMIC_ACQUIRE) != 0;
  if (is_there && !__atomic_load_n(&is_leaving, __ATOMIC_SEQ_CST)) return 0;
  if (!may_start()) return -EPERM;
  uint64_t mask = stackd_lock_and_block(&lock);
  int error = start();
  stackd_unlock_and_restore(&lock, mask);
  return error;
}

void stackd_crash_start_helper(void) {
  /* The crash is not to wait for a helper that cannot be. */
  if (stackd_helper_start() != 0) stackd_crash_helper_has_tried();
}

void stackd_helper_hold(void) {
  uint64_t mask = stackd_lock_and_block(&lock);
  __atomic_fetch_add(&holds, 1, __ATOMIC_SEQ_CST);
  uint32_t running = __atomic_load_n(&tid, __ATOMIC_ACQUIRE);
  if (running != 0) end(running);
  stackd_unlock_and_restore(&lock, mask);
}

void stackd_helper_release(void) {
  uint64_t mask = stackd_lock_and_block(&lock);
  __atomic_fetch_sub(&holds, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&is_wanted, __ATOMIC_RELAXED)) start();
  stackd_unlock_and_restore(&lock, mask);
}

bool stackd_helper_stand_in(uint64_t* mask) {
  if (!may_start()) return false;
  *mask = stackd_set_signal_mask(~(1ull << (SIGSYS - 1)));
  if (stackd_try_lock(&lock)) {
    if (may_start() && __atomic_load_n(&tid, __ATOMIC_ACQUIRE) == 0) return true;
    stackd_unlock(&lock);
  }
  stackd_set_signal_mask(*mask);
  return false;
}

void stackd_helper_step_back(uint64_t mask) { stackd_unlock_and_restore(&lock, mask); }

bool stackd_helper_was_wanted(void) { return __atomic_load_n(&is_wanted, __ATOMIC_RELAXED); }

void stackd_helper_life_reset_after_fork(void) {
  stackd_lock_reset(&lock);
  STACKD_RESET(is_wanted, false);
  STACKD_RESET(holds, 0);
  STACKD_RESET(wake_read_end, NULL);
  STACKD_RESET(wake_write_end, NULL);
  STACKD_RESET(tid, 0);
  STACKD_RESET(is_leaving, false);
}

void stackd_helper_begin_leave(void) {
  __atomic_store_n(&is_wanted, false, __ATOMIC_RELAXED);
  __atomic_store_n(&is_leaving, true, __ATOMIC_SEQ_CST);
}

bool stackd_helper_leave(void) {
  return !__atomic_load_n(&is_wanted, __ATOMIC_SEQ_CST) && __atomic_load_n(&is_to_end, __ATOMIC_SEQ_CST) == 0;
}

void stackd_helper_stay(void) {
  __atomic_store_n(&is_wanted, true, __ATOMIC_RELAXED);
  __atomic_store_n(&is_leaving, false, __ATOMIC_SEQ_CST);
}

uint32_t stackd_helper_tid(void) { return __atomic_load_n(&tid, __ATOMIC_ACQUIRE); }

const uint32_t* stackd_helper_is_to_end(void) { return &is_to_end; }

const uint32_t* stackd_helper_is_to_hurry(void) { return &is_to_hurry; }

void stackd_helper_rest(uint64_t duration_ns) {
  struct timespec duration = stackd_timespec(duration_ns);
  stackd_futex_wait(&is_to_end, 0, &duration, FUTEX_PRIVATE_FLAG);
}

void stackd_helper_wake_by(const struct stackd_own_fd* read_end, const struct stackd_own_fd* write_end) {
  atomic_store(&wake_read_end, read_end);
  atomic_store(&wake_write_end, write_end);
}

/* Takes what woke it. */
static void drain(int fd) {
  char bytes[16];
  while (stackd_read(fd, bytes, sizeof(bytes)) > 0) continue;
}

/* Once in each life. A program that changes its rights again and again would else end each helper before it has answered
 * anything. */
static bool is_ready_at_once(int fd, short events) {
  struct pollfd look = {fd, events, 0};
  const struct timespec no_time = {0, 0};
  if (!is_new) return false;
  is_new = false;
  return stackd_ppoll(&look, 1, &no_time) > 0;
}

int stackd_helper_poll(int fd, short events, uint64_t timeout_ns) {
  if (is_ready_at_once(fd, events)) return 0;
  const uint64_t begin_ns = stackd_clock_ns(CLOCK_MONOTONIC);
  for (;;) {
    if (__atomic_load_n(&is_to_end, __ATOMIC_SEQ_CST) != 0) return -EINTR;
    const struct stackd_own_fd* end = atomic_load(&wake_read_end);
    int wake_fd = end != NULL ? stackd_own_fd_get(end) : -1;
    uint64_t left_ns = timeout_ns;
    if (timeout_ns != UINT64_MAX) {
      uint64_t waited_ns = stackd_clock_ns(CLOCK_MONOTONIC) - begin_ns;
      left_ns = waited_ns < timeout_ns ? timeout_ns - waited_ns : 0;
    }
    bool is_slice = wake_fd < 0 && left_ns > LOOK_NS;
    struct timespec wait = stackd_timespec(is_slice ? LOOK_NS : left_ns);
    struct pollfd fds[] = {{fd, events, 0}, {wake_fd, POLLIN, 0}};
    int ready = stackd_ppoll(fds, 2, left_ns == UINT64_MAX && !is_slice ? NULL : &wait);
    if (ready < 0 && ready != -EINTR) return ready;
    if (fds[1].revents != 0) drain(wake_fd);
    if (ready > 0 && fds[0].revents != 0) return 0;
    if (ready == 0 && !is_slice) return -ETIMEDOUT;
  }
}
