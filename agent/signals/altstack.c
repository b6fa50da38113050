#include "agent/signals/altstack.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/signals/shared_altstack.h"
#include "agent/sys/filtered.h"
#include "agent/sys/kernel.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

/* The frame with AVX-512, for kernels before 5.14, which do not say it. */
#define OLD_FRAME_BYTES 3584u

#define MIN_STACK_BYTES (64u << 10)
/* For handlers, ours and the program's, beside what the kernel puts there. Go takes an alternate stack that it finds for a
 * signal stack of its own, for which it wants 32 KiB. */
#define HANDLER_BYTES (32u << 10)
/* What a crash handler touches of the main thread's is there beforehand: a cgroup may have no memory left then. */
#define TOUCHED_BYTES (16u << 10)

/* A program that asks for more has none on its own. */
#define MAX_STACK_BYTES (1u << 20)

/* Stacks of threads that ended, for those that begin: saves mmap() and munmap(), which take the lock of the address space.
 */
#define CACHED 16
static struct stackd_altstack* _Atomic cache[CACHED];

/* Each is two mappings, as is a thread, and a process may have 65,530. So the threads above this number go without: a
 * program of 30,000 threads starts with the agent too. */
#define MAX_STACKS 2048
static atomic_int stacks;

static size_t frame_bytes;
static size_t guard_bytes;
static size_t stack_bytes; /* guard and struct stackd_altstack not counted */
static pthread_key_t key;
static atomic_bool has_key;
static atomic_bool ready; /* each thread is to have one */
static atomic_bool some_lack;

bool stackd_altstack_is_everywhere(void) { return atomic_load(&ready) && !atomic_load(&some_lack); }

void stackd_altstack_is_taken_away(void) { atomic_store(&some_lack, true); }

size_t stackd_signal_frame_bytes(void) { return frame_bytes; }

static size_t block_bytes(size_t size_bytes) { return guard_bytes + size_bytes + sizeof(struct stackd_altstack); }

char* stackd_altstack_low(const struct stackd_altstack* stack) { return (char*)stack - stack->size_bytes; }

