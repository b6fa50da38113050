/* sigaction() and signal(), for the signals that the agent has taken. A program that resets all signals at its start, or
 * handles one of these itself, would otherwise take our handler away. The next dump would end it (the default action of a
 * real-time signal), and its crash would not be seen. The program's action becomes the chain target (sigchain.h) and is
 * what the program gets when it asks.
 *
 * And for SIGTERM, which is only counted (sigterm.h): the action is the program's own, with a trampoline in place of the
 * handler.
 */
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "agent/install/install.h"
#include "agent/preload/preload.h"
#include "agent/signals/sigchain.h"
#include "agent/signals/sigterm.h"
#include "agent/sys/filtered.h"

typedef sighandler_t signal_fn(int, sighandler_t);

static stackd_sigaction_fn* real_sigaction;
static signal_fn* real_signal;
static signal_fn* real_sysv_signal;
static signal_fn* real_sigset;

void stackd_preload_find_signal(void) {
  STACKD_BEHIND(real_sigaction, "sigaction");
  STACKD_BEHIND(real_signal, "signal");
  STACKD_BEHIND(real_sysv_signal, "__sysv_signal");
  STACKD_BEHIND(real_sigset, "sigset");
}

int stackd_preload_real_sigaction(int signal_number, const struct sigaction* action, struct sigaction* old) {
  return STACKD_BEHIND(real_sigaction, "sigaction")(signal_number, action, old);
}

/* As in <asm/signal.h>: what the C library adds to each action, and shows in what it gives back. */
#define RESTORER_FLAG 0x04000000

static struct sigaction as_given_back(int signal_number, const struct sigaction* action) {
  struct sigaction stored = *action;
  struct sigaction ours;
  if (stackd_preload_real_sigaction(signal_number, NULL, &ours) == 0) {
    stored.sa_flags |= ours.sa_flags & RESTORER_FLAG;
    stored.sa_restorer = ours.sa_restorer;
  }
  return stored;
}

static bool is_counted(int signal_number) { return signal_number == SIGTERM && stackd_taken_signal() != 0; }

static int set_counted(const struct sigaction* action, struct sigaction* old) {
  struct sigaction counted;
  if (action != NULL) {
    counted = *action;
    counted.sa_handler = stackd_sigterm_trampoline_to(action->sa_handler);
    action = &counted;
  }
  int result = stackd_preload_real_sigaction(SIGTERM, action, old);
  if (result == 0 && old != NULL) old->sa_handler = stackd_sigterm_behind(old->sa_handler);
  return result;
}

/* By a function of signal()'s kind, which keeps its own ways with flags and mask. */
static sighandler_t set_counted_by(signal_fn* set, sighandler_t handler) {
  return stackd_sigterm_behind(set(SIGTERM, stackd_sigterm_trampoline_to(handler)));
}

STACKD_EXPORT int sigaction(int signal_number, const struct sigaction* restrict action, struct sigaction* restrict old) {
  stackd_preload_occasion();
  if (is_counted(signal_number)) return set_counted(action, old);
  if (!stackd_has_taken(signal_number)) return stackd_preload_real_sigaction(signal_number, action, old);
  struct sigaction before;
  stackd_chain_get(signal_number, &before);
  if (action != NULL && !stackd_is_filtered() && stackd_is_other_process()) {
    /* A child of vfork() has signals of its own, but this memory is its parent's. Under a filter it is not told from its
     * parent, since that takes a system call. */
    if (stackd_preload_real_sigaction(signal_number, action, NULL) != 0) return -1;
  } else if (action != NULL) {
    struct sigaction stored = as_given_back(signal_number, action);
    stackd_chain_set(signal_number, &stored);
    stackd_take_action(signal_number, action, stackd_preload_real_sigaction);
    /* Another thread may have set one between these two; the kernel is to know what goes with the last. */
    struct sigaction now;
    stackd_chain_get(signal_number, &now);
    if (now.sa_handler != stored.sa_handler) stackd_take_action(signal_number, &now, stackd_preload_real_sigaction);
  }
  if (old != NULL) *old = before;
  return 0;
}

static sighandler_t set_ours(int signal_number, sighandler_t handler, int flags, bool block_itself) {
  struct sigaction action;
  struct sigaction old;
  memset(&action, 0, sizeof(action));
  action.sa_handler = handler;
  action.sa_flags = flags;
  if (block_itself) sigaddset(&action.sa_mask, signal_number);
  return sigaction(signal_number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

STACKD_EXPORT sighandler_t signal(int signal_number, sighandler_t handler) {
  if (is_counted(signal_number)) return set_counted_by(STACKD_BEHIND(real_signal, "signal"), handler);
  if (!stackd_has_taken(signal_number)) return STACKD_BEHIND(real_signal, "signal")(signal_number, handler);
  return set_ours(signal_number, handler, SA_RESTART, true);
}

/* What signal() is under -std=c11 without _DEFAULT_SOURCE. */
STACKD_EXPORT sighandler_t __sysv_signal(int signal_number, sighandler_t handler) {
  signal_fn* set = STACKD_BEHIND(real_sysv_signal, "__sysv_signal");
  if (set == NULL) set = STACKD_BEHIND(real_signal, "signal"); /* musl knows one kind */
  if (is_counted(signal_number)) return set_counted_by(set, handler);
  if (!stackd_has_taken(signal_number)) return set(signal_number, handler);
  return set_ours(signal_number, handler, (int)SA_RESETHAND | SA_NODEFER, false);
}

STACKD_EXPORT sighandler_t sysv_signal(int signal_number, sighandler_t handler) {
  return __sysv_signal(signal_number, handler);
}

STACKD_EXPORT sighandler_t bsd_signal(int signal_number, sighandler_t handler) { return signal(signal_number, handler); }

STACKD_EXPORT sighandler_t ssignal(int signal_number, sighandler_t handler) { return signal(signal_number, handler); }

/* Would give a trampoline back. */
STACKD_EXPORT sighandler_t sigset(int signal_number, sighandler_t handler) {
  signal_fn* set = STACKD_BEHIND(real_sigset, "sigset");
  return is_counted(signal_number) ? set_counted_by(set, handler) : set(signal_number, handler);
}
