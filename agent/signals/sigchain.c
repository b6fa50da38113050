#include "agent/signals/sigchain.h"

#include <ucontext.h>

#include "agent/sys/filtered.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/large.h"
#include "agent/sys/process_id.h"

#define SIGNALS 65
#define NODES 8
#define MAX_TRIES 100 /* each was disturbed by as many writes as there are nodes */
#define RETRY_NS 50000
#define MAX_SPINS 10000

/* Writers take turns. One fills the next node and then publishes it: `current` is the ticket of the node that counts, 0
 * before the first. A node is used again after NODES more writes; a reader notices by the ticket. */
struct node {
  uint32_t ticket;
  struct stackd_action action;
};

static uint32_t current[SIGNALS];
/* Ordered so that the first actions of all signals lie together: a start touches no more. */
static STACKD_LARGE struct node nodes[NODES][SIGNALS];

static uint32_t being_written;

/* Under a filter of the program's no system call is made. A writer that this thread has interrupted does not go on before
 * it returns, so it is not waited for without end. What it sets then comes after. */
STACKD_HANDLER static void begin_writing_under_filter(void) {
  for (int i = 0; i < MAX_SPINS; i++) {
    if (__atomic_exchange_n(&being_written, 1, __ATOMIC_ACQUIRE) == 0) return;
    __builtin_ia32_pause();
  }
}

struct writing {
  uint64_t mask_before;
  bool is_blocked;
};

/* No signal may come between: its handler may write too. */
STACKD_HANDLER static struct writing begin_writing(void) {
  struct writing writing = {0, !stackd_is_filtered()};
  if (!writing.is_blocked) {
    begin_writing_under_filter();
    return writing;
  }
  uint64_t all = ~0ull;
  stackd_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&writing.mask_before, 8, 0, 0);
  while (__atomic_exchange_n(&being_written, 1, __ATOMIC_ACQUIRE) != 0) {
    struct timespec pause = {0, RETRY_NS};
    stackd_futex_wait(&being_written, 1, &pause, FUTEX_PRIVATE_FLAG);
  }
  return writing;
}

STACKD_HANDLER static void end_writing(struct writing writing) {
  __atomic_store_n(&being_written, 0, __ATOMIC_RELEASE);
  if (!writing.is_blocked) return;
  stackd_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&writing.mask_before, 0, 8, 0, 0);
}

void stackd_chain_reset_after_fork(void) { STACKD_RESET(being_written, 0); }

