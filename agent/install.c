#include "agent/install.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "agent/exec_gate.h"
#include "agent/handler.h"
#include "agent/helper_thread.h"
#include "agent/process.h"
#include "stackd/agent.h"

#define EXPORT __attribute__((visibility("default")))

static struct stackd_settings settings;
static struct stackd_process_files files = {{-1, 0, 0}, {-1, 0, 0}};
static atomic_int taken_signal;
static atomic_bool installing;

int stackd_taken_signal(void) { return atomic_load(&taken_signal); }

static int take_signal(stackd_sigaction_fn* set_action) {
  struct sigaction before;
  if (set_action(settings.dump_signal, NULL, &before) != 0) return -errno;
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return -EBUSY;
  stackd_handler_set_chain(&before);
  struct sigaction ours;
  memset(&ours, 0, sizeof(ours));
  ours.sa_sigaction = stackd_on_dump_signal;
  /* SA_ONSTACK: Go's threads have tiny stacks and require it. Faults stay deliverable: blocked, they would kill. */
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  /* Not sigfillset(): that leaves out glibc's own two signals, and a thread cancelled inside our handler would leave its
   * record unfinished for ever. */
  memset(&ours.sa_mask, 0xff, sizeof(ours.sa_mask));
  sigdelset(&ours.sa_mask, SIGSEGV);
  sigdelset(&ours.sa_mask, SIGBUS);
  return set_action(settings.dump_signal, &ours, NULL) == 0 ? 0 : -errno;
}

/* The child has one thread, no ring and none of our connection. It gets files of its own now, before it may change its user
 * id and lose the right to open them. */
static void after_fork_in_child(void) {
  stackd_own_fd_reset();
  stackd_exec_gate_reset();
  stackd_handler_reset_after_fork();
  stackd_helper_reset_after_fork();
  stackd_process_files_close(&files);
  stackd_process_files_open(&files);
  stackd_helper_start(&settings, &files, true);
}

int stackd_install_with(stackd_sigaction_fn* set_action) {
  if (atomic_exchange(&installing, true)) return 0;
  int error = stackd_settings_read(&settings);
  if (error != 0) return error;
  const char* name = getenv("STACKD_NAME");
  if (name != NULL) stackd_helper_set_name(name);
  stackd_own_fd_reset();
  stackd_exec_gate_reset();
  stackd_handler_init(stackd_filter_choose());
  error = take_signal(set_action);
  if (error != 0) return error;
  atomic_store(&taken_signal, settings.dump_signal);
  stackd_process_files_open(&files);
  /* An allocator registers its own fork handlers when it is first used; in the child they must run before ours, which
   * creates a thread and so allocates. */
  free(malloc(1));
  error = -pthread_atfork(NULL, NULL, after_fork_in_child);
  return error != 0 ? error : stackd_helper_start(&settings, &files, false);
}

EXPORT int stackd_install(void) { return stackd_install_with(sigaction); }

EXPORT int stackd_set_process_name(const char* name) {
  if (name == NULL) name = "";
  for (const char* c = name; *c != '\0'; c++) {
    if ((unsigned char)*c < 0x20 || *c == 0x7f) return -EINVAL;
  }
  stackd_helper_set_name(name);
  return 0;
}

EXPORT int stackd_dump_now(int timeout_ms) { return stackd_helper_request_dump(timeout_ms); }

EXPORT const char* stackd_version(void) { return "0.1.0"; }
