/* The agent's side of the socket (wire.h). NOT SIGNAL-SAFE. */
#ifndef STACKD_CONNECTION_H_
#define STACKD_CONNECTION_H_

#include "agent/helper/process.h"
#include "agent/ring/ring_writer.h"
#include "agent/sys/private_fd.h"
#include "stackd/wire.h"

struct stackd_connection {
  struct stackd_own_fd socket;
  struct stackd_own_fd spool; /* where a crash goes that the daemon does not take; may be none */
  struct stackd_ring ring;
  uint64_t ring_bytes;
};

/* Any message of the daemon's, checked: `header.size_bytes` is what was received, and enough for the type. */
union stackd_message {
  struct stackd_message_header header;
  struct stackd_welcome welcome;
  struct stackd_reject reject;
  struct stackd_open_file open_file;
  struct stackd_describe_fds describe_fds;
  struct stackd_describe_tasks describe_tasks;
};

/* Connects and registers: returns when the daemon has sent a ring. 0 or a negative errno; -EPROTO if it refused. */
int stackd_connection_open(struct stackd_connection* connection, const struct stackd_settings* settings,
                           const struct stackd_hello* hello, const struct stackd_process_files* files);

/* Blocks for the next message. 0; -ENOTCONN when the daemon is gone or the program closed our socket. */
int stackd_connection_receive(struct stackd_connection* connection, union stackd_message* message);

/* Sends a message, with `fd` if that is >= 0. Any thread. `flags` as of sendmsg(): the program's threads give MSG_DONTWAIT,
 * since the daemon may be stopped. 0 or a negative errno. */
int stackd_connection_send(const struct stackd_own_fd* socket, const struct stackd_message_header* message, int fd,
                           int flags);

/* Closes socket and spool file; the ring's memory stays. */
void stackd_connection_close(struct stackd_connection* connection);

#endif /* STACKD_CONNECTION_H_ */
