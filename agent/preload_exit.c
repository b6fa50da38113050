/* exit() and its relatives: a handler of the program's that calls one does not recover, so the crash that it was called for
 * is recorded now, before the functions that exit() runs can hang or crash in their turn. Anywhere else they say that the
 * process ends as it wants to, and records of faults that some handler is dealing with do not count. But if another thread
 * has crashed, the process ends of that: it would not have come here. */
#include <stdlib.h>
#include <unistd.h>

#include "agent/crash.h"
#include "agent/preload.h"

typedef void exit_fn(int);

static exit_fn* real_exit;
static exit_fn* real_immediate_exit;
static exit_fn* real_quick_exit;

void stackd_preload_find_exit(void) {
  STACKD_BEHIND(real_exit, "exit");
  STACKD_BEHIND(real_immediate_exit, "_exit");
  STACKD_BEHIND(real_quick_exit, "quick_exit");
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

/* main() has returned. */
__attribute__((destructor)) static void on_unload(void) { stackd_crash_before_end(); }
