#include "agent/runtimes/symbol_cache.h"

#include <stddef.h>

#include "agent/sys/large.h"

#define COPIES 64u
/* Where one of a key may lie. */
#define PLACES 4u
/* A copy that is older may be of the dump before. */
#define MAX_AGE_NS 50000000ll

_Static_assert(sizeof(struct stackd_symbol_copy) == 1024, "");

static STACKD_LARGE struct stackd_symbol_copy all[COPIES];

STACKD_HANDLER static bool is_young(const struct stackd_symbol_copy* copy, uint64_t now_ns) {
  /* Another thread may have begun later than this one, and be ahead of it. */
  return (int64_t)(now_ns - __atomic_load_n(&copy->time_ns, __ATOMIC_RELAXED)) < MAX_AGE_NS;
}

struct stackd_symbol_copy* stackd_symbol_copy_take(uint64_t key, uint64_t now_ns) {
  struct stackd_symbol_copy* places = &all[(key * 0x9e3779b97f4a7c15u >> 32) % (COPIES / PLACES) * PLACES];
  struct stackd_symbol_copy* found = NULL;
  for (uint32_t i = 0; i < PLACES; i++) {
    struct stackd_symbol_copy* copy = &places[i];
    if (__atomic_load_n(&copy->key, __ATOMIC_RELAXED) == key) {
      found = copy;
      break;
    }
    if (found == NULL && !is_young(copy, now_ns)) found = copy;
  }
  if (found == NULL || __atomic_load_n(&found->taken, __ATOMIC_RELAXED) != 0) return NULL;
  return __atomic_exchange_n(&found->taken, 1, __ATOMIC_ACQUIRE) == 0 ? found : NULL;
}

void stackd_symbol_copy_give_back(struct stackd_symbol_copy* copy) {
  /* For another one. */
  if (copy->word_count == 0) __atomic_store_n(&copy->time_ns, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&copy->taken, 0, __ATOMIC_RELEASE);
}

bool stackd_symbol_copy_is_of(const struct stackd_symbol_copy* copy, uint64_t key, const uint64_t* source,
                              uint32_t source_words, uint64_t now_ns) {
  if (copy->word_count == 0 || copy->key != key || copy->source_words != source_words || !is_young(copy, now_ns))
    return false;
  for (uint32_t i = 0; i < source_words; i++) {
    if (copy->source[i] != source[i]) return false;
  }
  return true;
}

void stackd_symbol_copy_begin(struct stackd_symbol_copy* copy, uint64_t key, const uint64_t* source, uint32_t source_words,
                              uint64_t now_ns) {
  copy->word_count = 0;
  __atomic_store_n(&copy->key, key, __ATOMIC_RELAXED);
  __atomic_store_n(&copy->time_ns, now_ns, __ATOMIC_RELAXED);
  copy->source_words = source_words;
  for (uint32_t i = 0; i < source_words; i++) copy->source[i] = source[i];
}

void stackd_symbol_copies_prepare(void) {
  for (uint32_t i = 0; i < COPIES; i++) *(volatile uint32_t*)&all[i].word_count = 0;
}

void stackd_symbol_copies_reset_after_fork(void) {
  for (uint32_t i = 0; i < COPIES; i++) {
    all[i].word_count = 0; /* it may have been in the making */
    __atomic_store_n(&all[i].taken, 0, __ATOMIC_RELEASE);
  }
}
