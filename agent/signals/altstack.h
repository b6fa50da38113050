/* Alternate signal stacks: without one, a thread that has used up its stack dies before any handler runs. */
#ifndef STACKD_ALTSTACK_H_
#define STACKD_ALTSTACK_H_

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* A mapping of its own: a guard page, the stack, and at its top this. */
struct stackd_altstack {
  void (*start_routine)(void); /* of the thread that it is for; the type is its creator's business */
  void* argument;
  size_t size_bytes; /* of the stack */
  /* What the program is told that it has (shared_altstack.h); ss_sp is NULL if that is what it has. */
  stack_t shown;
};

/* Whether each thread has one, as far as is known: then a signal has room wherever the thread is. */
bool stackd_altstack_is_everywhere(void);

/* Called where a program takes one away. */
void stackd_altstack_is_taken_away(void);

/* What the kernel needs of a stack for a signal. */
size_t stackd_signal_frame_bytes(void);

/* NULL without memory, where there are very many, or before stackd_altstack_init(). NOT SIGNAL-SAFE, any thread. */
struct stackd_altstack* stackd_altstack_new(void);
void stackd_altstack_free(struct stackd_altstack* stack);

/* Its lowest byte. */
char* stackd_altstack_low(const struct stackd_altstack* stack);

/* Makes it the calling thread's, unless that has one. From then on it is freed when the thread ends. */
void stackd_altstack_use(struct stackd_altstack* stack);

/* The one that is kept for the calling thread, whatever the kernel has for it; NULL: none. */
struct stackd_altstack* stackd_altstack_of_thread(void);

/* The same, with room for `size_bytes`: a new one where it has none, or a smaller one that it is not on. NULL without
 * memory.
 */
struct stackd_altstack* stackd_altstack_with_room(size_t size_bytes);

/* At install, before any of these. NOT SIGNAL-SAFE. */
void stackd_altstack_prepare(void);

/* After that: for the calling thread, and so that others can have some. */
void stackd_altstack_init(void);

#endif /* STACKD_ALTSTACK_H_ */
