/* A sandbox whose calls are made by another process, as browsers have it. The filter answers openat() and getppid() with
 * SIGSYS. Its handler asks a broker process to open the file, and puts the result where the program expects that of the
 * call. Answers a line from stdin and ends with 7.
 *
 * Compiled by the test, with -lseccomp. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = 300, PARENT_AS_TOLD = 4242 };

#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1 /* of linux/signal.h, which does not go with signal.h */
#endif

/* One connection to the broker for each thread. */
static _Thread_local int broker_fd = -1;
static int broker_fds[THREADS][2];
static int trapped, failed;

static void check(int ok, const char* what) {
  if (ok) return;
  perror(what);
  exit(1);
}

/* Sends a byte, with an fd if there is one. */
static void send_fd(int socket, int fd) {
  char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  while (sendmsg(socket, &message, 0) < 0 && errno == EINTR) {
  }
}

static int receive_fd(int socket) {
  char byte, control[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  while (recvmsg(socket, &message, 0) < 0) {
    if (errno != EINTR) return -EIO;
  }
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  int fd = -ENOENT;
  if (header != NULL) memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

static void* serve(void* number) {
  int socket = broker_fds[(long)number][1];
  char path[256];
  ssize_t got;
  while ((got = recv(socket, path, sizeof path - 1, 0)) > 0 || (got < 0 && errno == EINTR)) {
    if (got < 0) continue;
    path[got] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    send_fd(socket, fd);
    if (fd >= 0) close(fd);
  }
  return NULL;
}

static void on_sigsys(int number, siginfo_t* info, void* context) {
  (void)number;
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  int before = errno;
  __atomic_add_fetch(&trapped, 1, __ATOMIC_RELAXED);
  if (info->si_code != SYS_SECCOMP) {
    failed = 1;
  } else if (info->si_syscall == SYS_getppid) {
    registers[REG_RAX] = PARENT_AS_TOLD;
  } else if (broker_fd >= 0) {
    const char* path = (const char*)registers[REG_RSI];
    while (send(broker_fd, path, strlen(path), 0) < 0 && errno == EINTR) {
    }
    registers[REG_RAX] = receive_fd(broker_fd);
  } else {
    registers[REG_RAX] = -EACCES;
  }
  errno = before;
}

static void* read_files(void* number) {
  broker_fd = broker_fds[(long)number][0];
  for (int i = 0; i < ROUNDS; i++) {
    char word[16] = {0};
    int fd = open("/proc/sys/kernel/ostype", O_RDONLY);
    if (fd < 0 || read(fd, word, sizeof word - 1) < 0 || strcmp(word, "Linux\n") != 0) failed = 1;
    close(fd);
    if (open("/no/such/file", O_RDONLY) != -1 || errno != ENOENT) failed = 1;
    if (syscall(SYS_getppid) != PARENT_AS_TOLD) failed = 1;
  }
  return NULL;
}

static void run_threads(void* (*body)(void*)) {
  pthread_t threads[THREADS];
  for (long i = 0; i < THREADS; i++) {
    errno = pthread_create(&threads[i], NULL, body, (void*)i);
    check(errno == 0, "pthread_create");
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(void) {
  for (int i = 0; i < THREADS; i++) check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, broker_fds[i]) == 0, "socketpair");
  pid_t broker = fork();
  check(broker >= 0, "fork");
  if (broker == 0) {
    for (int i = 0; i < THREADS; i++) close(broker_fds[i][0]);
    run_threads(serve);
    return 0;
  }
  for (int i = 0; i < THREADS; i++) close(broker_fds[i][1]);

  struct sigaction action = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO | SA_RESTART};
  check(sigaction(SIGSYS, &action, NULL) == 0, "sigaction");
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  check(filter != NULL, "seccomp_init");
  check(seccomp_rule_add(filter, SCMP_ACT_TRAP, SCMP_SYS(openat), 0) == 0, "openat");
  check(seccomp_rule_add(filter, SCMP_ACT_TRAP, SCMP_SYS(getppid), 0) == 0, "getppid");
  errno = -seccomp_load(filter);
  check(errno == 0, "seccomp_load");

  run_threads(read_files);
  printf("trapped at least %d: %d, failed %d\nready\n", 3 * THREADS * ROUNDS, trapped >= 3 * THREADS * ROUNDS, failed);
  fflush(stdout);
  char line[64];
  if (fgets(line, sizeof line, stdin) == NULL) return 3;
  run_threads(read_files);
  for (int i = 0; i < THREADS; i++) close(broker_fds[i][0]);
  int status;
  if (waitpid(broker, &status, 0) != broker) return 4;
  printf("%sfailed %d, broker ended with %d\n", line, failed, status);
  return 7;
}
