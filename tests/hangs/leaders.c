/* Programs that are well: a leader has the lock of its followers while it waits for work, for days if there is none. */
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>

#include "tests/hangs/hang.h"

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int source; /* of work */

VICTIM_NOINLINE static void* follow(void* unused) {
  pthread_mutex_lock(&turn);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

/* `lead` takes the turn, and is then in system call `number`. */
static void start(void* (*lead)(void*), long number) {
  hang_thread_in(number, "leader", lead, NULL);
  hang_thread_in(SYS_futex, "follower-1", follow, NULL);
  hang_thread_in(SYS_futex, "follower-2", follow, NULL);
}

VICTIM_NOINLINE static void* lead_by_read(void* unused) {
  char work[4096];
  pthread_mutex_lock(&turn);
  while (read(source, work, sizeof work) >= 0 || errno == EINTR) {
  }
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

VICTIM_NOINLINE static void* lead_by_recv(void* unused) {
  char work[4096];
  pthread_mutex_lock(&turn);
  while (recv(source, work, sizeof work, 0) >= 0 || errno == EINTR) {
  }
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void start_with_fd(int fd, void* (*lead)(void*), long number) {
  victim_check(fd >= 0, "source");
  source = fd;
  start(lead, number);
}

/* --- sockets that have no peer --- */

static void udp(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  victim_check(bind(fd, (struct sockaddr*)&address, sizeof address) == 0, "bind");
  start_with_fd(fd, lead_by_recv, SYS_recvfrom);
}

static void udp6(void) {
  struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
  int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  victim_check(bind(fd, (struct sockaddr*)&address, sizeof address) == 0, "bind");
  start_with_fd(fd, lead_by_read, SYS_read);
}

static void netlink(void) {
  struct sockaddr_nl address = {.nl_family = AF_NETLINK};
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  victim_check(bind(fd, (struct sockaddr*)&address, sizeof address) == 0, "bind");
  start_with_fd(fd, lead_by_recv, SYS_recvfrom);
}

static void unix_datagrams(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "leaders-%d", (int)getpid());
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  victim_check(bind(fd, (struct sockaddr*)&address, sizeof address) == 0, "bind");
  start_with_fd(fd, lead_by_recv, SYS_recvfrom);
}

/* --- events --- */

static void inotify(void) {
  int fd = inotify_init1(IN_CLOEXEC);
  victim_check(inotify_add_watch(fd, "/proc", IN_ATTRIB) >= 0, "inotify_add_watch");
  start_with_fd(fd, lead_by_read, SYS_read);
}

static void timerfd(void) {
  int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  struct itimerspec hourly = {{3600, 0}, {3600, 0}};
  timerfd_settime(fd, 0, &hourly, NULL);
  start_with_fd(fd, lead_by_read, SYS_read);
}

static void signals_by_fd(void) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
  start_with_fd(signalfd(-1, &signals, SFD_CLOEXEC), lead_by_read, SYS_read);
}

static void terminal(void) {
  int other_side = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  victim_check(grantpt(other_side) == 0 && unlockpt(other_side) == 0, "posix_openpt");
  start_with_fd(open(ptsname(other_side), O_RDWR | O_NOCTTY | O_CLOEXEC), lead_by_read, SYS_read);
}

static void standard_input(void) {
  int ends[2];
  victim_check(pipe(ends) == 0, "pipe");
  victim_check(dup2(ends[0], STDIN_FILENO) == STDIN_FILENO, "dup2");
  start_with_fd(STDIN_FILENO, lead_by_read, SYS_read);
}

/* A thread in accept() or epoll_wait() brings the work, and hands it on in the process. */
VICTIM_NOINLINE static void* take_events(void* unused) {
  int instance = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event;
  for (;;) epoll_wait(instance, &event, 1, -1);
  return unused;
}

static void eventfd_of_own_thread(void) {
  hang_thread_in(SYS_epoll_wait, "events", take_events, NULL);
  start_with_fd(eventfd(0, EFD_CLOEXEC), lead_by_read, SYS_read);
}

static pthread_mutex_t work_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_came = PTHREAD_COND_INITIALIZER;

VICTIM_NOINLINE static void* lead_by_condition(void* unused) {
  pthread_mutex_lock(&turn);
  pthread_mutex_lock(&work_lock);
  for (;;) pthread_cond_wait(&work_came, &work_lock);
  return unused;
}

static void condition_of_own_thread(void) {
  hang_thread_in(SYS_epoll_wait, "events", take_events, NULL);
  start(lead_by_condition, SYS_futex);
}

VICTIM_NOINLINE static void* lead_by_poll(void* unused) {
  pthread_mutex_lock(&turn);
  for (struct pollfd entry = {.fd = source, .events = POLLIN};;) poll(&entry, 1, -1);
  return unused;
}

static void polled(void) { start_with_fd(eventfd(0, EFD_CLOEXEC), lead_by_poll, SYS_poll); }

/* --- other processes --- */

static void pipe_of_child(void) {
  int ends[2];
  victim_check(pipe(ends) == 0, "pipe");
  pid_t child = fork();
  victim_check(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    hang_sleep();
  }
  close(ends[1]);
  start_with_fd(ends[0], lead_by_read, SYS_read);
}

static mqd_t queue;

VICTIM_NOINLINE static void* lead_by_mq(void* unused) {
  char work[8192];
  pthread_mutex_lock(&turn);
  while (mq_receive(queue, work, sizeof work, NULL) >= 0 || errno == EINTR) {
  }
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void posix_messages(void) {
  char name[32];
  snprintf(name, sizeof name, "/leaders-%d", (int)getpid());
  queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600, NULL);
  victim_check(queue >= 0 && mq_unlink(name) == 0, "mq_open");
  start(lead_by_mq, SYS_mq_timedreceive);
}

VICTIM_NOINLINE static void* lead_by_msgrcv(void* unused) {
  struct {
    long kind;
    char work[64];
  } message;
  pthread_mutex_lock(&turn);
  while (msgrcv(source, &message, sizeof message.work, 0, 0) >= 0 || errno == EINTR) {
  }
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

/* Removed when this process ends, by a child. */
static void system_v_messages(void) {
  source = msgget(IPC_PRIVATE, 0600);
  victim_check(source >= 0, "msgget");
  int ends[2];
  victim_check(pipe2(ends, O_CLOEXEC) == 0, "pipe2");
  pid_t child = fork();
  victim_check(child >= 0, "fork");
  if (child == 0) {
    char byte;
    close(ends[1]);
    while (read(ends[0], &byte, 1) != 0) {
    }
    msgctl(source, IPC_RMID, NULL);
    _exit(0);
  }
  start(lead_by_msgrcv, SYS_msgrcv);
}

static sem_t* tickets;

VICTIM_NOINLINE static void* lead_by_semaphore(void* unused) {
  pthread_mutex_lock(&turn);
  for (;;) sem_wait(tickets);
  return unused;
}

static void shared_semaphore(void) {
  tickets = mmap(NULL, sizeof *tickets, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  victim_check(tickets != MAP_FAILED && sem_init(tickets, 1, 0) == 0, "sem_init");
  start(lead_by_semaphore, SYS_futex);
}

/* --- time and signals --- */

VICTIM_NOINLINE static void* lead_by_sleep(void* unused) {
  pthread_mutex_lock(&turn);
  hang_sleep();
  return unused;
}

/* A job that must run once at a time, for life, and its standby. */
static void job_by_the_hour(void) { start(lead_by_sleep, SYS_clock_nanosleep); }

VICTIM_NOINLINE static void* lead_by_timed_wait(void* unused) {
  pthread_mutex_lock(&turn);
  pthread_mutex_lock(&work_lock);
  for (;;) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 3600;
    pthread_cond_timedwait(&work_came, &work_lock, &end);
  }
  return unused;
}

static void timed_wait(void) { start(lead_by_timed_wait, SYS_futex); }

VICTIM_NOINLINE static void* lead_by_sigwait(void* unused) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR2);
  pthread_mutex_lock(&turn);
  for (int number;;) sigwait(&signals, &number);
  return unused;
}

