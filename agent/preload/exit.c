/* exit() and its relatives. A handler of the program's that calls one does not recover. So the crash that it was called for
 * is recorded now, before the functions that exit() runs can hang or crash in their turn. Anywhere else the call says that
 * the process ends as it wants to. Records of faults that some handler is dealing with do not count. But if another thread
 * has crashed, the process ends of that: it would not have come here. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/crash/crash.h"
#include "agent/install/install.h"
#include "agent/preload/preload.h"
#include "agent/signals/sigchain.h"

typedef void exit_fn(int);
typedef void abort_fn(void);

static exit_fn* real_exit;
static exit_fn* real_immediate_exit;
static exit_fn* real_quick_exit;
static abort_fn* real_abort;

void stackd_preload_find_exit(void) {
  STACKD_BEHIND(real_exit, "exit");
  STACKD_BEHIND(real_immediate_exit, "_exit");
  STACKD_BEHIND(real_quick_exit, "quick_exit");
  STACKD_BEHIND(real_abort, "abort");
}

STACKD_EXPORT void exit(int status) {
  stackd_crash_before_end();
  STACKD_BEHIND(real_exit, "exit")(status);
  __builtin_unreachable();
}

STACKD_EXPORT void _exit(int status) {
  stackd_crash_before_end();
  STACKD_BEHIND(real_immediate_exit, "_exit")(status);
  __builtin_unreachable();
}

STACKD_EXPORT void _Exit(int status) { _exit(status); }

STACKD_EXPORT void quick_exit(int status) {
  stackd_crash_before_end();
  STACKD_BEHIND(real_quick_exit, "quick_exit")(status);
  __builtin_unreachable();
}

/* From 2.41 on glibc does not unblock SIGABRT before it raises it, but kills the process where it stays blocked. It does in
 * a handler that has all signals blocked, which is how Java's VM ends. Where the default action is all that would come of
 * it, only the agent sees it being unblocked. */
STACKD_EXPORT void abort(void) {
  if (stackd_has_taken(SIGABRT) && stackd_chain_is_default(SIGABRT)) {
    uint64_t abort_alone = 1ull << (SIGABRT - 1);
    stackd_syscall6(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&abort_alone, 0, 8, 0, 0);
  }
  STACKD_BEHIND(real_abort, "abort")();
  __builtin_unreachable();
}

/* main() has returned. */
__attribute__((destructor)) static void on_unload(void) { stackd_crash_before_end(); }
