#include "agent/crash/crash_link.h"

#include <stdatomic.h>

#include "agent/sys/fork_reset.h"
#include "agent/sys/futex_word.h"
#include "stackd/wire.h"

/* For the daemon, to load what is mapped: some milliseconds. */
#define MODULES_NS 50000000ull

static const struct stackd_crash_link* _Atomic current_link;
static const struct stackd_own_fd* _Atomic current_spool;
static uint32_t link_users;
static uint32_t helper_has_tried; /* a futex word */
static uint32_t has_asked;        /* for its modules to be loaded */

void stackd_crash_set_link(const struct stackd_crash_link* link) { atomic_store(&current_link, link); }

void stackd_crash_set_spool(const struct stackd_own_fd* spool) { atomic_store(&current_spool, spool); }

bool stackd_crash_is_using_link(void) { return __atomic_load_n(&link_users, __ATOMIC_SEQ_CST) != 0; }

const struct stackd_crash_link* stackd_crash_link_acquire(void) {
  __atomic_fetch_add(&link_users, 1, __ATOMIC_SEQ_CST);
  return atomic_load(&current_link);
}

void stackd_crash_link_release(void) { __atomic_fetch_sub(&link_users, 1, __ATOMIC_SEQ_CST); }

int stackd_crash_spool_fd(void) {
  const struct stackd_own_fd* spool = atomic_load(&current_spool);
  return spool != NULL ? stackd_own_fd_get(spool) : -1;
}

void stackd_crash_helper_has_tried(void) { stackd_futex_word_set(&helper_has_tried, 1); }

void stackd_crash_helper_leaves(void) { __atomic_store_n(&helper_has_tried, 0, __ATOMIC_SEQ_CST); }

void stackd_crash_await_helper(uint64_t duration_ns) {
  if (__atomic_load_n(&helper_has_tried, __ATOMIC_SEQ_CST) != 0) return;
  uint64_t end_ns = stackd_clock_ns(CLOCK_MONOTONIC) + duration_ns;
  stackd_crash_start_helper();
  stackd_futex_word_await(&helper_has_tried, 1, end_ns);
}

bool stackd_crash_link_tell(const struct stackd_crash_link* link, uint32_t type) {
  stackd_ring_doorbell(link->ring);
  int socket = stackd_own_fd_get(&link->socket);
  if (socket < 0) return false;
  struct stackd_message_header message = {type, sizeof(message)};
  long sent = stackd_syscall6(SYS_sendto, socket, (long)&message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
  /* A full socket: the daemon may yet look at the ring. */
  return sent >= 0 || sent == -EAGAIN;
}

bool stackd_crash_link_is_over(const struct stackd_crash_link* link) {
  int socket = stackd_own_fd_get(&link->socket);
  struct pollfd look = {socket, POLLRDHUP, 0};
  struct timespec no_time = {0, 0};
  return socket < 0 || stackd_syscall6(SYS_ppoll, (long)&look, 1, (long)&no_time, 0, 0, 0) != 0;
}

/* A handler may end the process without our seeing it: Go's does, by a system call of its own. Then no process is left that
 * can tell what was mapped. In the first second of a process the daemon has not asked by itself, so it is to ask now. Once:
 * a daemon that is stopped does not answer for as long as that lasts. */
void stackd_crash_have_modules_loaded(const struct stackd_crash_link* link) {
  uint32_t* known = &link->ring->header->modules_known;
  if (__atomic_load_n(known, __ATOMIC_ACQUIRE) != 0 || __atomic_exchange_n(&has_asked, 1, __ATOMIC_RELAXED) != 0) return;
  if (!stackd_crash_link_tell(link, STACKD_MSG_FAULT)) return;
  uint64_t end_ns = stackd_clock_ns(CLOCK_MONOTONIC) + MODULES_NS;
  while (__atomic_load_n(known, __ATOMIC_ACQUIRE) == 0 && !stackd_crash_link_is_over(link)) {
    uint64_t now_ns = stackd_clock_ns(CLOCK_MONOTONIC);
    if (now_ns >= end_ns) return;
    uint64_t left_ns = end_ns - now_ns;
    struct timespec timeout = stackd_timespec(left_ns < STACKD_CRASH_LOOK_NS ? left_ns : STACKD_CRASH_LOOK_NS);
    stackd_futex_wait(known, 0, &timeout, 0);
  }
}

void stackd_crash_make_known(uint64_t duration_ns) {
  stackd_crash_await_helper(duration_ns);
  const struct stackd_crash_link* link = stackd_crash_link_acquire();
  if (link != NULL) stackd_crash_have_modules_loaded(link);
  stackd_crash_link_release();
}

void stackd_crash_link_reset_after_fork(void) {
  STACKD_RESET(current_link, NULL);
  STACKD_RESET(current_spool, NULL);
  STACKD_RESET(link_users, 0);
  STACKD_RESET(helper_has_tried, 0);
  STACKD_RESET(has_asked, 0);
}
