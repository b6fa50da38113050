/* Alternate signal stacks: without one, a thread that has used up its stack dies before any handler runs. */
#ifndef STACKD_ALTSTACK_H_
#define STACKD_ALTSTACK_H_

#include <stddef.h>

/* A mapping of its own: a guard page, the stack, and at its top this. */
struct stackd_altstack {
  void (*start_routine)(void); /* of the thread that it is for; the type is its creator's business */
  void* argument;
};

/* NULL without memory, where there are very many, or before stackd_altstack_init(). NOT SIGNAL-SAFE, any thread. */
struct stackd_altstack* stackd_altstack_new(void);
void stackd_altstack_free(struct stackd_altstack* stack);

/* Makes it the calling thread's, unless that has one. From then on it is freed when the thread ends. */
void stackd_altstack_use(struct stackd_altstack* stack);

/* At install: for the calling thread, and so that others can have some. */
void stackd_altstack_init(void);

#endif /* STACKD_ALTSTACK_H_ */
