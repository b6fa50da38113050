#include "agent/signals/dump_signal.h"

static int signal_in_use;
/* Not asked for in the handler: a sandbox may have an answer of its own. In a child of vfork() it is the parent's, and the
 * parent does not send such a signal to its child. */
static int32_t process;

void stackd_dump_signal_init(int dump_signal) {
  signal_in_use = dump_signal;
  process = stackd_getpid();
}

void stackd_dump_signal_reset_after_fork(void) { process = stackd_getpid(); }

int stackd_handler_signal(void) { return signal_in_use; }

bool stackd_is_dump_signal(const siginfo_t* info) { return info->si_code == STACKD_SI_CODE && info->si_pid == process; }

int stackd_send_dump_signal(int signal_number, int32_t pid, uint32_t tid, uint32_t index, uint32_t seq) {
  siginfo_t info = {0};
  info.si_signo = signal_number;
  info.si_code = STACKD_SI_CODE;
  info.si_pid = pid;
  info.si_value.sival_ptr = (void*)((uint64_t)seq << 32 | index);
  return (int)stackd_syscall6(SYS_rt_tgsigqueueinfo, pid, (long)tid, signal_number, (long)&info, 0, 0);
}
