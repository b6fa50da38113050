/* The user that listens where this process connects: only the daemon is handed its memory. Helper thread, or the thread
 * that stands in for it: NOT SIGNAL-SAFE. */
#ifndef STACKD_LISTENER_H_
#define STACKD_LISTENER_H_

#include "agent/helper/process.h"

/* 0 if the listener at the other end of the socket may be taken for the daemon; else a negative errno, -EPERM if not.
 *
 * Where STACKD_DAEMON_UID names a user it is that user. Else it is root, this process's own user, or the user to whom root
 * gave the folder of the socket. In the last case the folder is that user's alone, and the one above is root's alone: no
 * other may write to it. */
int stackd_listener_check(int socket_fd, const struct stackd_settings* settings);

#endif /* STACKD_LISTENER_H_ */
