/* Locks of files: by flock() and by fcntl(), of this process and of others. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "tests/hangs/hang.h"

static char path[] = "/tmp/hang_file_lock.XXXXXX";
static char other_path[] = "/tmp/hang_file_lock.XXXXXX";

/* Another open file of the same inode each time. */
static int open_file(const char* name) {
  int fd = open(name, O_RDWR | O_CLOEXEC);
  victim_check(fd >= 0, "open");
  return fd;
}

static void make_file(char* name) {
  int fd = mkostemp(name, O_CLOEXEC);
  victim_check(fd >= 0 && close(fd) == 0, "mkostemp");
}

/* Returns the child that has done `body` as far as child_is_ready(). It ends with this process. */
static int ready[2];

static void child_is_ready(void) { victim_check(write(ready[1], "", 1) == 1, "write"); }

static pid_t start_child(void (*body)(void)) {
  victim_check(pipe2(ready, O_CLOEXEC) == 0, "pipe");
  pid_t child = fork();
  victim_check(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    _exit(0);
  }
  char byte;
  victim_check(read(ready[0], &byte, 1) == 1, "read");
  printf("child %d\n", (int)child);
  fflush(stdout);
  return child;
}

static void await_child_in(long number, pid_t child) {
  char file[64];
  snprintf(file, sizeof file, "/proc/%d/syscall", (int)child);
  victim_await_syscall_file(file, number);
}

static void flock_file(int fd, int operation) { victim_check(flock(fd, operation) == 0, "flock"); }

VICTIM_NOINLINE static void* take_flock(void* fd) {
  flock(*(int*)fd, LOCK_EX);
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void add_locker(void) {
  static int fd;
  fd = open_file(path);
  unlink(path);
  hang_thread_in(SYS_flock, "locker", take_flock, &fd);
}

/* --- flock() of another process --- */

static void hold_flock(void) {
  flock_file(open_file(path), LOCK_EX);
  child_is_ready();
  hang_sleep();
}

static void held_by_child(void) {
  make_file(path);
  start_child(hold_flock);
  add_locker();
}

static void hold_flock_and_compute(void) {
  flock_file(open_file(path), LOCK_EX);
  child_is_ready();
  hang_compute();
}

static void child_works(void) {
  make_file(path);
  start_child(hold_flock_and_compute);
  add_locker();
}

/* Without the agent, and of a name of its own. */
static void hold_flock_as_sleep(void) {
  int fd = open_file(path);
  flock_file(fd, LOCK_EX);
  victim_check(fcntl(fd, F_SETFD, 0) == 0, "F_SETFD");
  child_is_ready();
  char* const arguments[] = {"sleep", "3600", NULL};
  char* const environment[] = {NULL};
  execve("/bin/sleep", arguments, environment);
}

static void held_without_agent(void) {
  make_file(path);
  pid_t child = start_child(hold_flock_as_sleep);
  await_child_in(SYS_clock_nanosleep, child);
  add_locker();
}

static void read_flock(void) {
  flock_file(open_file(path), LOCK_SH);
  child_is_ready();
  hang_sleep();
}

static void held_by_readers(void) {
  make_file(path);
  start_child(read_flock);
  start_child(read_flock);
  add_locker();
}

/* As `flock 9` in a shell: the process that locks ends, and one that shares its open file goes on. */
static int shared_fd;

static void keep_open(void) {
  child_is_ready();
  hang_sleep();
}

static void lock_and_end(void) {
  flock_file(shared_fd, LOCK_EX);
  child_is_ready();
}

static void locker_ended(void) {
  make_file(path);
  shared_fd = open_file(path);
  start_child(keep_open);
  pid_t locker = start_child(lock_and_end);
  victim_check(waitpid(locker, NULL, 0) == locker && close(shared_fd) == 0, "waitpid");
  add_locker();
}

/* --- flock() of the same process --- */

static void held_by_itself(void) {
  make_file(path);
  flock_file(open_file(path), LOCK_EX);
  add_locker();
}

static void only_thread(void) {
  make_file(path);
  flock_file(open_file(path), LOCK_EX);
  int fd = open_file(path);
  unlink(path);
  hang_ready_when_blocked(SYS_flock);
  take_flock(&fd);
}

/* --- cycles --- */

static void take_other_then_first(void) {
  flock_file(open_file(other_path), LOCK_EX);
  child_is_ready();
  flock(open_file(path), LOCK_EX);
}

static void cycle(void) {
  static int fd;
  make_file(path);
  make_file(other_path);
  flock_file(open_file(path), LOCK_EX);
  pid_t child = start_child(take_other_then_first);
  await_child_in(SYS_flock, child);
  fd = open_file(other_path);
  unlink(path);
  unlink(other_path);
  hang_thread_in(SYS_flock, "locker", take_flock, &fd);
}

/* --- fcntl() --- */

static struct flock whole_file(void) { return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET}; }

static void hold_open_file_lock(void) {
  struct flock whole = whole_file();
  victim_check(fcntl(open_file(path), F_OFD_SETLK, &whole) == 0, "F_OFD_SETLK");
  child_is_ready();
  hang_sleep();
}

VICTIM_NOINLINE static void* take_record(void* fd) {
  struct flock whole = whole_file();
  fcntl(*(int*)fd, F_SETLKW, &whole);
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

VICTIM_NOINLINE static void* take_open_file_lock(void* fd) {
  struct flock whole = whole_file();
  fcntl(*(int*)fd, F_OFD_SETLKW, &whole);
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void open_file_lock(void) {
  static int record_fd, open_file_fd;
  make_file(path);
  start_child(hold_open_file_lock);
  record_fd = open_file(path);
  open_file_fd = open_file(path);
  unlink(path);
  hang_thread_in(SYS_fcntl, "record-locker", take_record, &record_fd);
  hang_thread_in(SYS_fcntl, "file-locker", take_open_file_lock, &open_file_fd);
}

static const hang_mode kModes[] = {
    {"child_works", child_works},         {"circle", cycle},
    {"held_by_child", held_by_child},     {"held_by_itself", held_by_itself},
    {"held_by_readers", held_by_readers}, {"held_without_agent", held_without_agent},
    {"locker_ended", locker_ended},       {"only_thread", only_thread},
    {"open_file_lock", open_file_lock},
};

int main(int argc, char** argv) { return hang_run(argc, argv, kModes, sizeof kModes / sizeof kModes[0]); }
