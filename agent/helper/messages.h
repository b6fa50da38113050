/* What the daemon asks of the helper by the socket: files, names of fds, words that threads wait on, tasks. */
#ifndef STACKD_MESSAGES_H_
#define STACKD_MESSAGES_H_

#include "agent/helper/connection.h"

/* Answers a message; does nothing for one that is no question. Helper thread only: NOT SIGNAL-SAFE. */
void stackd_helper_answer(const union stackd_message* message);

#endif /* STACKD_MESSAGES_H_ */
