#include "agent/helper/requests.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "agent/crash/crash_link.h"
#include "agent/helper/connection.h"
#include "agent/helper/life.h"
#include "agent/helper/task_source.h"
#include "agent/runtimes/runtimes.h"
#include "agent/sys/kernel.h"
#include "agent/sys/lock.h"

#define MS 1000000ull
/* For a daemon that is stopped: the others answer, or are not there, within a millisecond. */
#define FIRST_TRY_NS (500 * MS)

static STACKD_AT_FORK struct stackd_lock lock;
static struct stackd_own_fd socket_in_use = {-1, 0, 0};
static char process_name[64];
static STACKD_AT_FORK struct stackd_hello hellos[2];
static STACKD_AT_FORK int next_hello;

/* Counts of dumps, which only grow; the last two are futex words. */
static uint32_t dumps_begun;
static uint32_t dumps_over;
static uint32_t dumps_read;

/* Called with the lock. */
static void send_name(void) {
  struct stackd_name message;
  memset(&message, 0, sizeof(message));
  message.header.type = STACKD_MSG_NAME;
  message.header.size_bytes = sizeof(message);
  memcpy(message.name, process_name, sizeof(message.name));
  stackd_connection_send(&socket_in_use, &message.header);
}

/* Called with the lock. */
static void send_has_tasks(void) {
  struct stackd_message_header message = {STACKD_MSG_HAS_TASKS, sizeof(message)};
  stackd_connection_send(&socket_in_use, &message);
}

struct stackd_hello* stackd_requests_new_hello(void) {
  uint64_t mask = stackd_lock_and_block(&lock);
  struct stackd_hello* hello = &hellos[next_hello];
  next_hello = 1 - next_hello;
  memset(hello, 0, sizeof(*hello));
  memcpy(hello->name, process_name, sizeof(hello->name));
  stackd_unlock_and_restore(&lock, mask);
  return hello;
}

void stackd_requests_go_by(struct stackd_own_fd socket) {
  uint64_t mask = stackd_lock_and_block(&lock);
  socket_in_use = socket;
  /* They may have been given after HELLO was written. */
  if (socket.fd >= 0 && process_name[0] != 0) send_name();
  if (socket.fd >= 0 && stackd_task_source_is_set()) send_has_tasks();
  stackd_unlock_and_restore(&lock, mask);
}

static void count_one(uint32_t* word) {
  __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
  stackd_syscall6(SYS_futex, (long)word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, 0, 0, 0);
}

void stackd_requests_count_begin(void) { __atomic_fetch_add(&dumps_begun, 1, __ATOMIC_SEQ_CST); }
void stackd_requests_count_end(void) { count_one(&dumps_over); }
void stackd_requests_count_read(void) { count_one(&dumps_read); }

void stackd_requests_reset_after_fork(void) {
  stackd_lock_reset(&lock);
  if (socket_in_use.fd >= 0) socket_in_use = STACKD_NO_FD;
}

void stackd_requests_set_name(const char* name) {
  char padded[sizeof(process_name)];
  memset(padded, 0, sizeof(padded));
  stackd_copy_string(padded, sizeof(padded), name);
  uint64_t mask = stackd_lock_and_block(&lock);
  memcpy(process_name, padded, sizeof(process_name));
  for (int i = 0; i < 2; i++) memcpy(hellos[i].name, process_name, sizeof(hellos[i].name));
  send_name();
  stackd_unlock_and_restore(&lock, mask);
}

int stackd_requests_set_task_source(stackd_task_source_fn* source) {
  int error = stackd_task_source_set(source);
  if (error != 0 || source == NULL) return error;
  uint64_t mask = stackd_lock_and_block(&lock);
  send_has_tasks();
  stackd_unlock_and_restore(&lock, mask);
  return 0;
}

void stackd_requests_say_filtered(bool filtered) {
  struct stackd_filtered message = {{STACKD_MSG_FILTERED, sizeof(message)}, filtered, 0};
  stackd_connection_send(&socket_in_use, &message.header);
}

static int send_dump_request(const char* exception_type) {
  struct stackd_exception_request message;
  memset(&message, 0, sizeof(message));
  message.header.type = STACKD_MSG_DUMP_REQUEST;
  message.header.size_bytes = exception_type[0] == '\0' ? sizeof(struct stackd_dump_request) : sizeof(message);
  message.tid = stackd_gettid();
  stackd_copy_string(message.type, sizeof(message.type), exception_type);
  uint64_t mask = stackd_lock_and_block(&lock);
  int error = stackd_connection_send(&socket_in_use, &message.header);
  stackd_unlock_and_restore(&lock, mask);
  return error;
}

static bool await_count(uint32_t* word, uint32_t value, uint64_t deadline_ns) {
  for (;;) {
    uint32_t seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    if ((int32_t)(seen - value) >= 0) return true;
    uint64_t now_ns = stackd_clock_ns(CLOCK_MONOTONIC);
    if (now_ns >= deadline_ns) return false;
    struct timespec timeout = stackd_timespec(deadline_ns - now_ns);
    stackd_futex_wait(word, seen, &timeout, FUTEX_PRIVATE_FLAG);
  }
}

int stackd_requests_dump(const char* exception_type, int timeout_ms) {
  stackd_helper_start();
  uint64_t timeout_ns = (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * MS;
  uint64_t deadline_ns = stackd_clock_ns(CLOCK_MONOTONIC) + timeout_ns;
  /* A dump that runs already may have passed this thread: the next one counts. */
  uint32_t over_at = __atomic_load_n(&dumps_begun, __ATOMIC_SEQ_CST) + 1;
  uint32_t read_at = __atomic_load_n(&dumps_read, __ATOMIC_SEQ_CST) + 1;
  if (send_dump_request(exception_type) != 0) {
    /* A program that fails at its start does so before it is registered. */
    stackd_crash_await_helper(timeout_ns < FIRST_TRY_NS ? timeout_ns : FIRST_TRY_NS);
    if (send_dump_request(exception_type) != 0) return -ENOTCONN;
  }
  if (timeout_ms <= 0) return 0;
  if (!await_count(&dumps_over, over_at, deadline_ns)) return -ETIMEDOUT;
  /* The program may be about to end, and then the daemon cannot read its methods' names, or the lines of its scripts. */
  if (stackd_runtimes_are_read_after_dump() || exception_type[0] != '\0') await_count(&dumps_read, read_at, deadline_ns);
  return 0;
}
