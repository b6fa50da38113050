/* The functions of the C library that libstackd_agent.so puts itself in front of, each for one reason given in its file. */
#ifndef STACKD_PRELOAD_H_
#define STACKD_PRELOAD_H_

#include <dlfcn.h>
#include <stddef.h>

#define STACKD_EXPORT __attribute__((visibility("default")))

/* The function behind ours. Looked up when the library is loaded (stackd_preload_find), since ours may run in a signal
 * handler; a constructor that runs before that finds it here. */
#define STACKD_BEHIND(function, name)                                              \
  ({                                                                               \
    if (function == NULL) function = (__typeof__(function))dlsym(RTLD_NEXT, name); \
    function;                                                                      \
  })

void stackd_preload_find_close(void);
void stackd_preload_find_exec(void);
void stackd_preload_find_sigwait(void);

#endif /* STACKD_PRELOAD_H_ */
