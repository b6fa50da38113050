/* NOT SIGNAL-SAFE, but for stackd_php_found. */
#include <stddef.h>
#include <string.h>

#include "agent/runtimes/php/php.h"
#include "agent/runtimes/php/php_walk.h"
#include "agent/runtimes/version_text.h"
#include "agent/runtimes/walker.h"
#include "agent/sys/target.h"

#define MAX_MODULES 256u
/* Has the version of PHP; that of the first module, "Core", is Zend's. */
#define STANDARD_MODULE "standard"

static const struct stackd_php* published;

STACKD_HANDLER const struct stackd_php* stackd_php_found(void) { return __atomic_load_n(&published, __ATOMIC_ACQUIRE); }

static bool read_at(uint64_t address, void* out, size_t size_bytes) {
  return stackd_read_memory(stackd_target_pid(), address, out, size_bytes) == (long)size_bytes;
}

static uint64_t word_at(const unsigned char* block, size_t offset) {
  uint64_t word;
  memcpy(&word, block + offset, sizeof(word));
  return word;
}

/* What the registry of modules says of the PHP: each module has the version that it was compiled for. 0: PHP starts, and
 * has none yet. */
static uint32_t read_registry(uint64_t registry, struct stackd_php* php) {
  uint64_t buckets;
  uint32_t used;
  if (!read_at(registry + STACKD_PHP_TABLE_BUCKETS, &buckets, sizeof(buckets))) return 0;
  if (!read_at(registry + STACKD_PHP_TABLE_USED, &used, sizeof(used))) return 0;
  for (uint32_t i = 0; i < used && i < MAX_MODULES; i++) {
    uint64_t entry;
    unsigned char module[STACKD_PHP_MODULE_BYTES];
    if (!read_at(buckets + (uint64_t)i * STACKD_PHP_BUCKET_BYTES, &entry, sizeof(entry))) return 0;
    if (!read_at(entry, module, sizeof(module))) continue;
    if (!stackd_is_text_at(word_at(module, STACKD_PHP_MODULE_NAME), STANDARD_MODULE)) continue;
    php->version = stackd_version_at(word_at(module, STACKD_PHP_MODULE_VERSION));
    bool is_plain = module[STACKD_PHP_MODULE_IS_DEBUG] == 0 && module[STACKD_PHP_MODULE_IS_THREAD_SAFE] == 0;
    return is_plain ? (uint32_t)(word_at(module, 0) >> 32) : 0;
  }
  return 0;
}

void stackd_php_find(const struct stackd_loaded_object* object) {
  /* A handler may be reading the one that was published. */
  static struct stackd_php finds[2];
  const struct stackd_php* before = __atomic_load_n(&published, __ATOMIC_RELAXED);
  if (before != NULL && before->layout != NULL) return;
  struct stackd_loaded_symbol registry = stackd_loaded_symbol(object, "module_registry");
  struct stackd_loaded_symbol interpreter_function = stackd_loaded_symbol(object, "execute_ex");
  if (registry.address == 0 || interpreter_function.address == 0) return;
  struct stackd_php* found = before == &finds[0] ? &finds[1] : &finds[0];
  memset(found, 0, sizeof(*found));
  found->interpreter_function = interpreter_function;
  /* A thread-safe build has globals for each thread. */
  found->globals = stackd_loaded_symbol(object, "executor_globals").address;
  uint32_t api = read_registry(registry.address, found);
  if (found->globals != 0) found->layout = stackd_php_layout(api);
  if (found->layout == NULL) {
    stackd_managed_look_again();
  } else {
    stackd_page_copies_prepare();
  }
  __atomic_store_n(&published, found, __ATOMIC_RELEASE);
  stackd_managed_has_found(/*needs_memory=*/false);
}
