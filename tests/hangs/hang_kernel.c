/* Threads in the kernel: files, pipes, sockets, children, disks, and processes that are stopped. */
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <mqueue.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/hangs/hang.h"

static pthread_mutex_t orders_lock = PTHREAD_MUTEX_INITIALIZER;

VICTIM_NOINLINE static void* take_orders(void* unused) {
  pthread_mutex_lock(&orders_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void add_waiters(void) {
  hang_thread_in(SYS_futex, "waiter-1", take_orders, NULL);
  hang_thread_in(SYS_futex, "waiter-2", take_orders, NULL);
  hang_thread_in(SYS_futex, "waiter-3", take_orders, NULL);
}

/* --- children --- */

/* A process that does `body` until this one ends. */
static pid_t start_child(void (*body)(void)) {
  pid_t child = fork();
  victim_check(child >= 0, "fork");
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  body();
  _exit(0);
}

static pid_t hung_child;

VICTIM_NOINLINE static void* await_child_with_lock(void* unused) {
  pthread_mutex_lock(&orders_lock);
  waitpid(hung_child, NULL, 0);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void child_hangs(void) {
  hung_child = start_child(hang_sleep);
  hang_thread_in(SYS_wait4, "owner", await_child_with_lock, NULL);
  add_waiters();
}

/* The kernel lets no signal near the caller of vfork() before its child ends or executes another program. The caller is in
 * state D, as in a wait for a disk. */
VICTIM_NOINLINE static void* vfork_with_lock(void* unused) {
  pthread_mutex_lock(&orders_lock);
  if (vfork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) syscall(SYS_pause);
  }
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

static void owner_uninterruptible(void) {
  hang_thread_in(SYS_vfork, "owner", vfork_with_lock, NULL);
  add_waiters();
}

/* --- pages and rings --- */

/* A page that the kernel asks another one for, who never brings it: as of a file system that does not answer. */
static char* page_that_never_comes(void) {
  size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
  char* page = (char*)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
  struct uffdio_api api = {.api = UFFD_API};
  struct uffdio_register missing = {.range = {(uintptr_t)page, bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  victim_check(page != MAP_FAILED && fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0, "userfaultfd");
  victim_check(ioctl(fd, UFFDIO_REGISTER, &missing) == 0, "UFFDIO_REGISTER");
  return page;
}

VICTIM_NOINLINE static void* touch_page_with_lock(void* page) {
  pthread_mutex_lock(&orders_lock);
  *(volatile char*)page = 1;
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void owner_in_page_fault(void) {
  enum { kNoSystemCall = -1 };
  hang_thread_in(kNoSystemCall, "owner", touch_page_with_lock, page_that_never_comes());
  add_waiters();
}

VICTIM_NOINLINE static void* await_ring_with_lock(void* ring) {
  pthread_mutex_lock(&orders_lock);
  while (syscall(SYS_io_uring_enter, *(int*)ring, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void owner_in_io_uring(void) {
  static int ring;
  struct io_uring_params parameters = {0};
  ring = (int)syscall(SYS_io_uring_setup, 1, &parameters);
  victim_check(ring >= 0, "io_uring_setup");
  hang_thread_in(SYS_io_uring_enter, "owner", await_ring_with_lock, &ring);
  add_waiters();
}

/* --- wakers --- */

VICTIM_NOINLINE static void* unlock_slowly(void* unused) {
  pthread_mutex_lock(&orders_lock);
  hang_pass();
  hang_await_passed(2);
  hang_block_syscall(SYS_futex);
  pthread_mutex_unlock(&orders_lock);
  VICTIM_NOT_A_TAIL_CALL();
  return unused;
}

/* Each unlocking of a contended mutex goes through the kernel for an instant. Here it stays there. */
static void owner_wakes(void) {
  victim_thread* waker = hang_thread("waker", unlock_slowly, NULL);
  hang_await_passed(1);
  hang_thread_in(SYS_futex, "waiter-1", take_orders, NULL);
  hang_pass();
  victim_await_syscall(waker->tid, SYS_futex);
}

/* --- streams --- */

static FILE* log_stream;

VICTIM_NOINLINE static void* write_log(void* unused) {
  for (;;) fputs("a line of a log that another process is to read, and does not\n", log_stream);
  return unused;
}

/* As standard output of a program whose reader has stopped to read. */
static void stream_to_full_pipe(void) {
  int ends[2];
  victim_check(pipe(ends) == 0, "pipe");
  if (start_child(hang_sleep) <= 0) return;
  close(ends[0]);
  log_stream = fdopen(ends[1], "w");
  victim_check(log_stream != NULL, "fdopen");
  hang_thread_in(SYS_write, "writer", write_log, NULL);
  hang_thread_in(SYS_futex, "logger-1", write_log, NULL);
  hang_thread_in(SYS_futex, "logger-2", write_log, NULL);
}

/* --- files --- */

static int locked_file(void) {
  char path[] = "/tmp/hang_kernel.XXXXXX";
  int fd = mkostemp(path, O_CLOEXEC);
  victim_check(fd >= 0, "mkostemp");
  /* Another open file of the same inode, as another process would have. */
  int other = open(path, O_RDWR | O_CLOEXEC);
  victim_check(other >= 0 && unlink(path) == 0, "open");
  victim_check(flock(other, LOCK_EX) == 0, "flock");
  return fd;
}

VICTIM_NOINLINE static void* lock_file_with_lock(void* fd) {
  pthread_mutex_lock(&orders_lock);
  flock(*(int*)fd, LOCK_EX);
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void owner_waits_for_flock(void) {
  static int fd;
  fd = locked_file();
  hang_thread_in(SYS_flock, "owner", lock_file_with_lock, &fd);
  add_waiters();
}

static char record_path[] = "/tmp/hang_kernel.XXXXXX";
static int record_is_locked[2];

static void lock_record_and_sleep(void) {
  int fd = open(record_path, O_RDWR | O_CLOEXEC);
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  victim_check(fd >= 0 && fcntl(fd, F_SETLKW, &whole) == 0, "F_SETLKW of the child");
  victim_check(write(record_is_locked[1], "", 1) == 1, "write");
  hang_sleep();
}

VICTIM_NOINLINE static void* lock_record(void* fd) {
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  fcntl(*(int*)fd, F_SETLKW, &whole);
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void record_lock_of_another_process(void) {
  static int fd;
  fd = mkostemp(record_path, O_CLOEXEC);
  victim_check(fd >= 0 && pipe(record_is_locked) == 0, "mkostemp");
  start_child(lock_record_and_sleep);
  char byte;
  victim_check(read(record_is_locked[0], &byte, 1) == 1, "read");
  unlink(record_path);
  hang_thread_in(SYS_fcntl, "locker", lock_record, &fd);
}

/* --- pipes and sockets --- */

VICTIM_NOINLINE static void* write_without_end(void* fd) {
  static char page[4096];
  while (write(*(int*)fd, page, sizeof page) > 0) {
  }
  return NULL;
}

static void pipe_full(void) {
  static int ends[2];
  victim_check(pipe(ends) == 0, "pipe");
  hang_thread_in(SYS_write, "producer", write_without_end, &ends[1]);
}

VICTIM_NOINLINE static void* read_one(void* fd) {
  char byte;
  victim_check(read(*(int*)fd, &byte, 1) >= 0, "read");
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void pipe_with_own_writer(void) {
  static int ends[2];
  victim_check(pipe(ends) == 0, "pipe");
  hang_thread_in(SYS_read, "consumer", read_one, &ends[0]);
}

static void both_ends_read(void) {
  static int ends[2];
  victim_check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  hang_thread_in(SYS_read, "left", read_one, &ends[0]);
  hang_thread_in(SYS_read, "right", read_one, &ends[1]);
}

VICTIM_NOINLINE static void* receive_message(void* queue) {
  char message[64];
  victim_check(mq_receive(*(mqd_t*)queue, message, sizeof message, NULL) >= 0, "mq_receive");
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void message_queue_empty(void) {
  static mqd_t queue;
  char name[32];
  snprintf(name, sizeof name, "/hang_kernel.%d", (int)getpid());
  struct mq_attr small = {.mq_maxmsg = 1, .mq_msgsize = 64};
  queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &small);
  victim_check(queue >= 0 && mq_unlink(name) == 0, "mq_open");
  hang_thread_in(SYS_mq_timedreceive, "receiver", receive_message, &queue);
}

/* --- a futex of the program's own --- */

/* A lock as a program writes one: locked, and behind the word the tid of a thread that has nothing to do with it. */
static struct {
  unsigned word;
  unsigned reserved;
  int tid_of_nobody_concerned;
  unsigned more[7];
} home_made_lock = {.word = 2};

VICTIM_NOINLINE static void* take_home_made(void* unused) {
  while (__atomic_load_n(&home_made_lock.word, __ATOMIC_ACQUIRE) != 0) {
    syscall(SYS_futex, &home_made_lock.word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
  }
  return unused;
}

VICTIM_NOINLINE static void* sleep_unconcerned(void* unused) {
  hang_sleep();
  return unused;
}

static void home_made(void) {
  victim_thread* bystander = hang_thread_in(SYS_clock_nanosleep, "bystander", sleep_unconcerned, NULL);
  home_made_lock.tid_of_nobody_concerned = bystander->tid;
  home_made_lock.more[0] = 0x80000001;
  hang_thread_in(SYS_futex, "taker-1", take_home_made, NULL);
  hang_thread_in(SYS_futex, "taker-2", take_home_made, NULL);
}

/* --- stopped: by the test, from outside --- */

static void queue_for_main(void) {
  pthread_mutex_lock(&orders_lock);
  add_waiters();
}

static const hang_mode kModes[] = {
    {"both_ends_read", both_ends_read},
    {"child_hangs", child_hangs},
    {"home_made", home_made},
    {"message_queue_empty", message_queue_empty},
    {"owner_in_io_uring", owner_in_io_uring},
    {"owner_in_page_fault", owner_in_page_fault},
    {"owner_uninterruptible", owner_uninterruptible},
    {"owner_waits_for_flock", owner_waits_for_flock},
    {"owner_wakes", owner_wakes},
    {"pipe_full", pipe_full},
    {"pipe_with_own_writer", pipe_with_own_writer},
    {"queue_for_main", queue_for_main},
    {"record_lock_of_another_process", record_lock_of_another_process},
    {"stream_to_full_pipe", stream_to_full_pipe},
};

int main(int argc, char** argv) { return hang_run(argc, argv, kModes, sizeof kModes / sizeof kModes[0]); }
