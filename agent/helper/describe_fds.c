#include "agent/helper/describe_fds.h"

#include <errno.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "agent/dump/procfs_task.h"
#include "agent/sys/kernel.h"
#include "agent/sys/private_fd.h"
#include "agent/sys/text.h"

#define NAME_BYTES sizeof(((struct stackd_fd_name*)NULL)->name)
/* How many of the process's fds are looked at for the other end of a pipe. */
#define MAX_LOOKED_AT 1024
/* An epoll instance of a process with more fds may watch a hundred thousand. The kernel holds its mutex for the whole list,
 * however little of it is read. That takes tens of milliseconds, in which no thread of the program gets an event. */
#define MAX_FDS_FOR_EPOLL 1024
/* What one of MAX_FDS_FOR_EPOLL can have, unless it watches fds that were closed. */
#define MAX_FDINFO_BYTES (256u << 10)

static void print_path(const char* folder, int fd, char* path, size_t size_bytes) {
  struct stackd_text text = stackd_text_in(path, size_bytes);
  stackd_put(&text, folder);
  stackd_put_number(&text, (uint32_t)fd, 10);
}

/* Where /proc/self/fd/`fd` points, cut to fit; 0 or a negative errno. */
static int read_link(int fd, char* link, size_t size_bytes) {
  char path[32];
  print_path("/proc/self/fd/", fd, path, sizeof(path));
  ssize_t length = stackd_readlink(path, link, size_bytes - 1);
  if (length < 0) return length == -ENOENT ? -EBADF : (int)length;
  link[length] = '\0';
  return 0;
}

static bool begins_with(const char* text, const char* start) { return strncmp(text, start, strlen(start)) == 0; }

/* Gives each fd of the process to `visit`, until that returns false. A negative errno if they cannot be listed. */
static int list_fds(bool (*visit)(void* context, uint32_t number), void* context) {
  int folder = stackd_own_fd_hold(stackd_open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC), STACKD_FD_PROC);
  if (folder < 0) return folder;
  int error = stackd_proc_list(folder, visit, context);
  stackd_own_fd_drop(folder);
  return error;
}

/* --- Sockets --- */

union address {
  struct sockaddr any;
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
  struct sockaddr_un un;
  struct sockaddr_vm vm;
  struct sockaddr_storage storage;
};

/* By SYS_getsockname or SYS_getpeername; 0 if there is none. */
static socklen_t get_address(int fd, long call, union address* address) {
  memset(address, 0, sizeof(*address));
  socklen_t length = sizeof(*address);
  return stackd_syscall6(call, fd, (long)&address->any, (long)&length, 0, 0, 0) == 0 ? length : 0;
}

/* Big-endian, as ports are. */
static unsigned port_of(uint16_t port) { return (unsigned)(port & 0xff) << 8 | port >> 8; }

/* "" for an address that says nothing: none, or one that was never bound. */
static void print_address(const union address* address, socklen_t length, char* buffer, size_t size_bytes) {
  struct stackd_text text = stackd_text_in(buffer, size_bytes);
  if (length >= sizeof(address->v4) && address->any.sa_family == AF_INET && address->v4.sin_port != 0) {
    stackd_put_ipv4(&text, (const uint8_t*)&address->v4.sin_addr);
    stackd_put(&text, ":");
    stackd_put_number(&text, port_of(address->v4.sin_port), 10);
  } else if (length >= sizeof(address->v6) && address->any.sa_family == AF_INET6 && address->v6.sin6_port != 0) {
    stackd_put(&text, "[");
    stackd_put_ipv6(&text, (const uint8_t*)&address->v6.sin6_addr);
    stackd_put(&text, "]:");
    stackd_put_number(&text, port_of(address->v6.sin6_port), 10);
  } else if (length >= sizeof(address->vm) && address->any.sa_family == AF_VSOCK) {
    stackd_put_number(&text, address->vm.svm_cid, 10);
    stackd_put(&text, ":");
    stackd_put_number(&text, address->vm.svm_port, 10);
  } else if (length > offsetof(struct sockaddr_un, sun_path) && address->any.sa_family == AF_UNIX) {
    /* An abstract name begins with a NUL and ends with the address. */
    bool abstract = address->un.sun_path[0] == '\0';
    size_t bytes = length - offsetof(struct sockaddr_un, sun_path) - abstract;
    const char* path = address->un.sun_path + abstract;
    if (abstract) stackd_put(&text, "@");
    stackd_put_bytes(&text, path, strnlen(path, bytes));
  }
}