static void signals_by_sigwait(void) { start(lead_by_sigwait, SYS_rt_sigtimedwait); }

VICTIM_NOINLINE static void* lead_by_pause(void* unused) {
  pthread_mutex_lock(&turn);
  for (;;) pause();
  return unused;
}

static void signals_by_pause(void) { start(lead_by_pause, SYS_pause); }

static const hang_mode kModes[] = {
    {"condition_of_own_thread", condition_of_own_thread},
    {"eventfd_of_own_thread", eventfd_of_own_thread},
    {"inotify", inotify},
    {"job_by_the_hour", job_by_the_hour},
    {"netlink", netlink},
    {"pipe_of_child", pipe_of_child},
    {"polled", polled},
    {"posix_messages", posix_messages},
    {"shared_semaphore", shared_semaphore},
    {"signals_by_fd", signals_by_fd},
    {"signals_by_pause", signals_by_pause},
    {"signals_by_sigwait", signals_by_sigwait},
    {"standard_input", standard_input},
    {"system_v_messages", system_v_messages},
    {"terminal", terminal},
    {"timed_wait", timed_wait},
    {"timerfd", timerfd},
    {"udp", udp},
    {"udp6", udp6},
    {"unix_datagrams", unix_datagrams},
};

int main(int argc, char** argv) { return hang_run(argc, argv, kModes, sizeof kModes / sizeof kModes[0]); }