static struct stackd_altstack* make(size_t size_bytes) {
  if (atomic_fetch_add(&stacks, 1) < MAX_STACKS) {
    size_t whole_bytes = block_bytes(size_bytes);
    char* block = mmap(NULL, whole_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (block != MAP_FAILED) {
      if (mprotect(block + guard_bytes, whole_bytes - guard_bytes, PROT_READ | PROT_WRITE) == 0) {
        struct stackd_altstack* stack = (struct stackd_altstack*)(block + guard_bytes + size_bytes);
        stack->size_bytes = size_bytes;
        return stack;
      }
      munmap(block, whole_bytes);
    }
  }
  atomic_fetch_sub(&stacks, 1);
  stackd_altstack_is_taken_away();
  return NULL;
}

struct stackd_altstack* stackd_altstack_new(void) {
  if (!atomic_load_explicit(&ready, memory_order_acquire) || stackd_is_filtered()) return NULL;
  for (int i = 0; i < CACHED; i++) {
    if (atomic_load_explicit(&cache[i], memory_order_relaxed) == NULL) continue;
    struct stackd_altstack* stack = atomic_exchange(&cache[i], NULL);
    if (stack != NULL) return stack;
  }
  return make(stack_bytes);
}

void stackd_altstack_free(struct stackd_altstack* stack) {
  stack->shown.ss_sp = NULL;
  for (int i = 0; stack->size_bytes == stack_bytes && i < CACHED; i++) {
    struct stackd_altstack* none = NULL;
    if (atomic_compare_exchange_strong(&cache[i], &none, stack)) return;
  }
  munmap(stackd_altstack_low(stack) - guard_bytes, block_bytes(stack->size_bytes));
  atomic_fetch_sub(&stacks, 1);
}

/* By system calls: sigaltstack() is interposed. */
static int ask_kernel(const stack_t* set, stack_t* before) {
  return (int)stackd_syscall6(SYS_sigaltstack, (long)set, (long)before, 0, 0, 0, 0);
}

/* At the end of a thread. The stack is left to leak where the thread ends in a handler on it, or under a filter. */
static void thread_ends(void* value) {
  if (stackd_is_filtered()) return;
  struct stackd_altstack* stack = value;
  stack_t now;
  if (ask_kernel(NULL, &now) != 0) return;
  if (now.ss_sp == stackd_altstack_low(stack) || stackd_program_altstack_is_claimed(now.ss_sp)) {
    stack_t none = {.ss_flags = SS_DISABLE};
    if (ask_kernel(&none, NULL) != 0) return;
    stackd_program_altstack_release(now.ss_sp);
  }
  stackd_altstack_free(stack);
}

void stackd_altstack_use(struct stackd_altstack* stack) {
  stack_t own = {.ss_sp = stackd_altstack_low(stack), .ss_size = stack->size_bytes};
  stack_t before;
  if (ask_kernel(NULL, &before) == 0 && (before.ss_flags & SS_DISABLE) != 0 && ask_kernel(&own, NULL) == 0 &&
      pthread_setspecific(key, stack) == 0) {
    return;
  }
  thread_ends(stack);
}

struct stackd_altstack* stackd_altstack_of_thread(void) {
  return atomic_load_explicit(&has_key, memory_order_acquire) ? pthread_getspecific(key) : NULL;
}

struct stackd_altstack* stackd_altstack_with_room(size_t size_bytes) {
  struct stackd_altstack* stack = stackd_altstack_of_thread();
  if (stack != NULL && stack->size_bytes >= size_bytes) return stack;
  if (!atomic_load_explicit(&has_key, memory_order_acquire) || size_bytes > MAX_STACK_BYTES) return NULL;
  /* Whole pages with what lies on top. */
  size_t wanted = (size_bytes + sizeof(*stack) + guard_bytes - 1) / guard_bytes * guard_bytes - sizeof(*stack);
  struct stackd_altstack* larger = make(wanted > stack_bytes ? wanted : stack_bytes);
  if (larger == NULL) return NULL;
  stack_t own = {.ss_sp = stackd_altstack_low(larger), .ss_size = larger->size_bytes};
  if (ask_kernel(&own, NULL) != 0 || pthread_setspecific(key, larger) != 0) {
    stackd_altstack_free(larger);
    return NULL;
  }
  if (stack != NULL) stackd_altstack_free(stack);
  return larger;
}

void stackd_altstack_prepare(void) {
  guard_bytes = (size_t)sysconf(_SC_PAGESIZE);
  frame_bytes = getauxval(AT_MINSIGSTKSZ);
  if (frame_bytes == 0) frame_bytes = OLD_FRAME_BYTES;
  size_t wanted = frame_bytes + HANDLER_BYTES;
  if (wanted < MIN_STACK_BYTES) wanted = MIN_STACK_BYTES;
  /* Whole pages with what lies on top. */
  stack_bytes = (wanted + guard_bytes - 1) / guard_bytes * guard_bytes - sizeof(struct stackd_altstack);
  if (pthread_key_create(&key, thread_ends) == 0) atomic_store_explicit(&has_key, true, memory_order_release);
}

void stackd_altstack_init(void) {
  if (!atomic_load_explicit(&has_key, memory_order_acquire)) return;
  atomic_store_explicit(&ready, true, memory_order_release);
  struct stackd_altstack* stack = stackd_altstack_new();
  if (stack == NULL) return;
  /* The page in which it ends is touched already. */
  char* end = stackd_altstack_low(stack) + stack->size_bytes / guard_bytes * guard_bytes;
  stackd_touch(end - TOUCHED_BYTES, TOUCHED_BYTES);
  stackd_altstack_use(stack);
}
