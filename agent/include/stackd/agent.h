/* The agent of stackd: lets the daemon take the stacks of this process when a user or a rule asks, and when it crashes.
 *
 * With LD_PRELOAD=libstackd_agent.so nothing here need be called. A program that links the agent (-lstackd_agent, or the
 * static //agent:stackd_agent) calls stackd_install() once, early in main.
 *
 * Costs: four fds above 200, one thread that sleeps, one signal (34, with musl 35, or STACKD_SIGNAL), 0.2 MiB of memory.
 * The agent takes the handlers of the signals that end a program; what the program sets for these is done as it would be.
 * With LD_PRELOAD each thread has an alternate signal stack, of which one page is touched. A process that crashes ends up
 * to 2 s later (STACKD_CRASH_HOLD_MS), some milliseconds where the daemon is well. No call here ever fails the program:
 * without a daemon the agent waits for one.
 *
 * Environment:
 *     STACKD_DIR            the daemon's folder; not set: /run/stackd
 *     STACKD_DAEMON_UID     the user that is taken for the daemon, or any; not set: root, the process's own user, or the
 *                           user to whom root gave the folder
 *     STACKD_NAME           name of this process
 *     STACKD_SIGNAL         the signal for dumps
 *     STACKD_CRASH_SIGNALS  which are crashes: SEGV,BUS,ILL,FPE,ABRT,TRAP,SYS, some of these, or none
 *     STACKD_CRASH_HOLD_MS  not set: 2000
 *     STACKD_SHARE          what of the memory the daemon may read: stacks, names or memory; not set: names, or memory
 *                           where a runtime needs it
 *     STACKD_DISABLE=1      the agent does nothing at all
 * Variables that say where the process runs (wire.h) are sent to the daemon.
 *
 * All functions: NOT SIGNAL-SAFE unless it is said, any thread, at any time. Errors are negative errno values.
 */
#ifndef STACKD_AGENT_H_
#define STACKD_AGENT_H_

#ifdef __cplusplus
extern "C" {
#endif

/* Installs the handlers and starts the helper thread; a second call does nothing. Crash signals that have a handler already
 * keep it, behind ours; handlers that the program installs later replace ours. 0, what sigaction or pthread_create gave, or
 *   -ECANCELED  STACKD_DISABLE=1; or the program has more rights than its caller (setuid), who chose the environment
 *   -EEXIST     in an agent linked in: LD_PRELOAD has brought one, which serves the process, and whose functions are others
 *   -EBUSY      the dump signal has a handler already */
int stackd_install(void);

/* Names this process in `stackctl ps` and in dumps. At most 63 bytes are kept; NULL or "" goes back to argv[0].
 * 0; -EINVAL for a control character in `name`. */
int stackd_set_process_name(const char* name);

/* Names the calling thread, for the kernel and so for dumps. At most 15 bytes are kept, of whole UTF-8 characters; NULL or
 * "" is an empty name. 0; -EINVAL for a control character in `name`. */
int stackd_name_thread(const char* name);

/* Asks the daemon for a dump of this process and waits until its threads were captured, at most `timeout_ms`; 0 does not
 * wait. 0; -ENOTCONN without a daemon; -ETIMEDOUT. */
int stackd_dump_now(int timeout_ms);

/* Like stackd_dump_now(), because of an exception that the calling thread does not catch: the dump is that of a crash. Of
 * `type`, which is the exception's and not its message, at most 127 bytes are kept. Also -EINVAL, where that is empty. */
int stackd_dump_exception(const char* type, int timeout_ms);

/* A promise of the program's that a piece of work comes round again in time: an event loop, a worker, a poller. The daemon
 * watches it from outside, so that it works with every thread of the process stuck. Where the promise is broken it takes a
 * dump with the thread that registered it first. */
typedef struct stackd_heartbeat_cell stackd_heartbeat_t;

/* Registers a heartbeat, which is watched from the first beat on. `limit_ms` is the longest time between two beats that is
 * well, 10 at least. At most 47 bytes of `name` are kept. Never NULL: where all 64 are taken, it gives one that is not
 * watched. */
stackd_heartbeat_t* stackd_heartbeat_register(const char* name, unsigned limit_ms);

/* Says "I am alive". One store; SIGNAL-SAFE; any thread. */
void stackd_beat(stackd_heartbeat_t* heartbeat);

/* Ends the watch until the next beat: before a wait for work that may last. SIGNAL-SAFE. */
void stackd_heartbeat_suspend(stackd_heartbeat_t* heartbeat);

/* Ends a heartbeat, which is not to be used any more. */
void stackd_heartbeat_unregister(stackd_heartbeat_t* heartbeat);

/* Takes what a task source has to say: `bytes` are read before it returns. */
typedef void stackd_give_tasks_fn(void* receiver, const void* bytes, unsigned long size_bytes);

/* Tells which tasks a runtime schedules by itself, for a dump: calls `give` once with a stackd_task_table (wire.h), or not
 * at all. Called by the agent's own thread, one call at a time; as long as it has not returned no other dump begins. So the
 * tasks have `limit_ms` to say where they wait, and it returns 100 ms later at the latest, whatever state the program is
 * in. */
typedef void stackd_task_source_fn(unsigned limit_ms, stackd_give_tasks_fn* give, void* receiver);

/* From now on `source` is asked at each dump but that of a crash. The child of a fork has none: the threads that ran its
 * tasks are gone. 0; -ECANCELED with STACKD_DISABLE=1. */
int stackd_set_task_source(stackd_task_source_fn* source);

/* "0.1.0" */
const char* stackd_version(void);

#ifdef __cplusplus
}
#endif

#endif /* STACKD_AGENT_H_ */
