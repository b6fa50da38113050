#include "agent/sys/filtered.h"

static bool filtered;

void stackd_set_filtered(void) { __atomic_store_n(&filtered, true, __ATOMIC_RELAXED); }

bool stackd_is_filtered(void) { return __atomic_load_n(&filtered, __ATOMIC_RELAXED); }
