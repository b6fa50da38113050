/* The agent of stackd: lets the daemon take the stacks of this process when somebody asks.
 *
 * With LD_PRELOAD=libstackd_agent.so nothing here need be called. A program that links the agent (-lstackd_agent, or the
 * static //agent:stackd_agent) calls stackd_install() once, early in main.
 *
 * Costs: three fds above 200, one thread that sleeps, one signal (34, or STACKD_SIGNAL). No call here ever fails the
 * program: without a daemon the agent waits for one.
 *
 * Environment: STACKD_DIR (default /run/stackd), STACKD_NAME (name of this process), STACKD_SIGNAL, STACKD_DISABLE=1 (the
 * agent does nothing at all).
 *
 * All functions: NOT SIGNAL-SAFE, any thread, at any time. Errors are negative errno values.
 */
#ifndef STACKD_AGENT_H_
#define STACKD_AGENT_H_

#ifdef __cplusplus
extern "C" {
#endif

/* Installs the dump handler and starts the helper thread; a second call does nothing.
 * 0; -ECANCELED with STACKD_DISABLE=1; -EBUSY if the dump signal has a handler already; else what sigaction or
 * pthread_create gave. */
int stackd_install(void);

/* Names this process in `stackctl ps` and in dumps. At most 63 bytes are kept; NULL or "" goes back to argv[0].
 * 0; -EINVAL for a control character in `name`. */
int stackd_set_process_name(const char* name);

/* Asks the daemon for a dump of this process and waits until its threads were captured, at most `timeout_ms`; 0 does not
 * wait. 0; -ENOTCONN without a daemon; -ETIMEDOUT. */
int stackd_dump_now(int timeout_ms);

/* "0.1.0" */
const char* stackd_version(void);

#ifdef __cplusplus
}
#endif

#endif /* STACKD_AGENT_H_ */
