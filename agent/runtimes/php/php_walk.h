/* What the finder of a PHP learns for the walk. */
#ifndef STACKD_PHP_WALK_H_
#define STACKD_PHP_WALK_H_

#include "agent/maps/loaded_object.h"
#include "agent/runtimes/php/php_layout.h"
#include "agent/sys/syscalls.h"

struct stackd_php {
  const struct stackd_php_layout* layout; /* NULL: an unknown version or build */
  uint32_t version;                       /* PHP_VERSION_ID, 80236 for 8.2.36; 0: not known */
  uint64_t globals;                       /* address of executor_globals */
  struct stackd_loaded_symbol interpreter_function;
};

/* The one that was found, or NULL. SIGNAL-SAFE. */
const struct stackd_php* stackd_php_found(void) STACKD_HANDLER;

#endif /* STACKD_PHP_WALK_H_ */
