#include "agent/install/install.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "agent/crash/crash.h"
#include "agent/crash/crash_link.h"
#include "agent/crash/crash_record.h"
#include "agent/crash/spool_writer.h"
#include "agent/dump/dump.h"
#include "agent/dump/dump_handler.h"
#include "agent/dump/thread_table.h"
#include "agent/helper/heartbeat.h"
#include "agent/helper/helper_thread.h"
#include "agent/helper/introduction.h"
#include "agent/helper/life.h"
#include "agent/helper/process.h"
#include "agent/helper/requests.h"
#include "agent/helper/wake_handler.h"
#include "agent/maps/code_ranges.h"
#include "agent/runtimes/page_cache.h"
#include "agent/runtimes/runtimes.h"
#include "agent/runtimes/symbol_cache.h"
#include "agent/signals/altstack.h"
#include "agent/signals/dump_signal.h"
#include "agent/signals/exec_gate.h"
#include "agent/signals/sigchain.h"
#include "agent/signals/wake_signal.h"
#include "agent/sys/filtered.h"
#include "agent/sys/process_id.h"
#include "stackd/agent.h"

#define EXPORT __attribute__((visibility("default")))

static struct stackd_settings settings;
static struct stackd_process_files files = {{-1, 0, 0}, {-1, 0, 0}};
static atomic_int taken_signal;
static _Atomic uint64_t taken_signals; /* bit n - 1 is signal n */
static atomic_bool installing;
static bool is_lazy; /* no helper before there is work for it */

int stackd_taken_signal(void) { return atomic_load(&taken_signal); }

bool stackd_has_taken(int signal_number) {
  if (signal_number <= 0 || signal_number > 64) return false;
  return (atomic_load(&taken_signals) >> (signal_number - 1) & 1) != 0;
}

bool stackd_has_dumps_under_filter(void) { return settings.dumps_under_filter; }

int stackd_take_action(int signal_number, const struct sigaction* action, stackd_sigaction_fn* set_action) {
  bool for_dumps = signal_number == settings.dump_signal;
  bool for_waking = signal_number == STACKD_WAKE_SIGNAL || signal_number == STACKD_SECOND_WAKE_SIGNAL;
  struct sigaction ours;
  memset(&ours, 0, sizeof(ours));
  ours.sa_sigaction = for_dumps ? stackd_on_dump_signal : for_waking ? stackd_on_wake_signal : stackd_on_crash_signal;
  /* SA_ONSTACK: Go's threads have tiny stacks and require it, and a stack that has overflowed has no room. */
  bool handled = action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (for_dumps || !handled ? SA_RESTART : action->sa_flags & SA_RESTART);
  /* Not sigfillset(): that leaves out glibc's own two signals, and a thread cancelled inside our handler would leave its
   * record unfinished for ever. */
  memset(&ours.sa_mask, 0xff, sizeof(ours.sa_mask));
  if (for_dumps || for_waking) {
    /* Faults stay deliverable: blocked, they would kill. (The handler of crashes unblocks them itself, once the program's
     * own is not going to be called.) */
    sigdelset(&ours.sa_mask, SIGSEGV);
    sigdelset(&ours.sa_mask, SIGBUS);
    sigdelset(&ours.sa_mask, SIGSYS);
  } else if (action->sa_handler == SIG_IGN) {
    ours.sa_handler = SIG_IGN;
  } else if (signal_number == SIGSYS && handled && (action->sa_flags & (int)SA_RESETHAND) == 0) {
    /* Calls that a filter refuses go to it with no system call of ours (crash.c): all is as it asks for. */
    ours.sa_flags = SA_SIGINFO | (action->sa_flags & (SA_ONSTACK | SA_RESTART | SA_NODEFER));
    ours.sa_mask = action->sa_mask;
  }
  return set_action(signal_number, &ours, NULL) == 0 ? 0 : -errno;
}

/* Takes a signal, with what is set for it now as the chain's target. */
static int take_signal(int signal_number, stackd_sigaction_fn* set_action) {
  struct sigaction before;
  if (set_action(signal_number, NULL, &before) != 0) return -errno;
  bool handled = before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN;
  if (handled && signal_number == settings.dump_signal) return -EBUSY;
  stackd_chain_set(signal_number, &before);
  int error = stackd_take_action(signal_number, &before, set_action);
  if (error == 0) atomic_fetch_or(&taken_signals, 1ull << (signal_number - 1));
  return error;
}

int stackd_use_second_wake_signal(stackd_sigaction_fn* set_action) {
  if (!is_lazy || stackd_wake_signal() == STACKD_SECOND_WAKE_SIGNAL) return 0;
  int error = take_signal(STACKD_SECOND_WAKE_SIGNAL, set_action);
  if (error != 0) return error;
  stackd_wake_signal_use_second();
  stackd_helper_change_wake_signal();
  return 0;
}

static void take_crash_signals(stackd_sigaction_fn* set_action) {
  stackd_altstack_prepare();
  if (settings.crash_signals == 0) return;
  stackd_altstack_init();
  stackd_crash_init(settings.crash_hold_ns, &files.maps, &files.mem);
  stackd_crash_record_init();
  stackd_spool_init(settings.dir);
  for (int signal_number = 1; signal_number <= 64; signal_number++) {
    if ((settings.crash_signals >> (signal_number - 1) & 1) != 0) take_signal(signal_number, set_action);
  }
}

