#include "agent/helper/introduction.h"

#include <string.h>

#include "agent/crash/spool_writer.h"
#include "agent/dump/command.h"
#include "agent/helper/bell.h"
#include "agent/helper/helper_state.h"
#include "agent/helper/life.h"
#include "agent/helper/requests.h"
#include "agent/runtimes/runtimes.h"
#include "agent/signals/sigterm.h"
#include "agent/signals/wake_signal.h"
#include "agent/sys/filtered.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/kernel.h"

#define MS 1000000ull
/* Between two looks for a daemon where no helper does. */
#define OCCASION_NS (1000 * MS)

struct stackd_helper_state stackd_helper = {.connection = {.socket = {-1, 0, 0}, .spool = {-1, 0, 0}}};

static struct stackd_own_fd bell = {-1, 0, 0};
static STACKD_AT_FORK uint64_t next_look_ns; /* for a daemon, where no helper runs */

/* In the child of a fork: its parent found no daemon within the last second. The clock is not asked, whose pages would have
 * to be mapped for it: the parent has looked before the fork where that was due. */
static STACKD_AT_FORK bool looks_in_vain;

static STACKD_AT_FORK const struct stackd_hello*
    description; /* the last, in the child of a fork its parent's; NULL: none yet */
static STACKD_AT_FORK bool is_whole;

static bool needs_memory(void) { return stackd_helper.settings->shares_as_needed && stackd_runtimes_need_memory(); }

void stackd_helper_pass_memory(void) {
  int mem = stackd_own_fd_get(&stackd_helper.files->mem);
  if (stackd_helper.memory_is_passed || mem < 0 || !needs_memory()) return;
  struct stackd_message_header message = {STACKD_MSG_MEMORY, sizeof(message)};
  stackd_helper.memory_is_passed = stackd_connection_send_fd(&stackd_helper.connection.socket, &message, mem) == 0;
}

bool stackd_helper_send_bell(void) {
  int end = stackd_bell_make(&bell);
  stackd_wake_signal_set_fd(bell.fd);
  if (end < 0) return false;
  struct stackd_bell message;
  memset(&message, 0, sizeof(message));
  message.header.type = STACKD_MSG_BELL;
  message.header.size_bytes = sizeof(message);
  message.signal = stackd_wake_signal();
  message.sigterm_count_avma = (uint64_t)&stackd_sigterm_count;
  stackd_connection_send_fd(&stackd_helper.connection.socket, &message.header, end);
  stackd_close(end);
  return true;
}

bool stackd_helper_has_daemon(void) { return stackd_helper.stage != STACKD_NOT_CONNECTED; }

void stackd_helper_change_wake_signal(void) { stackd_bell_set_signal(&bell); }

void stackd_helper_silence(void) {
  stackd_wake_signal_set_fd(-1);
  stackd_own_fd_close(&bell);
}

/* `is_start`: of the process, which may end soon. */
static const struct stackd_hello* describe(bool is_start) {
  struct stackd_hello* hello = stackd_requests_new_hello();
  hello->header.type = STACKD_MSG_HELLO;
  hello->header.size_bytes = sizeof(*hello);
  hello->abi_version = STACKD_ABI_VERSION;
  hello->dump_signal = stackd_helper.settings->dump_signal;
  hello->share = needs_memory() ? STACKD_SHARE_MEMORY : stackd_helper.settings->share;
  if (stackd_helper.settings->shares_as_needed) hello->flags |= STACKD_HELLO_SHARES_AS_NEEDED;
  if (stackd_helper.has_bell) hello->flags |= STACKD_HELLO_HAS_BELL;
  if (is_start) {
    stackd_process_describe_briefly(description, hello);
  } else {
    stackd_process_describe(hello);
  }
  description = hello;
  is_whole = !is_start;
  /* The program may have closed them since. */
  stackd_process_files_open(stackd_helper.files);
  stackd_spool_set_process(hello);
  return hello;
}

void stackd_helper_describe_whole(void) {
  if (!is_whole) describe(false);
}

static int say_hello(bool is_start) {
  int error = stackd_connection_open(&stackd_helper.connection, stackd_helper.settings);
  if (error != 0) {
    /* A crash starts the helper, which describes the process then. */
    if (stackd_helper_tid() != 0) stackd_helper_describe_whole();
    return error;
  }
  error = stackd_connection_say_hello(&stackd_helper.connection, describe(is_start), stackd_helper.settings,
                                      stackd_helper.files);
  if (error != 0) return error;
  stackd_helper.memory_is_passed = description->share == STACKD_SHARE_MEMORY;
  stackd_helper.stage = STACKD_INTRODUCED;
  if (stackd_helper.has_bell && stackd_helper_tid() == 0) stackd_helper_send_bell();
  return 0;
}

int stackd_helper_connect(bool is_start) {
  __atomic_store_n(&next_look_ns, stackd_monotonic_ns() + OCCASION_NS, __ATOMIC_RELAXED);
  return say_hello(is_start);
}

static void stand_in_and_introduce(bool is_start) {
  uint64_t mask;
  if (!stackd_helper_stand_in(&mask)) return;
  if (stackd_helper.stage == STACKD_INTRODUCED && stackd_connection_is_over(&stackd_helper.connection)) {
    stackd_connection_close(&stackd_helper.connection);
    stackd_helper.stage = STACKD_NOT_CONNECTED;
  }
  if (stackd_helper.stage == STACKD_NOT_CONNECTED) stackd_helper_connect(is_start);
  /* The ring goes with the connection, which is the helper's to do. */
  bool is_lost = stackd_helper.stage == STACKD_REGISTERED && stackd_connection_is_over(&stackd_helper.connection);
  stackd_helper_step_back(mask);
  if (is_lost) stackd_helper_start();
}

void stackd_helper_introduce(void) { stand_in_and_introduce(false); }

void stackd_helper_introduce_at_start(void) { stand_in_and_introduce(true); }

void stackd_helper_introduce_child(void) {
  uint64_t mask;
  if (looks_in_vain || !stackd_helper_stand_in(&mask)) return;
  /* The next look is due when it is for its parent. */
  say_hello(description != NULL);
  stackd_helper_step_back(mask);
}

void stackd_helper_before_change(void) {
  uint64_t mask;
  /* A helper that runs, or ran, has looked. */
  if (is_whole || !stackd_helper_stand_in(&mask)) return;
  describe(false);
  stackd_helper_step_back(mask);
}

bool stackd_helper_has_occasion(void) {
  if (stackd_helper_tid() != 0 || stackd_is_filtered()) return false;
  uint64_t now_ns = stackd_monotonic_ns();
  uint64_t due_ns = __atomic_load_n(&next_look_ns, __ATOMIC_RELAXED);
  return now_ns >= due_ns && __atomic_compare_exchange_n(&next_look_ns, &due_ns, now_ns + OCCASION_NS, false,
                                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void stackd_helper_introduction_reset_after_fork(void) {
  looks_in_vain = stackd_helper.stage == STACKD_NOT_CONNECTED;
  STACKD_RESET(is_whole, false);
  STACKD_RESET(stackd_helper.stage, STACKD_NOT_CONNECTED);
  /* A filter of system calls, which the child has too, may forbid to close them. */
  if (stackd_is_filtered()) return;
  /* The ring is not mapped here (MADV_DONTFORK); the socket is the parent's. */
  stackd_connection_close(&stackd_helper.connection);
  stackd_own_fd_close(&bell);
}
