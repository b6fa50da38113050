#include "agent/helper/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/ring/ring_check.h"

#define MAX_FDS 3

struct control {
  _Alignas(struct cmsghdr) char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
};

static int send_with_fds(int socket_fd, const struct stackd_message_header* message, const int* fds, unsigned fd_count,
                         int flags) {
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
  ssize_t sent;
  do {
    sent = sendmsg(socket_fd, &header, MSG_NOSIGNAL | flags);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? -errno : 0;
}

int stackd_connection_send(const struct stackd_own_fd* socket, const struct stackd_message_header* message, int fd,
                           int flags) {
  int socket_fd = stackd_own_fd_get(socket);
  if (socket_fd < 0) return -ENOTCONN;
  return send_with_fds(socket_fd, message, &fd, fd >= 0 ? 1 : 0, flags);
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
    if (fds[i] >= 0) close(fds[i]);
  }
}

/* `fds` are those that came, then -1. */
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
  ssize_t got;
  do {
    got = recvmsg(socket_fd, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return -ENOTCONN;
  for (struct cmsghdr* c = CMSG_FIRSTHDR(&header); c != NULL; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; i++) {
      int received;
      memcpy(&received, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      if (count < MAX_RECEIVED_FDS) {
        fds[count++] = received;
      } else {
        close(received);
      }
    }
  }
  if (got < (ssize_t)sizeof(message->header) || message->header.size_bytes != (uint32_t)got || !is_whole(message)) {
    close_fds(fds);
    return -EPROTO;
  }
  return 0;
}

int stackd_connection_receive(struct stackd_connection* connection, union stackd_message* message) {
  int socket_fd = stackd_own_fd_get(&connection->socket);
  if (socket_fd < 0) return -ENOTCONN;
  int fds[MAX_RECEIVED_FDS];
  int error = receive_with_fds(socket_fd, message, fds);
  if (error == 0) close_fds(fds);
  return error;
}

static int map_ring(struct stackd_connection* connection, int fd, uint64_t size_bytes) {
  int error = stackd_ring_check_file(fd, size_bytes);
  if (error != 0) return error;
  void* memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) return -errno;
  /* A forked child is another process with a ring of its own: it must not write to this one. */
  if (madvise(memory, size_bytes, MADV_DONTFORK) != 0 || !stackd_ring_attach(&connection->ring, memory, size_bytes)) {
    munmap(memory, size_bytes);
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

static int register_with_daemon(struct stackd_connection* connection, const struct stackd_hello* described,
                                const struct stackd_settings* settings, const struct stackd_process_files* files) {
  struct introduction introduction;
  struct stackd_hello* hello = &introduction.hello;
  *hello = *described;
  hello->header.size_bytes = (uint32_t)sizeof(*hello) + settings->place_bytes;
  memcpy(introduction.place, settings->place, settings->place_bytes);
  int fds[MAX_FDS];
  unsigned count = 0;
  int mem = stackd_own_fd_get(&files->mem);
  int maps = stackd_own_fd_get(&files->maps);
  int proc = stackd_own_fd_hold(open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (mem >= 0) {
    hello->flags |= STACKD_HELLO_HAS_MEM;
    fds[count++] = mem;
  }
  if (maps >= 0) {
    hello->flags |= STACKD_HELLO_HAS_MAPS;
    fds[count++] = maps;
  }
  if (proc >= 0) {
    hello->flags |= STACKD_HELLO_HAS_PROC;
    fds[count++] = proc;
  }
  int error = send_with_fds(connection->socket.fd, &hello->header, fds, count, 0);
  /* Not kept: an open folder outside would be a way out of a chroot that the program enters later. */
  if (proc >= 0) stackd_own_fd_drop(proc);
  if (error != 0) return error;

  union stackd_message message;
  int received[MAX_RECEIVED_FDS];
  error = receive_with_fds(connection->socket.fd, &message, received);
  if (error != 0) return error;
  error = -EPROTO;
  if (message.header.type == STACKD_MSG_WELCOME && received[0] >= 0) {
    error = map_ring(connection, received[0], message.welcome.ring_bytes);
  }
  if (error == 0 && received[1] >= 0) {
    connection->spool = stackd_own_fd_take(received[1]);
    received[1] = -1;
  }
  close_fds(received);
  return error;
}

/* Who may write to the folder can put a socket of his own there, and would be handed this process's memory. */
static int check_listener(int socket_fd, int64_t daemon_uid) {
  if (daemon_uid < 0) return 0;
  struct ucred listener;
  socklen_t size_bytes = sizeof(listener);
  if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &listener, &size_bytes) != 0) return -errno;
  return listener.uid == (uint64_t)daemon_uid ? 0 : -EPERM;
}

int stackd_connection_open(struct stackd_connection* connection, const struct stackd_settings* settings,
                           const struct stackd_hello* hello, const struct stackd_process_files* files) {
  struct sockaddr_un address;
  memset(&address, 0, sizeof(address));
  address.sun_family = AF_UNIX;
  if (strlen(settings->socket_path) >= sizeof(address.sun_path)) return -ENAMETOOLONG;
  strcpy(address.sun_path, settings->socket_path);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  connection->socket = stackd_own_fd_take(fd);
  connection->spool = STACKD_NO_FD;
  if (connection->socket.fd < 0) return -EBADF;
  int error = 0;
  if (connect(connection->socket.fd, (const struct sockaddr*)&address, sizeof(address)) != 0) error = -errno;
  if (error == 0) error = check_listener(connection->socket.fd, settings->daemon_uid);
  if (error == 0) error = register_with_daemon(connection, hello, settings, files);
  if (error != 0) stackd_connection_close(connection);
  return error;
}

void stackd_connection_close(struct stackd_connection* connection) {
  stackd_own_fd_close(&connection->socket);
  stackd_own_fd_close(&connection->spool);
}
