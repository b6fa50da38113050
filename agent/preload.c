/* libstackd_agent.so only: installs the agent when the library is loaded. What is interposed, and why, stands in
 * preload_*.c. */
#include "agent/preload.h"

#include "agent/helper_thread.h"
#include "agent/install.h"

__attribute__((constructor)) static void on_load(void) {
  stackd_preload_find_signal();
  stackd_preload_find_thread();
  stackd_preload_find_close();
  stackd_preload_find_exec();
  stackd_preload_find_sigwait();
  /* Private to glibc, and there from 2.34 on; NULL elsewhere. */
  stackd_helper_hide_from(dlsym(RTLD_DEFAULT, "__nptl_nthreads"));
  stackd_install_with(stackd_preload_real_sigaction);
}