STACKD_HANDLER static void publish(int signal_number, const struct stackd_action* action) {
  uint32_t ticket = current[signal_number] + 1;
  if (ticket == 0) ticket = 1;
  struct node* node = &nodes[ticket % NODES][signal_number];
  __atomic_store_n(&node->ticket, 0, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  __atomic_store_n(&node->action.handler, action->handler, __ATOMIC_RELAXED);
  __atomic_store_n(&node->action.flags, action->flags, __ATOMIC_RELAXED);
  __atomic_store_n(&node->action.restorer, action->restorer, __ATOMIC_RELAXED);
  __atomic_store_n(&node->action.mask, action->mask, __ATOMIC_RELAXED);
  __atomic_store_n(&node->ticket, ticket, __ATOMIC_RELEASE);
  __atomic_store_n(&current[signal_number], ticket, __ATOMIC_RELEASE);
}

/* Returns the ticket, 0 if nothing was set yet. */
STACKD_HANDLER static uint32_t read_current(int signal_number, struct stackd_action* action) {
  *action = (struct stackd_action){STACKD_ACTION_DEFAULT, 0, 0, 0};
  for (int i = 0; i < MAX_TRIES; i++) {
    uint32_t ticket = __atomic_load_n(&current[signal_number], __ATOMIC_ACQUIRE);
    if (ticket == 0) return 0;
    const struct node* node = &nodes[ticket % NODES][signal_number];
    if (__atomic_load_n(&node->ticket, __ATOMIC_ACQUIRE) != ticket) continue;
    action->handler = __atomic_load_n(&node->action.handler, __ATOMIC_RELAXED);
    action->flags = __atomic_load_n(&node->action.flags, __ATOMIC_RELAXED);
    action->restorer = __atomic_load_n(&node->action.restorer, __ATOMIC_RELAXED);
    action->mask = __atomic_load_n(&node->action.mask, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (__atomic_load_n(&node->ticket, __ATOMIC_RELAXED) == ticket) return ticket;
  }
  return 0;
}

void stackd_chain_set(int signal_number, const struct sigaction* action) {
  /* The kernel's set is the first word of glibc's. */
  struct stackd_action stored = {(uint64_t)action->sa_sigaction, (uint32_t)action->sa_flags, (uint64_t)action->sa_restorer,
                                 *(const uint64_t*)&action->sa_mask};
  stored.mask &= ~(1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1));
  struct writing writing = begin_writing();
  publish(signal_number, &stored);
  end_writing(writing);
}

bool stackd_chain_is_taken(int signal_number) { return __atomic_load_n(&current[signal_number], __ATOMIC_ACQUIRE) != 0; }

void stackd_chain_get(int signal_number, struct sigaction* out) {
  struct stackd_action action;
  read_current(signal_number, &action);
  out->sa_sigaction = (void (*)(int, siginfo_t*, void*))action.handler;
  out->sa_flags = (int)action.flags;
  out->sa_restorer = (void (*)(void))action.restorer;
  uint64_t* words = (uint64_t*)&out->sa_mask;
  for (size_t i = 0; i < sizeof(out->sa_mask) / sizeof(*words); i++) words[i] = i == 0 ? action.mask : 0;
}

STACKD_HANDLER static void set_default(int signal_number) {
  struct stackd_action default_action = {STACKD_ACTION_DEFAULT, 0, 0, 0};
  stackd_syscall6(SYS_rt_sigaction, signal_number, (long)&default_action, 0, 8, 0, 0);
}

struct stackd_action stackd_chain_deliver(int signal_number) {
  struct stackd_action action;
  uint32_t ticket = read_current(signal_number, &action);
  bool once = (action.flags & (uint32_t)SA_RESETHAND) != 0 && action.handler != STACKD_ACTION_DEFAULT;
  if (once && stackd_is_other_process()) {
    /* The next one ends the child, and the parent still has its handler. */
    set_default(signal_number);
  } else if (once) {
    struct stackd_action reset = action;
    reset.handler = STACKD_ACTION_DEFAULT;
    struct writing writing = begin_writing();
    if (current[signal_number] == ticket) publish(signal_number, &reset);
    end_writing(writing);
  }
  return action;
}

struct stackd_action stackd_chain_peek(int signal_number) {
  struct stackd_action action;
  read_current(signal_number, &action);
  return action;
}

bool stackd_chain_is_default(int signal_number) {
  return stackd_chain_peek(signal_number).handler == STACKD_ACTION_DEFAULT;
}

bool stackd_chain_is_cut(int signal_number) {
  struct stackd_action now;
  return stackd_syscall6(SYS_rt_sigaction, signal_number, 0, (long)&now, 8, 0, 0) == 0 &&
         now.handler == STACKD_ACTION_DEFAULT;
}

/* The one place that calls what is not ours (tests/safety). */
__attribute__((noinline)) void stackd_chain_run(const struct stackd_action* action, int signal_number, siginfo_t* info,
                                                void* context) {
  /* The kernel too hands all three to every handler. */
  ((void (*)(int, siginfo_t*, void*))action->handler)(signal_number, info, context);
}

void stackd_chain_call(const struct stackd_action* action, int signal_number, siginfo_t* info, void* context) {
  uint64_t mask = *(const uint64_t*)&((const ucontext_t*)context)->uc_sigmask | action->mask;
  if ((action->flags & SA_NODEFER) == 0) mask |= 1ull << (signal_number - 1);
  stackd_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, 8, 0, 0);
  stackd_chain_run(action, signal_number, info, context);
}

void stackd_chain_end(int signal_number, siginfo_t* info, void* context) {
  /* Or it would be delivered when it is queued, and the core would show this function. */
  uint64_t all = ~0ull;
  stackd_syscall6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, 0, 8, 0, 0);
  set_default(signal_number);
  *(uint64_t*)&((ucontext_t*)context)->uc_sigmask &= ~(1ull << (signal_number - 1));
  int32_t pid = stackd_getpid();
  int32_t tid = stackd_gettid();
  /* Any si_code may be sent to oneself. */
  if (stackd_syscall6(SYS_rt_tgsigqueueinfo, pid, tid, signal_number, (long)info, 0, 0) == 0) return;
  stackd_syscall6(SYS_tgkill, pid, tid, signal_number, 0, 0, 0);
}
