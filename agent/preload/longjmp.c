/* longjmp() and its relatives: a handler of the program's that is left so has most likely recovered, and nothing else
 * tells. The record of its fault would count if the process were killed within seconds, as any program may be. Not
 * <setjmp.h>, which gives these functions other names where _FORTIFY_SOURCE is set.
 */
#include "agent/crash/crash.h"
#include "agent/preload/preload.h"

typedef void longjmp_fn(void*, int);

static longjmp_fn* real_longjmp;
static longjmp_fn* real_checked_longjmp;

void stackd_preload_find_longjmp(void) {
  STACKD_BEHIND(real_longjmp, "siglongjmp");
  STACKD_BEHIND(real_checked_longjmp, "__longjmp_chk");
}

/* One function of three names, in glibc too. */
STACKD_EXPORT void siglongjmp(void* environment, int value) {
  stackd_crash_before_jump();
  STACKD_BEHIND(real_longjmp, "siglongjmp")(environment, value);
  __builtin_unreachable();
}

__typeof__(siglongjmp) longjmp __attribute__((alias("siglongjmp"), visibility("default")));
__typeof__(siglongjmp) _longjmp __attribute__((alias("siglongjmp"), visibility("default")));

STACKD_EXPORT void __longjmp_chk(void* environment, int value) {
  stackd_crash_before_jump();
  /* musl has none. */
  if (STACKD_BEHIND(real_checked_longjmp, "__longjmp_chk") == NULL) siglongjmp(environment, value);
  real_checked_longjmp(environment, value);
  __builtin_unreachable();
}
