/* Starts and ends the agent's own thread, the helper.
 *
 * It has the rights of the thread that starts it. A thread of the program that is about to change its rights
 * ends the helper first and starts it again afterwards. So the helper never has more than that thread. */
#ifndef STACKD_LIFE_H_
#define STACKD_LIFE_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/sys/private_fd.h"

/* From now on it may be started. It does `run`, which returns when stackd_helper_is_to_end() says so. */
void stackd_helper_allow(void (*run)(void));

/* Starts it, unless it runs. 0 or a negative errno: -EPERM if the program has a filter of system calls (sys/filtered.h), or
 * if it is held. Then it starts when it is released. SIGNAL-SAFE; any thread. */
int stackd_helper_start(void) STACKD_HANDLER;

/* Ends it, and waits until it has ended. It waits a second at most, since the kernel may not end the call that it is in. It
 * does not start before as many calls of stackd_helper_release(); the last one starts it, if it ran. SIGNAL-SAFE; any
 * thread. */
void stackd_helper_hold(void);
void stackd_helper_release(void);

/* Lets a thread of the program do something in the helper's place. False: the helper runs, or may not, or another thread
 * does so now. Else no helper starts, and this thread gets no signal, until it steps back with the mask that it was given.
 */
bool stackd_helper_stand_in(uint64_t* mask);
void stackd_helper_step_back(uint64_t mask);

/* Whether it was ever to be started; in the child of a fork, whether its parent's was. */
bool stackd_helper_was_wanted(void);

/* In the child of a fork, where it does not run. */
void stackd_helper_life_reset_after_fork(void);

/* Its number, or 0. */
uint32_t stackd_helper_tid(void);

/* --- Of the helper itself --- */

/* The word is not 0 when it is to return. */
const uint32_t* stackd_helper_is_to_end(void);

/* The word is not 0 when it is to do so in the middle of a command. */
const uint32_t* stackd_helper_is_to_hurry(void);

/* The helper ends by itself, where it has nothing to do, in two steps. It begins to leave, makes sure that it can be woken,
 * and leaves. False: it is wanted, or is to end; it must go on. After true it must return at once. */
void stackd_helper_begin_leave(void);
bool stackd_helper_leave(void);
void stackd_helper_stay(void);

/* Sleeps; shorter if it is to end. */
void stackd_helper_rest(uint64_t duration_ns);

/* A pair of sockets of which this process has both ends, kept by the caller: a byte there ends a wait. No signal does:
 * one that is open in this thread would take what is sent to the process. NULL: none, and waits look every few
 * milliseconds. */
void stackd_helper_wake_by(const struct stackd_own_fd* read_end, const struct stackd_own_fd* write_end);

/* Waits for `events` of `fd`. 0; -ETIMEDOUT after `timeout_ns` (UINT64_MAX: never); -EINTR if it is to end. The first call
 * of each helper gives 0 also then, if the events are there. */
int stackd_helper_poll(int fd, short events, uint64_t timeout_ns);

#endif /* STACKD_LIFE_H_ */
