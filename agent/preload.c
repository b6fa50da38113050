/* libstackd_agent.so only: installs the agent when the library is loaded, and keeps the dump signal ours.
 *
 * A program that resets all signals at its start, or handles this one itself, would otherwise take our handler away, and
 * the next dump would end the program (the default action of a real-time signal). So sigaction() and signal() are
 * interposed for that one signal: the program's action becomes the chain target, is called for signals that we did not
 * send, and is what the program gets when it asks.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "agent/handler.h"
#include "agent/install.h"

#define EXPORT __attribute__((visibility("default")))

static stackd_sigaction_fn* _Atomic real_sigaction;

static stackd_sigaction_fn* find_sigaction(void) {
  stackd_sigaction_fn* found = atomic_load(&real_sigaction);
  if (found == NULL) {
    found = (stackd_sigaction_fn*)dlsym(RTLD_NEXT, "sigaction");
    atomic_store(&real_sigaction, found);
  }
  return found;
}

EXPORT int sigaction(int signal_number, const struct sigaction* restrict action, struct sigaction* restrict old) {
  if (signal_number <= 0 || signal_number != stackd_taken_signal()) {
    return find_sigaction()(signal_number, action, old);
  }
  if (old != NULL) stackd_handler_get_chain(old);
  if (action != NULL) stackd_handler_set_chain(action);
  return 0;
}

EXPORT sighandler_t signal(int signal_number, sighandler_t handler) {
  if (signal_number <= 0 || signal_number != stackd_taken_signal()) {
    sighandler_t (*real_signal)(int, sighandler_t) = (sighandler_t (*)(int, sighandler_t))dlsym(RTLD_NEXT, "signal");
    return real_signal(signal_number, handler);
  }
  struct sigaction action;
  struct sigaction old;
  memset(&action, 0, sizeof(action));
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  return sigaction(signal_number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

__attribute__((constructor)) static void on_load(void) { stackd_install_with(find_sigaction()); }
