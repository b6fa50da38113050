/* What the program wants done with the signals that the agent has taken. The agent stays the handler that the kernel knows.
 * It calls the program's action, and gives the program that action when it asks. */
#ifndef STACKD_SIGCHAIN_H_
#define STACKD_SIGCHAIN_H_

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/sys/syscalls.h"

/* As in <asm/signal.h>: what rt_sigaction takes. */
struct stackd_action {
  uint64_t handler;
  uint64_t flags;
  uint64_t restorer;
  uint64_t mask;
};

#define STACKD_ACTION_DEFAULT ((uint64_t)SIG_DFL)
#define STACKD_ACTION_IGNORE ((uint64_t)SIG_IGN)

/* By a handler that stays. */
STACKD_HANDLER_INLINE bool stackd_chain_is_handled(const struct stackd_action* action) {
  return action->handler != STACKD_ACTION_DEFAULT && action->handler != STACKD_ACTION_IGNORE &&
         (action->flags & (uint32_t)SA_RESETHAND) == 0;
}

/* SIGNAL-SAFE, any thread: the last of two that set at the same time counts, and no reader sees half of an action. */
void stackd_chain_set(int signal_number, const struct sigaction* action) STACKD_HANDLER;
void stackd_chain_get(int signal_number, struct sigaction* action) STACKD_HANDLER;

/* In the child of a fork: a thread of the parent's may have been setting one. */
void stackd_chain_reset_after_fork(void);

/* The action for a signal that is being delivered: with SA_RESETHAND it is SIG_DFL from then on. */
struct stackd_action stackd_chain_deliver(int signal_number) STACKD_HANDLER;

/* Like stackd_chain_deliver(), for a signal whose action is only looked at. */
struct stackd_action stackd_chain_peek(int signal_number) STACKD_HANDLER;

/* Whether the agent is the kernel's handler for the signal, and the program's action stands here. */
bool stackd_chain_is_taken(int signal_number) STACKD_HANDLER;

/* Whether the program's action is the default one now. */
bool stackd_chain_is_default(int signal_number) STACKD_HANDLER;

/* Whether the kernel has the default action for the signal. The program has set it behind our back, by a system call of its
 * own or because nothing of ours stands before its sigaction(). */
bool stackd_chain_is_cut(int signal_number) STACKD_HANDLER;

/* Calls the handler of `action` as the kernel would, mask included. It may not return. */
void stackd_chain_call(const struct stackd_action* action, int signal_number, siginfo_t* info,
                       void* context) STACKD_HANDLER;

/* Like stackd_chain_call(), where the kernel has set that mask. No system call. */
void stackd_chain_run(const struct stackd_action* action, int signal_number, siginfo_t* info, void* context) STACKD_HANDLER;

/* Gives the signal its default action and queues it to the calling thread with the same `info`. It is delivered, with the
 * interrupted context, when the handler that calls this returns. */
void stackd_chain_end(int signal_number, siginfo_t* info, void* context) STACKD_HANDLER;

#endif /* STACKD_SIGCHAIN_H_ */
