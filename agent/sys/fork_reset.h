/* How static memory gets its first values back in the child of a fork. */
#ifndef STACKD_FORK_RESET_H_
#define STACKD_FORK_RESET_H_

/* Writes only what differs: a page that the child does not write to stays its parent's, and costs no copy. There is one
 * thread, so it matters not whether `variable` is atomic. */
#define STACKD_RESET(variable, value)                \
  do {                                               \
    if ((variable) != (value)) (variable) = (value); \
  } while (0)

/* Marks what each fork writes, or looks at although it may never have been used. It lies together, beside what has a first
 * value, so that the child copies one page for it. */
#define STACKD_AT_FORK __attribute__((section(".data")))

#endif /* STACKD_FORK_RESET_H_ */
