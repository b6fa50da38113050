/* libstackd_agent.so only: installs the agent when the library is loaded, and keeps the dump signal ours.
 *
 * A program that resets all signals at its start, or handles this one itself, would otherwise take our handler away, and
 * the next dump would end the program (the default action of a real-time signal). So sigaction() and signal() are
 * interposed for that one signal: the program's action becomes the chain target, is called for signals that we did not
 * send, and is what the program gets when it asks. What else is interposed, and why, stands in preload_*.c.
 */
#include "agent/preload.h"

#include <signal.h>
#include <string.h>

#include "agent/handler.h"
#include "agent/helper_thread.h"
#include "agent/install.h"

typedef sighandler_t signal_fn(int, sighandler_t);

static stackd_sigaction_fn* real_sigaction;
static signal_fn* real_signal;
static signal_fn* real_sysv_signal;

static bool is_ours(int signal_number) { return signal_number > 0 && signal_number == stackd_taken_signal(); }

STACKD_EXPORT int sigaction(int signal_number, const struct sigaction* restrict action, struct sigaction* restrict old) {
  if (!is_ours(signal_number)) return STACKD_BEHIND(real_sigaction, "sigaction")(signal_number, action, old);
  if (old != NULL) stackd_handler_get_chain(old);
  if (action != NULL) stackd_handler_set_chain(action);
  return 0;
}

static sighandler_t set_ours(int signal_number, sighandler_t handler, int flags) {
  struct sigaction action;
  struct sigaction old;
  memset(&action, 0, sizeof(action));
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal_number, &action, &old);
  return old.sa_handler;
}

STACKD_EXPORT sighandler_t signal(int signal_number, sighandler_t handler) {
  if (!is_ours(signal_number)) return STACKD_BEHIND(real_signal, "signal")(signal_number, handler);
  return set_ours(signal_number, handler, SA_RESTART);
}

/* What signal() is under -std=c11 without _DEFAULT_SOURCE. */
STACKD_EXPORT sighandler_t __sysv_signal(int signal_number, sighandler_t handler) {
  if (!is_ours(signal_number)) return STACKD_BEHIND(real_sysv_signal, "__sysv_signal")(signal_number, handler);
  return set_ours(signal_number, handler, (int)SA_RESETHAND | SA_NODEFER);
}

STACKD_EXPORT sighandler_t sysv_signal(int signal_number, sighandler_t handler) {
  return __sysv_signal(signal_number, handler);
}

STACKD_EXPORT sighandler_t bsd_signal(int signal_number, sighandler_t handler) { return signal(signal_number, handler); }

STACKD_EXPORT sighandler_t ssignal(int signal_number, sighandler_t handler) { return signal(signal_number, handler); }

__attribute__((constructor)) static void on_load(void) {
  STACKD_BEHIND(real_signal, "signal");
  STACKD_BEHIND(real_sysv_signal, "__sysv_signal");
  stackd_preload_find_close();
  stackd_preload_find_exec();
  stackd_preload_find_sigwait();
  /* Private to glibc, and there from 2.34 on; NULL elsewhere. */
  stackd_helper_hide_from(dlsym(RTLD_DEFAULT, "__nptl_nthreads"));
  stackd_install_with(STACKD_BEHIND(real_sigaction, "sigaction"));
}