static int get_option(int fd, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  long error = stackd_syscall6(SYS_getsockopt, fd, SOL_SOCKET, option, (long)&value, (long)&length, 0);
  return error == 0 ? value : -1;
}

static const struct {
  int domain;
  int protocol; /* -1: any */
  const char* name;
} kSocketKinds[] = {
    {AF_UNIX, -1, "unix"},
    {AF_INET, IPPROTO_TCP, "tcp"},
    {AF_INET6, IPPROTO_TCP, "tcp"},
    {AF_INET, IPPROTO_UDP, "udp"},
    {AF_INET6, IPPROTO_UDP, "udp"},
    {AF_INET, IPPROTO_MPTCP, "mptcp"},
    {AF_INET6, IPPROTO_MPTCP, "mptcp"},
    {AF_INET, IPPROTO_SCTP, "sctp"},
    {AF_INET6, IPPROTO_SCTP, "sctp"},
    {AF_INET, -1, "inet"},
    {AF_INET6, -1, "inet6"},
    {AF_NETLINK, -1, "netlink"},
    {AF_PACKET, -1, "packet"},
    {AF_VSOCK, -1, "vsock"},
    {AF_BLUETOOTH, -1, "bluetooth"},
    {AF_CAN, -1, "can"},
    {AF_ALG, -1, "alg"},
};

static const char* socket_kind(int fd) {
  int domain = get_option(fd, SO_DOMAIN);
  int protocol = get_option(fd, SO_PROTOCOL);
  for (size_t i = 0; i < sizeof(kSocketKinds) / sizeof(kSocketKinds[0]); i++) {
    if (kSocketKinds[i].domain != domain) continue;
    if (kSocketKinds[i].protocol < 0 || kSocketKinds[i].protocol == protocol) return kSocketKinds[i].name;
  }
  return "socket";
}

static void describe_socket(int fd, char* name) {
  union address address;
  char own[NAME_BYTES];
  char peer[NAME_BYTES];
  print_address(&address, get_address(fd, SYS_getsockname, &address), own, sizeof(own));
  print_address(&address, get_address(fd, SYS_getpeername, &address), peer, sizeof(peer));
  struct stackd_text text = stackd_text_in(name, NAME_BYTES);
  stackd_put(&text, socket_kind(fd));
  if (get_option(fd, SO_ACCEPTCONN) == 1) stackd_put(&text, " listening on");
  if (own[0] != '\0') stackd_put(&text, " ");
  stackd_put(&text, own);
  if (peer[0] != '\0') stackd_put(&text, " -> ");
  stackd_put(&text, peer);
}

/* --- Epoll --- */

/* One line of fdinfo: "tfd:       17 events: ...". What else stands there is the program's. */
static void add_watched(const char* line, struct stackd_fd_name* name) {
  if (!begins_with(line, "tfd:")) return;
  if (name->watched_count < STACKD_MAX_WATCHED_FDS) {
    const char* number = line + strlen("tfd:");
    name->watched[name->watched_count] = (int32_t)stackd_take_number(&number, 10);
  }
  name->watched_count++;
}

static bool count_fd(void* context, uint32_t number) {
  (void)number;
  uint32_t* count = context;
  return ++*count <= MAX_FDS_FOR_EPOLL;
}

static bool may_look_into_epolls(void) {
  uint32_t count = 0;
  return list_fds(count_fd, &count) == 0 && count <= MAX_FDS_FOR_EPOLL;
}

