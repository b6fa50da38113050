#include <string.h>

#include "agent/dump/dump_run.h"

static void write_batch(const struct stackd_dump* dump, const struct stackd_status_record* batch) {
  struct stackd_ring_writer writer;
  struct stackd_status_record* record = stackd_job_begin_record(dump->job, &writer, STACKD_RECORD_STATUS, sizeof(*batch));
  /* The daemon sees that threads_listed is more than it got, and says so. */
  if (record == NULL) return;
  record->seq = batch->seq;
  record->entry_count = batch->entry_count;
  memcpy(record->entries, batch->entries, batch->entry_count * sizeof(batch->entries[0]));
  stackd_ring_commit(&writer);
}

static bool can_be_read(uint32_t status) {
  return status == STACKD_STATUS_SIGNAL_BLOCKED || status == STACKD_STATUS_UNINTERRUPTIBLE ||
         status == STACKD_STATUS_STOPPED || status == STACKD_STATUS_SIGNAL_QUEUE_FULL ||
         status == STACKD_STATUS_AGENT_FAULT;
}

void stackd_dump_write_statuses(struct stackd_dump* dump) {
  struct stackd_status_record batch;
  memset(&batch, 0, sizeof(batch));
  batch.seq = dump->job->seq;
  for (uint32_t i = 0; i < dump->count; i++) {
    const struct stackd_thread_entry* entry = &dump->table->entries[i];
    if (entry->status == 0) continue;
    /* The daemon accounts for the rest itself. */
    if (stackd_job_is_forgotten(dump->job)) return;
    if (can_be_read(entry->status)) stackd_dump_capture_where_it_is(dump, entry);
    struct stackd_thread_status_entry* out = &batch.entries[batch.entry_count++];
    memset(out, 0, sizeof(*out));
    out->tid = entry->tid;
    out->status = (uint8_t)entry->status;
    out->state = entry->kernel_state;
    bool in_time = entry->status != STACKD_STATUS_TIMED_OUT || stackd_monotonic_ns() < dump->job->deadline_ns;
    if (entry->status != STACKD_STATUS_EXITED && in_time) {
      stackd_task_read_name(dump->task_fd, entry->tid, out->name);
      stackd_task_read_wait_channel(dump->task_fd, entry->tid, out->wait_channel);
    }
    if (batch.entry_count == STACKD_STATUS_ENTRIES) {
      write_batch(dump, &batch);
      batch.entry_count = 0;
    }
  }
  if (batch.entry_count > 0) write_batch(dump, &batch);
}
