/* An alternate stack that several threads have at once. A program may do so: for a handler that runs once, at its end.
 *
 * Our handlers have SA_ONSTACK, and run in many threads at once. (Without it a signal would be written to where a
 * language's own small stacks have no room for it: Go's, Erlang's, OCaml's.) So only one thread has a stack that the
 * program has given it. Each further one that is given the same keeps one of the agent's, which is as large, and is told
 * that it has the program's.
 *
 * Nothing here makes a system call that the program's own sigaltstack() would not, but where a stack is shared. */
#ifndef STACKD_SHARED_ALTSTACK_H_
#define STACKD_SHARED_ALTSTACK_H_

#include <signal.h>
#include <stdbool.h>

/* What sigaltstack() does for the program: 0 or a negative errno. Any thread, in handlers too. */
int stackd_program_altstack(const stack_t* wanted, stack_t* before);

/* Whether the calling thread is the one that has the stack at `low`. */
bool stackd_program_altstack_is_claimed(const void* low);
/* From now on it is not. */
void stackd_program_altstack_release(const void* low);

#endif /* STACKD_SHARED_ALTSTACK_H_ */
