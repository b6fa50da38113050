/* signalfd(): a program that reads SIGURG from one, and so blocks it, would take the signal by which the helper is started.
 * It is another one from then on. */
#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "agent/install/install.h"
#include "agent/preload/preload.h"
#include "agent/signals/wake_signal.h"

typedef int signalfd_fn(int, const sigset_t*, int);

static signalfd_fn* real_signalfd;

void stackd_preload_find_signalfd(void) { STACKD_BEHIND(real_signalfd, "signalfd"); }

STACKD_EXPORT int signalfd(int fd, const sigset_t* mask, int flags) {
  bool reads_ours = stackd_taken_signal() != 0 && sigismember(mask, STACKD_WAKE_SIGNAL) == 1 &&
                    sigismember(mask, STACKD_SECOND_WAKE_SIGNAL) == 0;
  if (reads_ours && !stackd_is_other_process()) {
    int error = errno;
    stackd_use_second_wake_signal(stackd_preload_real_sigaction);
    errno = error;
  }
  return STACKD_BEHIND(real_signalfd, "signalfd")(fd, mask, flags);
}
