/* Answers what the daemon asks of memory that it has no fd of. That is what lies at the words that threads of this process
 * wait on now, and nothing else. Helper thread only: NOT SIGNAL-SAFE. */
#ifndef STACKD_WAIT_WORDS_H_
#define STACKD_WAIT_WORDS_H_

#include "stackd/wire.h"

/* Fills in `words` for a request that was checked. */
void stackd_wait_words(const struct stackd_ask_waits* request, struct stackd_wait_words* words);

#endif /* STACKD_WAIT_WORDS_H_ */
