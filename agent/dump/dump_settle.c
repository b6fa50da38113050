/* How each thread of a pass comes to have a record or a status.
 *
 *     state (thread_table.h)   while there is time                                      when it is over
 *     IDLE, deferred           asked, or read asleep, as soon as that may be            SIGNAL_BLOCKED or TIMED_OUT
 *     ASKED                    procfs is asked after 2 ms: EXITED, STOPPED;             as on the left, else TIMED_OUT
 *                              SIGNAL_BLOCKED after 10 ms, or 100 if it runs;
 *                              UNINTERRUPTIBLE after 100 ms
 *     BUSY                     waited for                                               TIMED_OUT
 *     NO_SLOT                  asked again when there is room                           RING_FULL
 *     FAULT                    AGENT_FAULT                                              AGENT_FAULT
 *     DONE, or with a status   settled                                                  settled
 */
#include "agent/dump/dump_run.h"
#include "agent/sys/kernel.h"

static void settle_as(struct stackd_dump* dump, struct stackd_thread_entry* entry, uint32_t status, char kernel_state) {
  if (!stackd_thread_give_up(entry, dump->job->seq)) return; /* it answered after all */
  dump->asked--;
  entry->status = status;
  entry->kernel_state = kernel_state;
}

/* Looks at a thread that was asked and is silent. */
static void inspect(struct stackd_dump* dump, struct stackd_thread_entry* entry, uint64_t quiet_ns) {
  struct stackd_task_status status;
  int error = stackd_task_read_status(dump->task_fd, entry->tid, &status);
  if (stackd_dump_is_gone(error, &status)) settle_as(dump, entry, STACKD_STATUS_EXITED, 0);
  if (error != 0) return;
  if (stackd_dump_is_stopped(&status)) settle_as(dump, entry, STACKD_STATUS_STOPPED, status.state);
  bool blocks = (status.signals_blocked & stackd_dump_signal_bit(dump)) != 0;
  if (blocks && quiet_ns >= stackd_dump_blocked_for_good_ns(status.state))
    settle_as(dump, entry, STACKD_STATUS_SIGNAL_BLOCKED, status.state);
  if (status.state == 'D' && quiet_ns >= STACKD_DUMP_UNINTERRUPTIBLE_NS) {
    settle_as(dump, entry, STACKD_STATUS_UNINTERRUPTIBLE, status.state);
  }
}

struct unsettled {
  uint32_t silent;  /* deferred, ASKED or BUSY */
  uint32_t running; /* of these, to be looked at again soon */
  uint32_t no_slot; /* could not write: ask again */
};

static struct unsettled look_at_all(struct stackd_dump* dump, uint64_t quiet_ns) {
  struct unsettled result = {0, 0, 0};
  for (uint32_t i = dump->first; i < dump->count; i++) {
    struct stackd_thread_entry* entry = &dump->table->entries[i];
    enum stackd_thread_state state = stackd_dump_state(entry);
    if (state == STACKD_THREAD_IDLE && entry->deferred && entry->status == 0) {
      stackd_dump_ask_deferred(dump, i);
      state = stackd_dump_state(entry);
      if (state == STACKD_THREAD_IDLE && entry->status == 0) result.silent++;
      if (state == STACKD_THREAD_IDLE && entry->is_running) result.running++;
    }
    if (state == STACKD_THREAD_ASKED && quiet_ns >= STACKD_DUMP_QUIET_NS) {
      inspect(dump, entry, quiet_ns);
      state = stackd_dump_state(entry);
    }
    if (state == STACKD_THREAD_ASKED || state == STACKD_THREAD_BUSY) result.silent++;
    if (state == STACKD_THREAD_NO_SLOT) result.no_slot++;
    if (state == STACKD_THREAD_FAULT) entry->status = STACKD_STATUS_AGENT_FAULT;
  }
  return result;
}

static void ask_again(struct stackd_dump* dump) {
  for (uint32_t i = dump->first; i < dump->count && !stackd_job_is_over(dump->job); i++) {
    struct stackd_thread_entry* entry = &dump->table->entries[i];
    if (stackd_dump_state(entry) != STACKD_THREAD_NO_SLOT) continue;
    /* One at a time when many long stacks compete. */
    stackd_dump_wait_for_room(dump);
    stackd_dump_wait_for_window(dump);
    if (dump->job->over) return;
    if (entry->tid == dump->helper_tid) {
      stackd_dump_capture_helper(dump, entry);
      continue;
    }
    stackd_dump_count_refusal(entry);
    stackd_dump_send_question(dump, i);
  }
}

static void give_up_rest(struct stackd_dump* dump) {
  for (uint32_t i = dump->first; i < dump->count; i++) {
    struct stackd_thread_entry* entry = &dump->table->entries[i];
    enum stackd_thread_state state = stackd_dump_state(entry);
    if (state == STACKD_THREAD_NO_SLOT) entry->status = STACKD_STATUS_RING_FULL;
    if (state == STACKD_THREAD_FAULT) entry->status = STACKD_STATUS_AGENT_FAULT;
    if (state == STACKD_THREAD_BUSY) entry->status = STACKD_STATUS_TIMED_OUT;
    if (state == STACKD_THREAD_IDLE && entry->status == 0) {
      bool is_blocked = entry->deferred && !entry->is_running && dump->options->quiet != STACKD_QUIET_ONLY;
      entry->status = is_blocked ? STACKD_STATUS_SIGNAL_BLOCKED : STACKD_STATUS_TIMED_OUT;
    }
    if (state != STACKD_THREAD_ASKED) continue;
    inspect(dump, entry, UINT64_MAX);
    settle_as(dump, entry, STACKD_STATUS_TIMED_OUT, 0);
  }
}

void stackd_dump_settle(struct stackd_dump* dump) {
  uint64_t last_answer_ns = stackd_monotonic_ns();
  uint32_t seen = stackd_thread_answers();
  uint64_t wait_ns = STACKD_DUMP_QUIET_NS;
  uint64_t pause_ns = STACKD_DUMP_QUIET_NS;
  while (!stackd_job_is_over(dump->job)) {
    uint64_t quiet_ns = stackd_monotonic_ns() - last_answer_ns;
    if (stackd_dump_in_flight(dump) == 0 || quiet_ns >= STACKD_DUMP_QUIET_NS) {
      struct unsettled unsettled = look_at_all(dump, quiet_ns);
      if (unsettled.silent == 0 && unsettled.no_slot == 0) return;
      pause_ns = unsettled.running > 0 ? STACKD_DUMP_COMPUTES_NS : STACKD_DUMP_QUIET_NS;
      if (unsettled.no_slot > 0) {
        dump->window = dump->window > 1 ? dump->window / 2 : 1;
        ask_again(dump);
        if (unsettled.silent == 0) last_answer_ns = stackd_monotonic_ns();
      }
      if (quiet_ns >= STACKD_DUMP_QUIET_NS && wait_ns < 8 * STACKD_DUMP_QUIET_NS) wait_ns *= 2;
    }
    if (stackd_dump_in_flight(dump) == 0) {
      stackd_pause_ns(pause_ns);
    } else {
      stackd_thread_wait_answers(stackd_dump_answers_when(dump, 0), wait_ns);
    }
    uint32_t answers = stackd_thread_answers();
    if (answers != seen) {
      seen = answers;
      last_answer_ns = stackd_monotonic_ns();
      wait_ns = STACKD_DUMP_QUIET_NS;
    }
  }
  give_up_rest(dump);
}
