#include "agent/helper/task_source.h"

#include <errno.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include "agent/signals/dump_signal.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/kernel.h"
#include "agent/sys/lock.h"
#include "agent/sys/private_fd.h"
#include "stackd/wire.h"

#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#define F_SEAL_WRITE 8
#endif

#define MS 1000000ull
/* The time beyond that of the tasks in which a source writes down what they said (stackd_task_source_fn), and some more. */
#define TELL_NS (200 * MS)

/* The states of the one question at a time:
 *
 *     IDLE --(helper)--> ASKED --(asker)--> TOLD --(helper)--> IDLE
 *                          `---(helper, too late)--> FORGOTTEN --(asker)--> IDLE
 */
enum question { IDLE, ASKED, TOLD, FORGOTTEN };

static struct stackd_lock lock; /* of the setting */
static bool has_asker;
static stackd_task_source_fn* source;
static unsigned* libc_thread_count;

static uint32_t question; /* enum question; a futex word */
static unsigned question_limit_ms;
static int answer;

void stackd_task_source_hide_from(unsigned* thread_count) { libc_thread_count = thread_count; }

static int write_all(int fd, const char* bytes, size_t size_bytes) {
  while (size_bytes > 0) {
    long written = stackd_syscall6(SYS_write, fd, (long)bytes, (long)size_bytes, 0, 0, 0);
    if (written == -EINTR) continue;
    if (written < 0) return (int)written;
    bytes += written;
    size_bytes -= (size_t)written;
  }
  return 0;
}

/* `receiver` is the int that is the answer. */
static void take_table(void* receiver, const void* bytes, unsigned long size_bytes) {
  int* result = receiver;
  if (*result != -ENODATA) return;
  if (size_bytes > STACKD_MAX_TASK_TABLE_BYTES) {
    *result = -E2BIG;
    return;
  }
  *result = (int)stackd_syscall6(SYS_memfd_create, (long)"stackd-tasks", MFD_CLOEXEC | MFD_ALLOW_SEALING, 0, 0, 0, 0);
  *result = stackd_own_fd_hold(*result, STACKD_FD_FILE);
  if (*result < 0) return;
  int error = write_all(*result, bytes, size_bytes);
  if (error == 0) error = stackd_fcntl(*result, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  if (error == 0) return;
  stackd_own_fd_drop(*result);
  *result = error;
}

static bool step(uint32_t from, uint32_t to) {
  bool done = __atomic_compare_exchange_n(&question, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  if (done) stackd_futex_wake(&question, FUTEX_PRIVATE_FLAG);
  return done;
}

static int ask_source(unsigned limit_ms) {
  int result = -ENODATA;
  stackd_task_source_fn* now = __atomic_load_n(&source, __ATOMIC_ACQUIRE);
  if (now != NULL) now(limit_ms, take_table, &result);
  return result;
}

__attribute__((noreturn)) static void* answer_questions(void* unused) {
  (void)unused;
  prctl(PR_SET_NAME, "stackd-agent", 0, 0, 0);
  for (;;) {
    uint32_t seen = __atomic_load_n(&question, __ATOMIC_SEQ_CST);
    if (seen != ASKED) {
      stackd_futex_wait(&question, seen, NULL, FUTEX_PRIVATE_FLAG);
      continue;
    }
    answer = ask_source(question_limit_ms);
    if (step(ASKED, TOLD)) continue;
    if (answer >= 0) stackd_own_fd_drop(answer);
    step(FORGOTTEN, IDLE);
  }
}

/* It answers dumps like any thread of the program; all other signals are for those. */
static int make_asker(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t blocked, before;
  sigfillset(&blocked);
  sigdelset(&blocked, stackd_handler_signal());
  sigprocmask(SIG_SETMASK, &blocked, &before);
  pthread_t thread;
  int error = pthread_create(&thread, &attributes, answer_questions, NULL);
  sigprocmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (error == 0 && libc_thread_count != NULL) __atomic_fetch_sub(libc_thread_count, 1, __ATOMIC_RELAXED);
  return -error;
}

int stackd_task_source_set(stackd_task_source_fn* use_source) {
  int error = 0;
  uint64_t mask = stackd_lock_and_block(&lock);
  if (use_source != NULL && !has_asker) {
    error = make_asker();
    has_asker = error == 0;
  }
  if (error == 0) __atomic_store_n(&source, use_source, __ATOMIC_RELEASE);
  stackd_unlock_and_restore(&lock, mask);
  return error;
}

bool stackd_task_source_is_set(void) { return __atomic_load_n(&source, __ATOMIC_ACQUIRE) != NULL; }

void stackd_task_source_reset_after_fork(void) {
  stackd_lock_reset(&lock);
  STACKD_RESET(has_asker, false);
  STACKD_RESET(source, NULL);
  STACKD_RESET(question, IDLE);
}

int stackd_task_table(unsigned limit_ms) {
  if (!stackd_task_source_is_set()) return -ENODATA;
  question_limit_ms = limit_ms;
  if (!step(IDLE, ASKED)) return -EBUSY;
  uint64_t end_ns = stackd_clock_ns(CLOCK_MONOTONIC) + limit_ms * MS + TELL_NS;
  for (;;) {
    if (__atomic_load_n(&question, __ATOMIC_SEQ_CST) == TOLD) {
      int told = answer;
      step(TOLD, IDLE);
      return told;
    }
    uint64_t now_ns = stackd_clock_ns(CLOCK_MONOTONIC);
    if (now_ns >= end_ns && step(ASKED, FORGOTTEN)) return -ENODATA;
    struct timespec left = stackd_timespec(now_ns < end_ns ? end_ns - now_ns : 0);
    stackd_futex_wait(&question, ASKED, &left, FUTEX_PRIVATE_FLAG);
  }
}
