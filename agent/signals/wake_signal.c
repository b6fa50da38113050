#include "agent/signals/wake_signal.h"

#include "agent/sys/syscalls.h"

static int bell_fd = -1;
static int signal_in_use = STACKD_WAKE_SIGNAL;

int stackd_wake_signal(void) { return __atomic_load_n(&signal_in_use, __ATOMIC_RELAXED); }

void stackd_wake_signal_use_second(void) { __atomic_store_n(&signal_in_use, STACKD_SECOND_WAKE_SIGNAL, __ATOMIC_RELAXED); }

void stackd_wake_signal_set_fd(int fd) { __atomic_store_n(&bell_fd, fd, __ATOMIC_RELAXED); }

bool stackd_is_wake_signal(const siginfo_t* info) {
  /* From an fd: POLL_IN to POLL_HUP. */
  bool from_fd = info->si_code >= POLL_IN && info->si_code <= POLL_HUP;
  return from_fd && info->si_fd == __atomic_load_n(&bell_fd, __ATOMIC_RELAXED);
}
