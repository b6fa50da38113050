/* Programs that live by faults: crash_recovers HOW COUNT [THREADS] [await]. Each thread takes COUNT of them.
 *
 *   jump      the handler jumps out (siglongjmp), as lisps and null checks by hand do
 *   rewrite   the handler writes another program counter into the context, as Java virtual machines do
 *   context   the handler leaves by setcontext
 *   barrier   a write to a protected page; the handler records and unprotects it, as generational collectors do
 *   altstack  COUNT threads, THREADS at a time, each with an alternate stack of its own, which must still be that at its
 *             end, and with a fault on it
 *   then_die  jump, and at the end a null pointer in die_at_last()
 *   then_exit the last handler that runs calls _exit(5)
 *
 * Prints what it counted, and on stderr what one fault cost. */
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#include "tests/programs/crash.h"
#include "tests/programs/victim.h"

enum { kMaxThreads = 64, kPages = 64, kPageBytes = 4096, kAlternateBytes = 64 << 10 };

static const char* how;
static long count, threads = 1;
static char* unmapped;
static char* heap; /* kMaxThreads times kPages pages */
static volatile char dirty[kMaxThreads * kPages];
static volatile long faults; /* atomic */

/* What a handler must know of the thread it runs in: found by the thread pointer, as it needs no call. */
struct worker {
  sigjmp_buf back;
  ucontext_t context;
  volatile long taken;
  volatile int jumped;
  long index;
};
static __thread struct worker self;

extern char load_pc[], load_end[];

VICTIM_NOINLINE static int load(const volatile int* address) {
  int value;
  __asm__ volatile(".globl load_pc, load_end\nload_pc: movl (%1), %0\nload_end:" : "=r"(value) : "r"(address) : "memory");
  return value;
}

static void on_jump(int number) {
  (void)number;
  __atomic_add_fetch(&faults, 1, __ATOMIC_RELAXED);
  siglongjmp(self.back, 1);
}

static void on_rewrite(int number, siginfo_t* info, void* raw) {
  (void)number;
  ucontext_t* context = raw;
  if ((char*)info->si_addr != unmapped + 8) _exit(90);
  if ((char*)context->uc_mcontext.gregs[REG_RIP] != load_pc) _exit(91);
  __atomic_add_fetch(&faults, 1, __ATOMIC_RELAXED);
  context->uc_mcontext.gregs[REG_RIP] = (greg_t)load_end;
}

static void on_context(int number) {
  (void)number;
  __atomic_add_fetch(&faults, 1, __ATOMIC_RELAXED);
  self.jumped = 1;
  setcontext(&self.context);
}

static void on_barrier(int number, siginfo_t* info, void* raw) {
  (void)number, (void)raw;
  long page = ((char*)info->si_addr - heap) / kPageBytes;
  if (page < 0 || page >= kMaxThreads * kPages) _exit(92);
  dirty[page] = 1;
  __atomic_add_fetch(&faults, 1, __ATOMIC_RELAXED);
  mprotect(heap + page * kPageBytes, kPageBytes, PROT_READ | PROT_WRITE);
}

static void on_last(int number) {
  (void)number;
  if (self.taken == count) _exit(5);
  siglongjmp(self.back, 1);
}

static void take_by_jump(struct worker* me) {
  for (me->taken = 1; me->taken <= count; me->taken++) {
    if (sigsetjmp(me->back, 1) == 0) {
      load((int*)(unmapped + 8));
      _exit(93);
    }
  }
}

static void take_by_rewrite(struct worker* me) {
  for (me->taken = 1; me->taken <= count; me->taken++) load((int*)(unmapped + 8));
}

static void take_by_context(struct worker* me) {
  for (me->taken = 1; me->taken <= count; me->taken++) {
    me->jumped = 0;
    getcontext(&me->context);
    if (!me->jumped) load((int*)(unmapped + 8));
  }
}

