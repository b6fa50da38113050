/* What the programs of the hang tests share: a program is a table of modes, a mode brings its threads where they hang.
 *
 * `start` of a mode returns when each of its threads is where the test expects it. Then the program prints "ready" and its
 * main thread waits for a signal for ever. A mode whose main thread hangs itself calls hang_ready_when_blocked() before.
 */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/programs/victim.h"

/* Enough for std::format and the like, little enough for 500 threads. */
#define HANG_STACK_BYTES ((size_t)256 << 10)

typedef struct hang_mode {
  const char* name;
  void (*start)(void);
} hang_mode;

/* Never ends; its `tid` and `handle` are valid when this returns. */
static inline victim_thread* hang_thread(const char* name, void* (*body)(void*), void* argument) {
  victim_thread* thread = (victim_thread*)calloc(1, sizeof *thread);
  victim_check(thread != NULL, "calloc");
  victim_start(thread, name, body, argument, HANG_STACK_BYTES);
  return thread;
}

/* A thread that is in system call `number` by the time this returns. */
static inline victim_thread* hang_thread_in(long number, const char* name, void* (*body)(void*), void* argument) {
  victim_thread* thread = hang_thread(name, body, argument);
  victim_await_syscall(thread->tid, number);
  return thread;
}

/* A thread that was in a futex for another reason before says hang_pass() when all that is left is where it hangs. Before
 * that, to see it in futex() means nothing. */
static int hang_passed_count;

static inline void hang_pass(void) { __atomic_add_fetch(&hang_passed_count, 1, __ATOMIC_RELEASE); }

static inline void hang_await_passed(int count) {
  while (__atomic_load_n(&hang_passed_count, __ATOMIC_ACQUIRE) < count) usleep(100);
}

typedef struct hang_watch {
  pid_t tid;
  long number;
} hang_watch;

/* As victim_ready(), without malloc(). */
static inline void hang_ready(void) { victim_check(write(STDOUT_FILENO, "ready\n", 6) == 6, "write"); }

static inline void* hang_watch_main(void* argument) {
  const hang_watch* watch = (const hang_watch*)argument;
  victim_await_syscall(watch->tid, watch->number);
  hang_ready();
  return NULL;
}

/* Prints "ready" when the calling thread is in system call `number`, from a thread that ends with that. */
static inline void hang_ready_when_blocked(long number) {
  static hang_watch watch;
  watch.tid = victim_tid();
  watch.number = number;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t unused;
  victim_check(pthread_create(&unused, &attributes, hang_watch_main, &watch) == 0, "pthread_create");
}

/* From now on system call `number` of the calling thread blocks until a signal comes, then again: as a slow one does. Its
 * supervisor, which the kernel asks, is this process, and it never answers. */
static inline void hang_block_syscall(long number) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof code[0], code};
  victim_check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  long listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
  victim_check(listener >= 0, "seccomp");
}

static inline void hang_sleep(void) {
  for (;;) sleep(3600);
}

static inline void hang_compute(void) {
  for (unsigned long long work = 1;;) {
    work = work * 6364136223846793005u + 1442695040888963407u;
    __asm__ volatile("" : "+r"(work)); /* is needed, says this */
  }
}

static inline int hang_run(int argc, char** argv, const hang_mode* modes, size_t mode_count) {
  for (size_t i = 0; argc == 2 && i < mode_count; ++i) {
    if (strcmp(argv[1], modes[i].name) != 0) continue;
    modes[i].start();
    hang_ready();
    for (;;) pause();
  }
  fprintf(stderr, "usage: %s MODE, one of:", argv[0]);
  for (size_t i = 0; i < mode_count; ++i) fprintf(stderr, " %s", modes[i].name);
  fputc('\n', stderr);
  return 2;
}
