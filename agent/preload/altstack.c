/* sigaltstack(): a stack that several threads are given is no place for handlers that run in all of them at once
 * (shared_altstack.h). */
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>

#include "agent/install/install.h"
#include "agent/preload/preload.h"
#include "agent/signals/shared_altstack.h"
#include "agent/sys/syscalls.h"

STACKD_EXPORT int sigaltstack(const stack_t* restrict wanted, stack_t* restrict before) {
  bool passed_on = stackd_taken_signal() == 0;
  int error = passed_on ? (int)stackd_syscall6(SYS_sigaltstack, (long)wanted, (long)before, 0, 0, 0, 0)
                        : stackd_program_altstack(wanted, before);
  if (error == 0) return 0;
  errno = -error;
  return -1;
}
