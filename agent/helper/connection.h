/* The agent's side of the socket (wire.h). NOT SIGNAL-SAFE. */
#ifndef STACKD_CONNECTION_H_
#define STACKD_CONNECTION_H_

#include <stdbool.h>

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
  struct stackd_ask_waits ask_waits;
  struct stackd_read_image read_image;
};

/* Connects to the daemon, if there is one. 0 or a negative errno. SIGNAL-SAFE. */
int stackd_connection_open(struct stackd_connection* connection, const struct stackd_settings* settings);

/* Says HELLO; does not wait for the answer. 0 or a negative errno: then the connection is closed. SIGNAL-SAFE. */
int stackd_connection_say_hello(struct stackd_connection* connection, const struct stackd_hello* described,
                                const struct stackd_settings* settings, const struct stackd_process_files* files);

/* Waits for the daemon's ring, the answer to HELLO. 0 or a negative errno: -EPROTO if it refused, -EINTR if the helper is
 * to end; then it may be called again. Helper thread only. */
int stackd_connection_complete(struct stackd_connection* connection);

/* Whether the daemon has ended the connection, or the program has closed it. SIGNAL-SAFE. */
bool stackd_connection_is_over(const struct stackd_connection* connection);

/* Sends `fd` along; see stackd_connection_send(). */
int stackd_connection_send_fd(const struct stackd_own_fd* socket, const struct stackd_message_header* message, int fd);

/* Waits for the next message, for `timeout_ns` at most (UINT64_MAX: for ever). 0; -ENOTCONN when the daemon is gone or the
 * program closed our socket; -EPROTO: it makes no sense; -ETIMEDOUT; -EINTR: the helper is to end. Helper thread only. */
int stackd_connection_receive(struct stackd_connection* connection, union stackd_message* message, uint64_t timeout_ns);

/* Sends a message. Any thread; it does not wait, since the daemon may be stopped. 0 or a negative errno. */
int stackd_connection_send(const struct stackd_own_fd* socket, const struct stackd_message_header* message);

/* The same with `fd` if that is >= 0. Waits for room until the helper is to end. Helper thread only. */
int stackd_connection_answer(const struct stackd_connection* connection, const struct stackd_message_header* message,
                             int fd);

/* Closes socket and spool file; the ring's memory stays. */
void stackd_connection_close(struct stackd_connection* connection);

#endif /* STACKD_CONNECTION_H_ */
