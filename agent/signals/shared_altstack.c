#include "agent/signals/shared_altstack.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/auxv.h>

#include "agent/signals/altstack.h"
#include "agent/sys/large.h"
#include "agent/sys/syscalls.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif

/* MINSIGSTKSZ, before kernels said it. */
#define LEAST_STACK_BYTES 2048u

/* Stacks of the program, by where they begin, and whose they are. A thread writes to what is its own, and to what is free
 * once it has made that its own. Two threads that claim one stack at the same time see each other, for each first writes
 * and then looks: then neither has it. Of more stacks than there is room for it is not known whether they are shared. */
#define PLACES 4096u
#define TRIES 16u
static STACKD_LARGE struct place {
  uint64_t owner; /* pthread_self(); 0: free */
  uint64_t low;
} places[PLACES];

static uint64_t caller(void) { return (uint64_t)pthread_self(); }

static struct place* place_of(uint64_t low, uint32_t attempt) {
  uint64_t hash = (low >> 4) * 0x9e3779b97f4a7c15ull;
  return &places[((hash >> 32) + attempt) % PLACES];
}

static struct place* find_own(uint64_t low) {
  for (uint32_t i = 0; i < TRIES; i++) {
    struct place* place = place_of(low, i);
    if (__atomic_load_n(&place->owner, __ATOMIC_SEQ_CST) == caller() &&
        __atomic_load_n(&place->low, __ATOMIC_SEQ_CST) == low) {
      return place;
    }
  }
  return NULL;
}

static bool is_anothers(uint64_t low) {
  for (uint32_t i = 0; i < TRIES; i++) {
    struct place* place = place_of(low, i);
    uint64_t owner = __atomic_load_n(&place->owner, __ATOMIC_SEQ_CST);
    if (owner != 0 && owner != caller() && __atomic_load_n(&place->low, __ATOMIC_SEQ_CST) == low) return true;
  }
  return false;
}

/* False if another thread has it. */
static bool claim(uint64_t low) {
  if (is_anothers(low)) return false;
  if (find_own(low) != NULL) return true;
  for (uint32_t i = 0; i < TRIES; i++) {
    struct place* place = place_of(low, i);
    uint64_t nobody = 0;
    if (!__atomic_compare_exchange_n(&place->owner, &nobody, caller(), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
    __atomic_store_n(&place->low, low, __ATOMIC_SEQ_CST);
    if (!is_anothers(low)) return true;
    __atomic_store_n(&place->owner, 0, __ATOMIC_SEQ_CST);
    return false;
  }
  return true;
}

bool stackd_program_altstack_is_claimed(const void* low) { return find_own((uint64_t)low) != NULL; }

void stackd_program_altstack_release(const void* low) {
  struct place* place = find_own((uint64_t)low);
  if (place != NULL) __atomic_store_n(&place->owner, 0, __ATOMIC_SEQ_CST);
}

static int ask_kernel(const stack_t* wanted, stack_t* before) {
  return (int)stackd_syscall6(SYS_sigaltstack, (long)wanted, (long)before, 0, 0, 0, 0);
}

static bool is_disabling(const stack_t* wanted) { return (wanted->ss_flags & SS_DISABLE) != 0; }

/* Else the kernel says what is wrong. */
static bool is_valid(const stack_t* wanted) {
  uint64_t least_bytes = getauxval(AT_MINSIGSTKSZ);
  if (least_bytes < LEAST_STACK_BYTES) least_bytes = LEAST_STACK_BYTES;
  return (wanted->ss_flags & ~(int)(SS_AUTODISARM | SS_ONSTACK)) == 0 && wanted->ss_size >= least_bytes;
}

/* The thread keeps a stack of the agent's. Where there is none it has none at all: handlers run where it is. */
static int use_own(const stack_t* wanted) {
  struct stackd_altstack* own = stackd_altstack_with_room(wanted->ss_size);
  stack_t set = {.ss_flags = SS_DISABLE};
  if (own != NULL) {
    set.ss_sp = stackd_altstack_low(own);
    set.ss_size = own->size_bytes;
    set.ss_flags = wanted->ss_flags & (int)SS_AUTODISARM;
  }
  int error = ask_kernel(&set, NULL);
  if (error == 0 && own != NULL) own->shown = *wanted;
  return error;
}

static int set_stack(const stack_t* wanted, const stack_t* now) {
  bool sole = is_disabling(wanted) || !is_valid(wanted) || claim((uint64_t)wanted->ss_sp);
  int error = sole ? ask_kernel(wanted, NULL) : use_own(wanted);
  if (error != 0) {
    if (sole && wanted->ss_sp != now->ss_sp) stackd_program_altstack_release(wanted->ss_sp);
    return error;
  }
  if (is_disabling(wanted)) stackd_altstack_is_taken_away();
  struct stackd_altstack* own = stackd_altstack_of_thread();
  if (sole && own != NULL) own->shown.ss_sp = NULL;
  if (!sole || is_disabling(wanted) || wanted->ss_sp != now->ss_sp) stackd_program_altstack_release(now->ss_sp);
  return 0;
}

int stackd_program_altstack(const stack_t* wanted, stack_t* before) {
  stack_t now;
  int error = ask_kernel(NULL, &now);
  if (error != 0) return error;
  struct stackd_altstack* own = stackd_altstack_of_thread();
  stack_t seen = now;
  if (own != NULL && own->shown.ss_sp != NULL && now.ss_sp == stackd_altstack_low(own)) {
    seen.ss_sp = own->shown.ss_sp;
    seen.ss_size = own->shown.ss_size;
  }
  if (wanted != NULL) {
    stack_t copy = *wanted;
    /* On its alternate stack a thread cannot change it. */
    error = (now.ss_flags & SS_ONSTACK) != 0 ? ask_kernel(&copy, NULL) : set_stack(&copy, &now);
  }
  if (error == 0 && before != NULL) *before = seen;
  return error;
}