/* Waits for the instance's mutex. A thread of the program that asks a dead FUSE server whether a file is ready may hold it
 * for ever. */
static void describe_epoll(struct stackd_fd_name* name) {
  char text[4096];
  print_path("/proc/self/fdinfo/", name->fd, text, sizeof(text));
  int fd = stackd_own_fd_hold(stackd_open(text, O_RDONLY | O_CLOEXEC), STACKD_FD_PROC);
  if (fd < 0) return;
  size_t held = 0;
  for (size_t total = 0; total < MAX_FDINFO_BYTES;) {
    ssize_t got = stackd_read(fd, text + held, sizeof(text) - 1 - held);
    if (got <= 0) break;
    total += (size_t)got;
    held += (size_t)got;
    text[held] = '\0';
    char* line = text;
    for (char* end; (end = strchr(line, '\n')) != NULL; line = end + 1) add_watched(line, name);
    held -= (size_t)(line - text);
    memmove(text, line, held);
    if (held == sizeof(text) - 1) held = 0; /* no line is so long */
  }
  stackd_own_fd_drop(fd);
}

/* --- Pipes --- */

static bool is_pipe(const struct stackd_fd_name* name) { return name->error == 0 && begins_with(name->name, "pipe:["); }

/* O_RDONLY, O_WRONLY, ...; -1 if there is no such fd. */
static int access_mode(int fd) {
  int flags = stackd_fcntl(fd, F_GETFL, 0);
  return flags < 0 ? -1 : flags & O_ACCMODE;
}

static bool are_ends(int mode, int other_mode) {
  return (mode == O_RDONLY && other_mode == O_WRONLY) || (mode == O_WRONLY && other_mode == O_RDONLY);
}

struct search {
  struct stackd_fd_names* names;
  uint32_t looked_at;
};

static bool look_for_ends(void* context, uint32_t number) {
  struct search* search = context;
  int fd = (int)number;
  char link[NAME_BYTES];
  if (read_link(fd, link, sizeof(link)) == 0 && begins_with(link, "pipe:[")) {
    for (uint32_t i = 0; i < search->names->fd_count; i++) {
      struct stackd_fd_name* name = &search->names->fds[i];
      if (name->other_end >= 0 || !is_pipe(name) || strcmp(name->name, link) != 0) continue;
      if (are_ends(access_mode(name->fd), access_mode(fd))) name->other_end = fd;
    }
  }
  return ++search->looked_at < MAX_LOOKED_AT;
}

static void find_other_ends(struct stackd_fd_names* names) {
  bool any = false;
  for (uint32_t i = 0; i < names->fd_count; i++) any |= is_pipe(&names->fds[i]);
  struct search search = {names, 0};
  if (any) list_fds(look_for_ends, &search);
}

/* --- All --- */

static void make_printable(char* text) {
  for (; *text != '\0'; text++) {
    if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
  }
}

static void describe(struct stackd_fd_name* name) {
  name->error = read_link(name->fd, name->name, NAME_BYTES);
  if (name->error != 0) return;
  if (begins_with(name->name, "socket:[")) describe_socket(name->fd, name->name);
  make_printable(name->name);
}

void stackd_fd_names(const struct stackd_describe_fds* request, struct stackd_fd_names* names) {
  memset(names, 0, sizeof(*names));
  names->header.type = STACKD_MSG_FD_NAMES;
  names->header.size_bytes = sizeof(*names);
  names->request_id = request->request_id;
  names->fd_count = request->fd_count;
  for (uint32_t i = 0; i < request->fd_count; i++) {
    names->fds[i].fd = request->fds[i];
    names->fds[i].other_end = -1;
    describe(&names->fds[i]);
  }
  if (request->header.type != STACKD_MSG_DESCRIBE_EPOLLS) {
    find_other_ends(names);
  } else if (may_look_into_epolls()) {
    for (uint32_t i = 0; i < names->fd_count; i++) {
      if (strcmp(names->fds[i].name, STACKD_EPOLL_NAME) == 0) describe_epoll(&names->fds[i]);
    }
  }
}
