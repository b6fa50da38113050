#include "agent/dump/dump.h"

#include <errno.h>
#include <string.h>

#include "agent/capture/context.h"
#include "agent/dump/dump_run.h"
#include "agent/maps/code_ranges.h"
#include "agent/runtimes/runtimes.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/private_fd.h"

/* A map younger than this serves another dump: reading maps of a process with thousands of threads takes milliseconds. */
#define MAPS_AGE_NS (100 * STACKD_MS)
#define MAX_PASSES 3

static uint64_t maps_read_ns;

void stackd_dump_look_at_maps(const struct stackd_ring* ring, int maps_fd) {
  uint64_t now = stackd_monotonic_ns();
  if (maps_fd < 0 || (maps_read_ns != 0 && now - maps_read_ns < MAPS_AGE_NS)) return;
  /* A handler that began two looks ago still uses the buffer that would be written now. */
  if (!stackd_handler_quiesce(STACKD_DUMP_QUIET_NS)) return;
  bool has_new_code = stackd_code_ranges_refresh(maps_fd) > 0;
  if (has_new_code) __atomic_fetch_add(&ring->header->maps_generation, 1, __ATOMIC_RELEASE);
  if (has_new_code || stackd_managed_is_unsettled()) stackd_managed_find_runtimes(maps_fd);
  maps_read_ns = now;
}

static bool add_thread(void* context, uint32_t tid) {
  struct stackd_dump* dump = context;
  if (tid == dump->options->skip_tid) return true;
  if (dump->count == dump->table->capacity) {
    struct stackd_thread_table* grown = stackd_thread_table_reserve(dump->count + 1);
    if (grown == NULL) return false;
    memcpy(grown->entries, dump->table->entries, dump->count * sizeof(grown->entries[0]));
    dump->table = grown;
  }
  struct stackd_thread_entry* entry = &dump->table->entries[dump->count++];
  memset(entry, 0, sizeof(*entry));
  entry->max_stack_bytes = dump->options->max_stack_bytes;
  __atomic_store_n(&entry->tid, tid, __ATOMIC_RELAXED);
  return true;
}

struct newcomers {
  struct stackd_dump* dump;
  uint32_t known; /* entries of earlier passes */
  uint32_t at;    /* where the next known one most likely is */
};

static bool add_newcomer(void* context, uint32_t tid) {
  struct newcomers* newcomers = context;
  return stackd_thread_is_known(newcomers->dump->table, newcomers->known, tid, &newcomers->at) ||
         add_thread(newcomers->dump, tid);
}

static void ask_pass(struct stackd_dump* dump) {
  struct stackd_thread_entry* helper = NULL;
  for (uint32_t i = dump->first; i < dump->count; i++) {
    struct stackd_thread_entry* entry = &dump->table->entries[i];
    if (entry->tid == dump->helper_tid) {
      helper = entry;
      continue;
    }
    stackd_dump_wait_for_window(dump);
    if (dump->job->over) break;
    stackd_dump_ask(dump, i);
  }
  /* While the others answer. */
  if (helper != NULL) stackd_dump_capture_helper(dump, helper);
  stackd_dump_settle(dump);
}

static void dump_threads(struct stackd_dump* dump) {
  stackd_dump_open_window(dump);
  uint64_t thread_count = stackd_task_count(dump->task_fd);
  for (int pass = 0;; pass++) {
    stackd_job_publish_listed(dump->job, dump->count);
    ask_pass(dump);
    bool exited = false;
    for (uint32_t i = dump->first; i < dump->count; i++) exited |= dump->table->entries[i].status == STACKD_STATUS_EXITED;
    uint64_t count_now = stackd_task_count(dump->task_fd);
    bool complete = dump->options->only_tid != 0 || (!exited && count_now == thread_count);
    if (dump->job->over || complete || pass + 1 == MAX_PASSES) break;
    thread_count = count_now;
    struct newcomers newcomers = {dump, dump->count, 0};
    dump->first = dump->count;
    if (stackd_proc_list(dump->task_fd, add_newcomer, &newcomers) != 0 || dump->first == dump->count) break;
  }
  stackd_job_publish_listed(dump->job, dump->count);
  stackd_dump_write_statuses(dump);
  if (dump->options->only_tid == 0) stackd_dump_remember_answered(dump);
}

void stackd_dump_reset_after_fork(void) {
  stackd_dump_ask_reset_after_fork();
  STACKD_RESET(maps_read_ns, 0);
}

/* 0 or a negative errno. */
static int list_threads(struct stackd_dump* dump) {
  if (dump->table == NULL) return -ENOMEM;
  if (dump->task_fd < 0) return dump->task_fd;
  uint32_t only = dump->options->only_tid;
  if (only == 0) return stackd_proc_list(dump->task_fd, add_thread, dump);
  return !stackd_task_exists(dump->task_fd, only) || add_thread(dump, only) ? 0 : -ENOMEM;
}

void stackd_dump_run(struct stackd_job* job, const struct stackd_dump_options* options) {
  struct stackd_dump dump;
  memset(&dump, 0, sizeof(dump));
  dump.job = job;
  dump.options = options;
  dump.table = stackd_thread_table_reserve(1);
  dump.task_fd = stackd_task_open();
  dump.pid = stackd_getpid();
  dump.helper_tid = (uint32_t)stackd_gettid();
  dump.answers_before = stackd_thread_answers();
  dump.begin_ns = stackd_monotonic_ns();
  int error = list_threads(&dump);
  if (error == 0) dump_threads(&dump);
  if (dump.task_fd >= 0) stackd_own_fd_drop(dump.task_fd);
  /* Threads that were not listed (no fd was free) the daemon sees in procfs. */
  stackd_job_publish_done(job, error);
}
