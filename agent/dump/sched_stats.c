#include "agent/dump/sched_stats.h"

#include <string.h>

#include "agent/dump/procfs_task.h"
#include "agent/sys/private_fd.h"

struct look {
  struct stackd_job* job;
  int task_fd;
  uint32_t helper_tid;
  uint32_t listed;
  bool cut;
  struct stackd_schedstat_record batch;
};

/* False if the ring has no room and the reader makes none. */
static bool write_batch(struct look* look) {
  if (look->batch.entry_count == 0) return true;
  struct stackd_ring_writer writer;
  struct stackd_schedstat_record* record =
      stackd_job_begin_record(look->job, &writer, STACKD_RECORD_SCHEDSTAT, sizeof(*record));
  if (record == NULL) return false;
  record->seq = look->job->seq;
  record->entry_count = look->batch.entry_count;
  memcpy(record->entries, look->batch.entries, look->batch.entry_count * sizeof(look->batch.entries[0]));
  stackd_ring_commit(&writer);
  look->batch.entry_count = 0;
  return true;
}

static bool read_schedstat(int task_fd, uint32_t tid, struct stackd_task_schedstat* stats) {
  int fd = stackd_task_open_schedstat(task_fd, tid);
  if (fd < 0) return false;
  int error = stackd_task_read_schedstat(fd, stats);
  stackd_own_fd_drop(fd);
  return error == 0;
}

static bool look_at(void* context, uint32_t tid) {
  struct look* look = context;
  if (stackd_job_is_over(look->job)) {
    look->cut = true;
    return false;
  }
  look->listed++;
  struct stackd_task_schedstat stats = {0, 0, 0};
  bool is_helper = tid == look->helper_tid;
  if (!is_helper && !read_schedstat(look->task_fd, tid, &stats)) return true;
  look->batch.entries[look->batch.entry_count++] =
      (struct stackd_schedstat_entry){tid, is_helper, stats.cpu_ns, stats.runnable_ns, stats.run_count};
  if (look->batch.entry_count == STACKD_SCHEDSTAT_ENTRIES && !write_batch(look)) look->cut = true;
  return !look->cut;
}

void stackd_sched_stats_run(struct stackd_job* job) {
  struct look look = {.job = job, .task_fd = stackd_task_open(), .helper_tid = (uint32_t)stackd_gettid()};
  int error = look.task_fd < 0 ? look.task_fd : stackd_proc_list(look.task_fd, look_at, &look);
  if (look.task_fd >= 0) stackd_own_fd_drop(look.task_fd);
  bool whole = error == 0 && !look.cut && write_batch(&look);
  stackd_job_publish_listed(job, look.listed);
  if (whole || error != 0) stackd_job_publish_done(job, error);
}
