#include "agent/dump/sample.h"

#include <errno.h>
#include <string.h>

#include "agent/dump/procfs_task.h"
#include "agent/sys/private_fd.h"

struct look {
  struct stackd_job* job;
  int task_fd;
  uint32_t helper_tid;
  uint32_t listed;
  bool cut;
  int error; /* why threads that sleep have no entry */
  struct stackd_wait_record batch;
};

/* False if the ring has no room and the reader makes none. */
static bool write_batch(struct look* look) {
  if (look->batch.entry_count == 0) return true;
  struct stackd_ring_writer writer;
  struct stackd_wait_record* record = stackd_job_begin_record(look->job, &writer, STACKD_RECORD_WAIT, sizeof(*record));
  if (record == NULL) return false;
  record->seq = look->job->seq;
  record->entry_count = look->batch.entry_count;
  memcpy(record->entries, look->batch.entries, look->batch.entry_count * sizeof(look->batch.entries[0]));
  stackd_ring_commit(&writer);
  look->batch.entry_count = 0;
  return true;
}

/* Why a thread has no entry, other than that it runs or has ended. */
static int other_reason(const struct look* look, uint32_t tid, int error) {
  if (error == -EAGAIN || error == -ESRCH) return 0;
  if (error != -ENOENT) return error;
  /* Kernels without this file have the thread. */
  return stackd_task_exists(look->task_fd, tid) ? -ENOSYS : 0;
}

static bool look_at(void* context, uint32_t tid) {
  struct look* look = context;
  if (stackd_job_is_over(look->job)) {
    look->cut = true;
    return false;
  }
  look->listed++;
  if (tid == look->helper_tid) return true;
  struct stackd_task_sleep sleep;
  int error = stackd_task_read_sleep(look->task_fd, tid, &sleep);
  if (error != 0) {
    look->error = other_reason(look, tid, error);
    return look->error == 0;
  }
  struct stackd_wait_entry* entry = &look->batch.entries[look->batch.entry_count++];
  entry->tid = tid;
  entry->pad = 0;
  entry->rsp = sleep.rsp;
  entry->rip = sleep.rip;
  entry->syscall = sleep.call;
  if (look->batch.entry_count == STACKD_WAIT_ENTRIES && !write_batch(look)) look->cut = true;
  return !look->cut;
}

void stackd_sample_run(struct stackd_job* job) {
  struct look look = {.job = job, .task_fd = stackd_task_open(), .helper_tid = (uint32_t)stackd_gettid()};
  if (look.task_fd < 0) {
    stackd_job_publish_done(job, look.task_fd);
    return;
  }
  int error = stackd_proc_list(look.task_fd, look_at, &look);
  stackd_own_fd_drop(look.task_fd);
  if (error == 0) error = look.error;
  bool whole = error == 0 && !look.cut && write_batch(&look);
  stackd_job_publish_listed(job, look.listed);
  if (whole || error != 0) stackd_job_publish_done(job, error);
}
