/* The handler of the wake signal. */
#ifndef STACKD_WAKE_HANDLER_H_
#define STACKD_WAKE_HANDLER_H_

#include <signal.h>

#include "agent/sys/syscalls.h"

/* The signal handler itself: HANDLER ONLY. */
void stackd_on_wake_signal(int signal_number, siginfo_t* info, void* context) STACKD_HANDLER;

#endif /* STACKD_WAKE_HANDLER_H_ */
