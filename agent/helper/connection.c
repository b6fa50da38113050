#include "agent/helper/connection.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "agent/helper/life.h"
#include "agent/helper/listener.h"
#include "agent/ring/ring_check.h"
#include "agent/sys/kernel.h"

#define MAX_FDS 5
#define STATUS_FILES 3

struct control {
  _Alignas(struct cmsghdr) char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
};

static int send_with_fds(int socket_fd, const struct stackd_message_header* message, const int* fds, unsigned fd_count) {
  struct iovec part = {(void*)message, message->size_bytes};
  struct control control;
  struct msghdr header;
  memset(&header, 0, sizeof(header));
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd_count > 0) {
    memset(&control, 0, sizeof(control));
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    struct cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
  }
  long sent = stackd_syscall6(SYS_sendmsg, socket_fd, (long)&header, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0, 0);
  return sent < 0 ? (int)sent : 0;
}

int stackd_connection_send(const struct stackd_own_fd* socket, const struct stackd_message_header* message) {
  int socket_fd = stackd_own_fd_get(socket);
  return socket_fd >= 0 ? send_with_fds(socket_fd, message, NULL, 0) : -ENOTCONN;
}

int stackd_connection_send_fd(const struct stackd_own_fd* socket, const struct stackd_message_header* message, int fd) {
  int socket_fd = stackd_own_fd_get(socket);
  return socket_fd >= 0 ? send_with_fds(socket_fd, message, &fd, 1) : -ENOTCONN;
}

bool stackd_connection_is_over(const struct stackd_connection* connection) {
  int socket_fd = stackd_own_fd_get(&connection->socket);
  struct pollfd look = {socket_fd, POLLRDHUP, 0};
  const struct timespec no_time = {0, 0};
  return socket_fd < 0 || stackd_ppoll(&look, 1, &no_time) > 0;
}

int stackd_connection_answer(const struct stackd_connection* connection, const struct stackd_message_header* message,
                             int fd) {
  for (;;) {
    int socket_fd = stackd_own_fd_get(&connection->socket);
    if (socket_fd < 0) return -ENOTCONN;
    int error = send_with_fds(socket_fd, message, &fd, fd >= 0 ? 1 : 0);
    if (error != -EAGAIN) return error;
    error = stackd_helper_poll(socket_fd, POLLOUT, UINT64_MAX);
    if (error != 0) return error;
  }
}

static bool is_whole(const union stackd_message* message) {
  const struct stackd_message_header* header = &message->header;
  switch (header->type) {
    case STACKD_MSG_WELCOME:
      return header->size_bytes >= sizeof(struct stackd_welcome);
    case STACKD_MSG_REJECT:
      return header->size_bytes >= sizeof(struct stackd_reject);
    case STACKD_MSG_OPEN_FILE:
      return header->size_bytes >= sizeof(struct stackd_open_file);
    case STACKD_MSG_DESCRIBE_FDS:
    case STACKD_MSG_DESCRIBE_EPOLLS:
      return header->size_bytes >= sizeof(struct stackd_describe_fds) &&
             message->describe_fds.fd_count <= STACKD_MAX_DESCRIBED_FDS;
    case STACKD_MSG_ASK_WAITS:
      return header->size_bytes >= sizeof(struct stackd_ask_waits) &&
             message->ask_waits.question_count <= STACKD_MAX_ASKED_WAITS;
    case STACKD_MSG_READ_IMAGE:
      return header->size_bytes >= sizeof(struct stackd_read_image) &&
             message->read_image.size_bytes <= STACKD_MAX_IMAGE_BYTES;
    case STACKD_MSG_DESCRIBE_TASKS:
      return header->size_bytes >= sizeof(struct stackd_describe_tasks);
    default:
      return true;
  }
}

/* A ring and a spool file come with WELCOME. */
#define MAX_RECEIVED_FDS 2

static void close_fds(const int fds[MAX_RECEIVED_FDS]) {
  for (int i = 0; i < MAX_RECEIVED_FDS; i++) {
    if (fds[i] >= 0) stackd_close(fds[i]);
  }
}

/* What is there now. `fds` are those that came, then -1. */
static int receive_with_fds(int socket_fd, union stackd_message* message, int fds[MAX_RECEIVED_FDS]) {
  struct iovec part = {message, sizeof(*message)};
  struct control control;
  struct msghdr header;
  memset(&header, 0, sizeof(header));
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes;
  header.msg_controllen = sizeof(control.bytes);
  for (int i = 0; i < MAX_RECEIVED_FDS; i++) fds[i] = -1;
  int count = 0;
  long got = stackd_syscall6(SYS_recvmsg, socket_fd, (long)&header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT, 0, 0, 0);
  if (got == -EAGAIN) return -EAGAIN;
  if (got <= 0) return -ENOTCONN;
  for (struct cmsghdr* c = CMSG_FIRSTHDR(&header); c != NULL; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; i++) {
      int received;
      memcpy(&received, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      if (count < MAX_RECEIVED_FDS) {
        fds[count++] = received;
      } else {
        stackd_close(received);
      }
    }
  }
  if (got < (ssize_t)sizeof(message->header) || message->header.size_bytes != (uint32_t)got || !is_whole(message)) {
    close_fds(fds);
    return -EPROTO;
  }
  return 0;
}

static int await_message(int socket_fd, union stackd_message* message, int fds[MAX_RECEIVED_FDS], uint64_t timeout_ns) {
  for (;;) {
    int error = stackd_helper_poll(socket_fd, POLLIN, timeout_ns);
    if (error != 0) return error;
    error = receive_with_fds(socket_fd, message, fds);
    if (error != -EAGAIN) return error;
  }
}