static int start_helper(void) {
  int error = stackd_helper_start();
  if (error != 0) stackd_crash_helper_has_tried();
  return error;
}

/* A child that looks in vain does so once more, and so do all that come within a second: its parent looks for them. */
static void before_fork(void) {
  if (is_lazy && stackd_helper_has_occasion() && !stackd_is_other_process()) stackd_helper_introduce();
}

/* Gives what a helper uses its first values back. A parent that had none has left them, in memory that was never used. */
static void reset_dumps(void) {
  stackd_handler_reset_after_fork();
  stackd_page_copies_reset_after_fork();
  stackd_symbol_copies_reset_after_fork();
  stackd_code_ranges_reset_after_fork();
  stackd_thread_table_reset_after_fork();
  stackd_dump_reset_after_fork();
}

/* The child has one thread, no ring and none of our connection. */
static void after_fork_in_child(void) {
  stackd_keep_pid();
  if (!stackd_is_filtered()) stackd_own_fd_reset_after_fork();
  stackd_exec_gate_reset_after_fork();
  stackd_chain_reset_after_fork();
  if (stackd_helper_was_wanted()) reset_dumps();
  if (settings.crash_signals != 0) {
    stackd_crash_reset_after_fork();
    stackd_spool_reset_after_fork();
  }
  stackd_helper_reset_after_fork();
  if (stackd_is_filtered()) return;
  stackd_process_files_close(&files);
  if (is_lazy) {
    stackd_helper_introduce_child();
    return;
  }
  /* Before the child may change its user id, and may not open them any more. */
  stackd_process_files_open(&files);
  start_helper();
}

int stackd_install_with(stackd_sigaction_fn* set_action, bool use_lazy) {
  if (atomic_exchange(&installing, true)) return 0;
  int error = stackd_settings_read(&settings);
  if (error != 0) return error;
  const char* name = getenv("STACKD_NAME");
  if (name != NULL) stackd_requests_set_name(name);
  is_lazy = use_lazy;
  stackd_keep_pid();
  stackd_dump_signal_init(settings.dump_signal);
  error = take_signal(settings.dump_signal, set_action);
  if (error != 0) return error;
  atomic_store(&taken_signal, settings.dump_signal);
  if (is_lazy) take_signal(STACKD_WAKE_SIGNAL, set_action);
  stackd_process_files_open(&files);
  take_crash_signals(set_action);
  stackd_managed_prepare();
  stackd_heartbeat_watch_forks(); /* before ours, which starts a helper */
  error = -pthread_atfork(before_fork, NULL, after_fork_in_child);
  if (error != 0) return error;
  stackd_helper_prepare(&settings, &files, is_lazy);
  stackd_helper_allow(stackd_helper_run);
  /* Constructors that ran before ours may have made threads. */
  if (!is_lazy || stackd_helper_was_wanted()) return start_helper();
  stackd_helper_introduce_at_start();
  return 0;
}

static int is_shared_agent(struct dl_phdr_info* object, size_t size_bytes, void* unused) {
  (void)size_bytes;
  (void)unused;
  static const char kName[] = "libstackd_agent.so";
  size_t length = strlen(object->dlpi_name);
  return length >= sizeof(kName) - 1 && strcmp(object->dlpi_name + length - (sizeof(kName) - 1), kName) == 0;
}

EXPORT int stackd_install(void) {
  if (atomic_load(&installing)) return 0;
  /* Two agents would take each other's signals. */
  if (dl_iterate_phdr(is_shared_agent, NULL) != 0) return -EEXIST;
  stackd_crash_set_abort((uint64_t)abort);
  int error = stackd_install_with(sigaction, false);
  /* The agent is linked in: it does not interpose exit() either. */
  if (error == 0 && settings.crash_signals != 0) atexit(stackd_crash_before_end);
  return error;
}

static bool has_control_character(const char* name) {
  for (const char* c = name; *c != '\0'; c++) {
    if ((unsigned char)*c < 0x20 || *c == 0x7f) return true;
  }
  return false;
}

EXPORT int stackd_set_process_name(const char* name) {
  if (name == NULL) name = "";
  if (has_control_character(name)) return -EINVAL;
  stackd_requests_set_name(name);
  return 0;
}

EXPORT int stackd_name_thread(const char* name) {
  if (name == NULL) name = "";
  if (has_control_character(name)) return -EINVAL;
  char kept[16]; /* as the kernel has it */
  size_t length = strnlen(name, sizeof(kept) - 1);
  /* Half a character would be no text for those who read the name. */
  if (name[length] != '\0') {
    while (length > 0 && ((unsigned char)name[length] & 0xc0) == 0x80) length--;
  }
  memcpy(kept, name, length);
  kept[length] = '\0';
  return prctl(PR_SET_NAME, kept, 0, 0, 0) == 0 ? 0 : -errno;
}

EXPORT int stackd_dump_now(int timeout_ms) { return stackd_requests_dump("", timeout_ms); }

EXPORT int stackd_dump_exception(const char* type, int timeout_ms) {
  if (type == NULL || type[0] == '\0') return -EINVAL;
  return stackd_requests_dump(type, timeout_ms);
}

EXPORT int stackd_set_task_source(stackd_task_source_fn* source) {
  /* Asked for before stackd_install() may be called: the source may be there first. */
  if (stackd_is_disabled()) return -ECANCELED;
  return stackd_requests_set_task_source(source);
}

EXPORT const char* stackd_version(void) { return "0.1.0"; }
