/* The functions of the C library that libstackd_agent.so puts itself in front of, each for one reason given in its file. */
#ifndef STACKD_PRELOAD_H_
#define STACKD_PRELOAD_H_

#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/helper/introduction.h"
#include "agent/install/install.h"
#include "agent/sys/process_id.h"

#define STACKD_EXPORT __attribute__((visibility("default")))

/* The function behind ours. Looked up when the library is loaded (stackd_preload_find), since ours may run in a signal
 * handler; a constructor that runs before that finds it here. */
#define STACKD_BEHIND(function, name)                                                 \
  ({                                                                                  \
    if (function == NULL) function = (__typeof__(function))stackd_preload_next(name); \
    function;                                                                         \
  })

/* Find a function as dlsym() does: behind this library, anywhere, and by a version that is glibc's own business. NULL: no
 * library has it.
 */
void* stackd_preload_next(const char* name);
void* stackd_preload_any(const char* name);
void* stackd_preload_private(const char* name);

void stackd_preload_find_signal(void);
void stackd_preload_find_thread(void);
void stackd_preload_find_close(void);
void stackd_preload_find_fstat(void);
void stackd_preload_find_exec(void);
void stackd_preload_find_signalfd(void);
void stackd_preload_find_rights(void);
void stackd_preload_find_exit(void);
void stackd_preload_find_longjmp(void);
void stackd_preload_find_sigwait(void);

/* Whether the program's threads begin in this library: not where another library brought the agent later. */
bool stackd_preload_sees_threads(void);

/* Waits, so long at most, until the threads that the program has created have made the agent's system calls at their
 * beginning. */
void stackd_preload_await_threads(uint64_t duration_ns);

/* Called where programs come by now and then: looks whether a daemon has come, where no helper does. */
static inline void stackd_preload_occasion(void) {
  if (stackd_taken_signal() != 0 && stackd_helper_has_occasion() && !stackd_is_other_process()) stackd_helper_introduce();
}

int stackd_preload_real_sigaction(int signal_number, const struct sigaction* action, struct sigaction* old);

#endif /* STACKD_PRELOAD_H_ */
