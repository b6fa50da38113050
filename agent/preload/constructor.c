/* libstackd_agent.so only: installs the agent when the library is loaded. What is interposed, and why, stands in
 * preload_*.c. */
#include "agent/crash/crash.h"
#include "agent/crash/crash_record.h"
#include "agent/helper/task_source.h"
#include "agent/install/install.h"
#include "agent/preload/preload.h"

/* A library that was loaded with the program has its thread-local variables at the same distance from every thread's fs
 * base. So a handler need not call anything to find them. */
#define MAX_STATIC_TLS_BYTES (1ll << 20)

/* The C++ library's, if the program has one. Not looked up by dlsym(), which makes a text of its failure. */
#pragma weak __cxa_get_globals_fast
void* __cxa_get_globals_fast(void);

static void find_last_words(struct stackd_last_words* words) {
  words->abort_message = (uint64_t)stackd_preload_private("__abort_msg");
  if (__cxa_get_globals_fast == NULL) return;
  words->exception_globals = (int64_t)((uint64_t)__cxa_get_globals_fast() - stackd_fs_base());
  words->has_exception_globals = words->exception_globals < 0 && words->exception_globals > -MAX_STATIC_TLS_BYTES;
}

__attribute__((constructor)) static void on_load(void) {
  stackd_preload_find_signal();
  stackd_preload_find_thread();
  stackd_preload_find_close();
  stackd_preload_find_fstat();
  stackd_preload_find_exec();
  stackd_preload_find_signalfd();
  stackd_preload_find_rights();
  stackd_preload_find_exit();
  stackd_preload_find_longjmp();
  stackd_preload_find_sigwait();
  /* Private to glibc, and there from 2.34 on; NULL elsewhere. */
  stackd_task_source_hide_from(stackd_preload_any("__nptl_nthreads"));
  struct stackd_last_words words = {0, 0, 0};
  find_last_words(&words);
  stackd_crash_record_set_last_words(&words);
  stackd_crash_set_abort((uint64_t)stackd_preload_next("abort"));
  stackd_install_with(stackd_preload_real_sigaction, stackd_preload_sees_threads());
}
