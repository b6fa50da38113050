/* Threads that are inside a signal handler when the dump comes. One is on its own stack, one on an alternate stack, one in
 * a handler that interrupted a handler. Below the handler lies the code it interrupted. */
#include <signal.h>
#include <sys/mman.h>

#include "tests/programs/victim.h"

static int silent_pipe[2];

VICTIM_NOINLINE static void block_in_handler(void) {
  char byte;
  while (read(silent_pipe[0], &byte, 1) < 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
}

static void on_user_signal(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  block_in_handler();
  VICTIM_NOT_A_TAIL_CALL();
}

static void on_first_signal(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  raise(SIGUSR2);
  VICTIM_NOT_A_TAIL_CALL();
}

/* Interrupted in its loop, where no call is under way. */
static volatile long work_done;
VICTIM_NOINLINE static void work(void) {
  for (;;) work_done = work_done * 3 + 1;
}

VICTIM_NOINLINE static void* interrupted(void* alternate_stack) {
  if (alternate_stack != NULL) {
    stack_t stack = {.ss_sp = alternate_stack, .ss_size = 128 << 10};
    victim_check(sigaltstack(&stack, NULL) == 0, "sigaltstack");
  }
  work();
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

static void handle(int number, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART | flags};
  victim_check(sigaction(number, &action, NULL) == 0, "sigaction");
}

int main(void) {
  victim_check(pipe(silent_pipe) == 0, "pipe");
  handle(SIGUSR1, on_first_signal, 0);
  handle(SIGUSR2, on_user_signal, 0);
  handle(SIGHUP, on_user_signal, SA_ONSTACK);

  void* alternate = mmap(NULL, 128 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  victim_check(alternate != MAP_FAILED, "mmap");
  static const int signals[] = {SIGUSR2, SIGHUP, SIGUSR1};
  static const char* const names[] = {"own-stack", "alternate", "nested"};
  static victim_thread threads[3];
  for (int i = 0; i < 3; ++i) {
    victim_start(&threads[i], names[i], interrupted, i == 1 ? alternate : NULL, 256 << 10);
    long before = work_done;
    while (work_done == before) usleep(50);
    pthread_kill(threads[i].handle, signals[i]);
    victim_await_syscall(threads[i].tid, SYS_read);
  }
  victim_ready();
  victim_wait_for_ever();
}
