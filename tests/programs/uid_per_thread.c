/* Threads of which each is another user, by raw system calls, as file servers do to let the kernel check what a client may.
 * The first stays what it was. Answers a line from stdin and ends with 7. */
#include "victim.h"

enum { THREADS = 4, FIRST_UID = 61000 };

static int go_on[2];
static int wrong;

static void* change_user(void* number) {
  uid_t uid = FIRST_UID + (uid_t)(long)number;
  victim_check(syscall(SYS_setresgid, uid, uid, uid) == 0, "setresgid");
  victim_check(syscall(SYS_setresuid, uid, uid, uid) == 0, "setresuid");
  char byte;
  if (read(go_on[0], &byte, 1) != 1) wrong = 1;
  if (syscall(SYS_geteuid) != uid || syscall(SYS_getegid) != uid) wrong = 1;
  return NULL;
}

int main(void) {
  victim_thread threads[THREADS] = {0};
  victim_check(pipe(go_on) == 0, "pipe");
  uid_t before = (uid_t)syscall(SYS_geteuid);
  for (long i = 0; i < THREADS; i++) victim_start(&threads[i], "client", change_user, (void*)i, 65536);
  /* No process that has changed its user may read this of itself. */
  for (int i = 0; i < THREADS; i++) victim_await_asleep(threads[i].tid);
  victim_ready();
  char line[64];
  if (fgets(line, sizeof line, stdin) == NULL) return 3;
  if (write(go_on[1], "abcd", THREADS) != THREADS) return 4;
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i].handle, NULL);
  if ((uid_t)syscall(SYS_geteuid) != before) wrong = 1;
  printf("%swrong %d\n", line, wrong);
  return 7;
}
