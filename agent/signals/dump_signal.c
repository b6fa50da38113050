#include "agent/signals/dump_signal.h"

#include "agent/sys/process_id.h"

static int signal_in_use;

void stackd_dump_signal_init(int dump_signal) { signal_in_use = dump_signal; }

int stackd_handler_signal(void) { return signal_in_use; }

/* In a child of vfork() the pid is its parent's, and the parent does not send such a signal to its child. */
bool stackd_is_dump_signal(const siginfo_t* info) {
  return info->si_code == STACKD_SI_CODE && info->si_pid == stackd_kept_pid();
}

int stackd_send_dump_signal(int signal_number, int32_t pid, uint32_t tid, uint32_t index, uint32_t seq) {
  siginfo_t info = {0};
  info.si_signo = signal_number;
  info.si_code = STACKD_SI_CODE;
  info.si_pid = pid;
  info.si_value.sival_ptr = (void*)((uint64_t)seq << 32 | index);
  return (int)stackd_syscall6(SYS_rt_tgsigqueueinfo, pid, (long)tid, signal_number, (long)&info, 0, 0);
}
