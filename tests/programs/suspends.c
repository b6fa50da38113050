/* Waits in sigsuspend() for SIGUSR2, which it blocks elsewhere, beside a thread that waits for a lock. Answers each line on
 * stdin with how often it was woken with the signal, and how often without. */
#include <signal.h>

#include "tests/programs/victim.h"

static volatile sig_atomic_t is_caught;
static int woken_with, woken_without;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void catch (int signal_number) {
  (void)signal_number;
  is_caught = 1;
}

VICTIM_NOINLINE static void* wait_for_lock(void* unused) {
  pthread_mutex_lock(&lock);
  return unused;
}

static void* answer(void* unused) {
  char line[16];
  while (fgets(line, sizeof line, stdin) != NULL) {
    printf("%d %d\n", __atomic_load_n(&woken_with, __ATOMIC_ACQUIRE), __atomic_load_n(&woken_without, __ATOMIC_ACQUIRE));
    fflush(stdout);
  }
  return unused;
}

int main(void) {
  struct sigaction action = {.sa_handler = catch};
  sigaction(SIGUSR2, &action, NULL);
  sigset_t blocked, open;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &blocked, &open);
  pthread_mutex_lock(&lock);
  victim_thread waiter, answerer;
  victim_start(&waiter, "waiter", wait_for_lock, NULL, 0);
  victim_start(&answerer, "answerer", answer, NULL, 0);
  victim_await_syscall(waiter.tid, SYS_futex);
  victim_ready();
  for (;;) {
    is_caught = 0;
    sigsuspend(&open);
    __atomic_add_fetch(is_caught ? &woken_with : &woken_without, 1, __ATOMIC_RELEASE);
  }
}
