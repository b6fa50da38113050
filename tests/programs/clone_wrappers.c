/* Threads in glibc's assembler wrappers. One waits in vfork() for its child (the kernel keeps it from signals meanwhile).
 * One was made by clone() itself and has no pthread. */
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "tests/programs/victim.h"

static int silent_pipe[2];

VICTIM_NOINLINE static void* in_vfork(void* unused) {
  pid_t child = vfork();
  if (child == 0) {
    /* Shares our memory: nothing but system calls. Dies with its parent. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char byte;
    syscall(SYS_read, silent_pipe[0], &byte, 1);
    _exit(0);
  }
  return unused;
}

VICTIM_NOINLINE static void block_in_clone(void) {
  char byte;
  while (syscall(SYS_read, silent_pipe[0], &byte, 1) < 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
}

/* Has no TLS of its own: it shares main's, and main is blocked. */
static int clone_main(void* unused) {
  (void)unused;
  block_in_clone();
  VICTIM_NOT_A_TAIL_CALL();
  return 0;
}

int main(void) {
  victim_check(pipe(silent_pipe) == 0, "pipe");
  static victim_thread thread;
  victim_start(&thread, "vfork", in_vfork, NULL, 256 << 10);
  victim_await_syscall(thread.tid, SYS_vfork);

  size_t bytes = 256 << 10;
  char* stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  victim_check(stack != MAP_FAILED, "mmap");
  pid_t tid = clone(clone_main, stack + bytes,
                    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, NULL);
  victim_check(tid > 0, "clone");
  victim_await_syscall(tid, SYS_read);
  victim_ready();
  victim_wait_for_ever();
}
