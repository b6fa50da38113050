/* What the programs of the tests share: threads that say truthfully when they are where the test wants them.
 *
 * A victim prints "ready" when every thread of its own is blocked in the call named to victim_await_syscall(). The test
 * that reads this line can dump at once: nothing here waits for "long enough".
 */
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Keeps a function a frame of its own. */
#define VICTIM_NOINLINE __attribute__((noinline, noclone))

static inline pid_t victim_tid(void) { return (pid_t)syscall(SYS_gettid); }

/* Returns when the thread or process with this /proc/.../syscall file is blocked in system call `number`. The kernel offers
 * no event for that: ask until it is so. Without malloc(), whose lock may be what a thread hangs on. */
static inline void victim_await_syscall_file(const char* path, long number) {
  for (;; usleep(200)) {
    char line[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ssize_t bytes = read(fd, line, sizeof line - 1);
    close(fd);
    if (bytes <= 0) continue;
    line[bytes] = 0;
    if (line[0] != 'r' && strtol(line, NULL, 10) == number) return;
  }
}

static inline void victim_await_syscall(pid_t tid, long number) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)tid);
  victim_await_syscall_file(path, number);
}

/* Waits until it sleeps at all: a process that has changed its user may not read its own /proc/self/task/TID/syscall. */
static inline void victim_await_asleep(pid_t tid) {
  char path[64], line[256];
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
  for (;; usleep(200)) {
    FILE* stream = fopen(path, "re");
    if (stream == NULL) continue;
    char* got = fgets(line, sizeof line, stream);
    fclose(stream);
    if (got != NULL && strstr(line, ") S ") != NULL) return;
  }
}

static inline void victim_check(int ok, const char* what) {
  if (ok) return;
  perror(what);
  exit(1);
}

/* A thread with a small stack; its tid by the time this returns. `body` gets `argument`. */
typedef struct victim_thread {
  void* (*body)(void*);
  void* argument;
  const char* name;
  pid_t tid;
  pthread_t handle;
} victim_thread;

static inline void* victim_thread_main(void* self_pointer) {
  victim_thread* self = (victim_thread*)self_pointer;
  if (self->name != NULL) pthread_setname_np(pthread_self(), self->name);
  void* (*body)(void*) = self->body;
  void* argument = self->argument;
  __atomic_store_n(&self->tid, victim_tid(), __ATOMIC_RELEASE);
  /* Not a tail call: this frame belongs to every stack. */
  void* result = body(argument);
  __asm__ volatile("" ::: "memory");
  return result;
}

static inline void victim_start(victim_thread* thread, const char* name, void* (*body)(void*), void* argument,
                                size_t stack_bytes) {
  thread->body = body;
  thread->argument = argument;
  thread->name = name;
  thread->tid = 0;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  int error = pthread_create(&thread->handle, &attributes, victim_thread_main, thread);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    fprintf(stderr, "pthread_create: %s\n", strerror(error));
    exit(1);
  }
  while (__atomic_load_n(&thread->tid, __ATOMIC_ACQUIRE) == 0) usleep(50);
}

static inline void victim_ready(void) {
  puts("ready");
  fflush(stdout);
}

/* The end of main: until the test kills the program. Reads a pipe that no process writes to. */
static inline void victim_wait_for_ever(void) {
  int ends[2];
  victim_check(pipe(ends) == 0, "pipe");
  char byte;
  while (read(ends[0], &byte, 1) < 0) {
  }
}

/* Ends a function whose last call must not become a jump: the frame stays on the stack. */
#define VICTIM_NOT_A_TAIL_CALL() __asm__ volatile("" ::: "memory")