int stackd_connection_receive(struct stackd_connection* connection, union stackd_message* message, uint64_t timeout_ns) {
  int socket_fd = stackd_own_fd_get(&connection->socket);
  if (socket_fd < 0) return -ENOTCONN;
  int fds[MAX_RECEIVED_FDS];
  int error = await_message(socket_fd, message, fds, timeout_ns);
  if (error == 0) close_fds(fds);
  return error;
}

static int map_ring(struct stackd_connection* connection, int fd, uint64_t size_bytes) {
  int error = stackd_ring_check_file(fd, size_bytes);
  if (error != 0) return error;
  void* memory = stackd_map(NULL, size_bytes, MAP_SHARED | MAP_POPULATE, fd);
  if (memory == NULL) return -ENOMEM;
  /* A forked child is another process with a ring of its own: it must not write to this one. */
  if (stackd_advise(memory, size_bytes, MADV_DONTFORK) != 0 || !stackd_ring_attach(&connection->ring, memory, size_bytes)) {
    stackd_unmap(memory, size_bytes);
    return -EPROTO;
  }
  connection->ring_bytes = size_bytes;
  return 0;
}

/* HELLO, and the place behind it. */
struct introduction {
  struct stackd_hello hello;
  char place[STACKD_PLACE_BYTES];
};

/* Files, and not the folder that they are in: that leads to all others. Not kept: an fd of procfs outside would be a way
 * out of a chroot that the program enters later. False, and none is open, unless all are. */
static bool open_status(int fds[STATUS_FILES]) {
  static const char* const kPaths[STATUS_FILES] = {"/proc/self/stat", "/proc/self/status", "/proc/self/schedstat"};
  for (int i = 0; i < STATUS_FILES; i++) {
    fds[i] = stackd_own_fd_hold(stackd_open(kPaths[i], O_RDONLY | O_CLOEXEC), STACKD_FD_PROC);
    if (fds[i] >= 0) continue;
    while (i-- > 0) stackd_own_fd_drop(fds[i]);
    return false;
  }
  return true;
}

int stackd_connection_say_hello(struct stackd_connection* connection, const struct stackd_hello* described,
                                const struct stackd_settings* settings, const struct stackd_process_files* files) {
  struct introduction introduction;
  struct stackd_hello* hello = &introduction.hello;
  *hello = *described;
  hello->header.size_bytes = (uint32_t)sizeof(*hello) + settings->place_bytes;
  memcpy(introduction.place, settings->place, settings->place_bytes);
  int fds[MAX_FDS];
  unsigned count = 0;
  int mem = hello->share == STACKD_SHARE_MEMORY ? stackd_own_fd_get(&files->mem) : -1;
  int maps = stackd_own_fd_get(&files->maps);
  int status[STATUS_FILES];
  if (mem >= 0) {
    hello->flags |= STACKD_HELLO_HAS_MEM;
    fds[count++] = mem;
  }
  if (maps >= 0) {
    hello->flags |= STACKD_HELLO_HAS_MAPS;
    fds[count++] = maps;
  }
  bool has_status = open_status(status);
  if (has_status) {
    hello->flags |= STACKD_HELLO_HAS_STATUS;
    memcpy(fds + count, status, sizeof(status));
    count += STATUS_FILES;
  }
  int error = send_with_fds(connection->socket.fd, &hello->header, fds, count);
  for (int i = 0; has_status && i < STATUS_FILES; i++) stackd_own_fd_drop(status[i]);
  if (error != 0) stackd_connection_close(connection);
  return error;
}

int stackd_connection_open(struct stackd_connection* connection, const struct stackd_settings* settings) {
  struct sockaddr_un address;
  memset(&address, 0, sizeof(address));
  address.sun_family = AF_UNIX;
  if (strlen(settings->socket_path) >= sizeof(address.sun_path)) return -ENAMETOOLONG;
  strcpy(address.sun_path, settings->socket_path);
  /* Where more processes wait for the daemon than it lets wait, this one does not, but tries again. */
  int fd = (int)stackd_syscall6(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0, 0, 0);
  if (fd < 0) return fd;
  connection->socket = stackd_own_fd_take(fd, STACKD_FD_SOCKET);
  connection->spool = STACKD_NO_FD;
  if (connection->socket.fd < 0) return -EBADF;
  int error = (int)stackd_syscall6(SYS_connect, connection->socket.fd, (long)&address, sizeof(address), 0, 0, 0);
  if (error == 0) error = stackd_listener_check(connection->socket.fd, settings);
  if (error != 0) stackd_connection_close(connection);
  return error;
}

int stackd_connection_complete(struct stackd_connection* connection) {
  union stackd_message message;
  int received[MAX_RECEIVED_FDS];
  int socket_fd = stackd_own_fd_get(&connection->socket);
  if (socket_fd < 0) return -ENOTCONN;
  int error = await_message(socket_fd, &message, received, UINT64_MAX);
  if (error != 0) return error;
  error = -EPROTO;
  if (message.header.type == STACKD_MSG_WELCOME && received[0] >= 0) {
    error = map_ring(connection, received[0], message.welcome.ring_bytes);
  }
  if (error == 0 && received[1] >= 0) {
    connection->spool = stackd_own_fd_take(received[1], STACKD_FD_FILE);
    received[1] = -1;
  }
  close_fds(received);
  return error;
}

void stackd_connection_close(struct stackd_connection* connection) {
  stackd_own_fd_close(&connection->socket);
  stackd_own_fd_close(&connection->spool);
}