static void write_through_barriers(struct worker* me) {
  char* mine = heap + me->index * kPages * kPageBytes;
  volatile char* marks = dirty + me->index * kPages;
  for (me->taken = 0; me->taken < count;) {
    mprotect(mine, kPages * kPageBytes, PROT_READ);
    for (int i = 0; i < kPages; ++i) marks[i] = 0;
    for (int i = 0; i < kPages && me->taken < count; ++i, ++me->taken) {
      *(volatile char*)(mine + i * kPageBytes) += 1;
      if (!marks[i]) _exit(94);
    }
  }
}

VICTIM_NOINLINE static void die_at_last(void) {
  *(volatile int*)(unmapped + 16) = 1;
  VICTIM_NOT_A_TAIL_CALL();
}

static void* work(void* argument) {
  struct worker* me = &self;
  me->index = (long)argument;
  if (strcmp(how, "rewrite") == 0) {
    take_by_rewrite(me);
  } else if (strcmp(how, "context") == 0) {
    take_by_context(me);
  } else if (strcmp(how, "barrier") == 0) {
    write_through_barriers(me);
  } else {
    take_by_jump(me);
  }
  return NULL;
}

static void* work_on_own_altstack(void* argument) {
  char* memory = mmap(NULL, kAlternateBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack_t mine = {.ss_sp = memory, .ss_size = kAlternateBytes}, now;
  victim_check(memory != MAP_FAILED && sigaltstack(&mine, NULL) == 0, "sigaltstack");
  self.index = (long)argument;
  if (sigsetjmp(self.back, 1) == 0) load((int*)(unmapped + 8));
  victim_check(sigaltstack(NULL, &now) == 0 && now.ss_sp == mine.ss_sp && now.ss_size == mine.ss_size && now.ss_flags == 0,
               "the alternate stack is not the thread's own");
  stack_t none = {.ss_flags = SS_DISABLE};
  victim_check(sigaltstack(&none, NULL) == 0, "sigaltstack off");
  munmap(memory, kAlternateBytes);
  return NULL;
}

static void handle(void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
  victim_check(sigaction(SIGSEGV, &action, NULL) == 0, "sigaction");
}

static void install(void) {
  if (strcmp(how, "rewrite") == 0) {
    handle(on_rewrite, SA_RESTART);
  } else if (strcmp(how, "context") == 0) {
    signal(SIGSEGV, on_context);
  } else if (strcmp(how, "barrier") == 0) {
    handle(on_barrier, SA_RESTART);
  } else if (strcmp(how, "altstack") == 0) {
    struct sigaction action = {.sa_handler = on_jump, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
  } else if (strcmp(how, "then_exit") == 0) {
    signal(SIGSEGV, on_last);
  } else {
    signal(SIGSEGV, on_jump);
  }
}

static void run_threads(void* (*body)(void*), long how_many) {
  pthread_t handles[kMaxThreads];
  for (long i = 0; i < how_many; ++i) {
    victim_check(pthread_create(&handles[i], NULL, body, (void*)i) == 0, "pthread_create");
  }
  for (long i = 0; i < how_many; ++i) pthread_join(handles[i], NULL);
}

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int argc, char** argv) {
  victim_check(argc > 2, "usage: crash_recovers HOW COUNT [THREADS] [await]");
  how = argv[1];
  count = atol(argv[2]);
  if (argc > 3 && atol(argv[3]) > 0) threads = atol(argv[3]);
  victim_check(threads <= kMaxThreads, "too many threads");
  unmapped = mmap(NULL, kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  heap = mmap(NULL, (size_t)kMaxThreads * kPages * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (strcmp(argv[argc - 1], "await") == 0) crash_await_ring();
  install();

  double start = now_ns();
  if (strcmp(how, "altstack") == 0) {
    for (long done = 0; done < count; done += threads) run_threads(work_on_own_altstack, threads);
  } else if (threads == 1) {
    work(NULL);
  } else {
    run_threads(work, threads);
  }
  fprintf(stderr, "ns per fault: %.0f\n", (now_ns() - start) / (double)(count * threads));
  printf("%s: %ld faults\n", how, faults);
  fflush(stdout);
  if (strcmp(how, "then_die") == 0) {
    signal(SIGSEGV, SIG_DFL);
    die_at_last();
  }
  return 0;
}
