#include "agent/helper/helper_thread.h"

#include <errno.h>
#include <string.h>

#include "agent/capture/context.h"
#include "agent/crash/crash.h"
#include "agent/crash/crash_link.h"
#include "agent/crash/spool_writer.h"
#include "agent/dump/dump.h"
#include "agent/dump/dump_handler.h"
#include "agent/dump/sample.h"
#include "agent/dump/sched_stats.h"
#include "agent/helper/connection.h"
#include "agent/helper/heartbeat.h"
#include "agent/helper/helper_state.h"
#include "agent/helper/introduction.h"
#include "agent/helper/life.h"
#include "agent/helper/messages.h"
#include "agent/helper/requests.h"
#include "agent/helper/task_source.h"
#include "agent/maps/code_ranges.h"
#include "agent/runtimes/runtimes.h"
#include "agent/signals/sigterm.h"
#include "agent/sys/filtered.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/kernel.h"

#define MS 1000000ull
#define RETRY_FIRST_NS (100 * MS)
/* An agent is back within two seconds of the daemon. */
#define RETRY_MAX_NS (1000 * MS)
/* So long after its last work the helper leaves a process that has no thread of its own. */
#define LEAVE_NS (5000 * MS)
/* After a dump the next command is often near (continuous dumps): watching for it so long saves two context switches. */
#define SPIN_NS 50000u
#define QUIESCE_NS (100 * MS)

/* A launcher loads its runtime soon after it starts, and a crash has the frames of those only that were found before it. So
 * long after its own start the helper looks unasked. */
static const uint64_t kLooksNs[] = {250 * MS, 1000 * MS, 4000 * MS, 15000 * MS};
#define LOOKS (sizeof(kLooksNs) / sizeof(kLooksNs[0]))

static uint64_t started_ns;
static size_t looks_done;

/* Two, so that a handler that reads one while the helper sets the other sees a whole one. */
static struct stackd_own_fd spools[2] = {{-1, 0, 0}, {-1, 0, 0}};
static int spool_in_use;
static struct stackd_own_fd former_spool = {-1, 0, 0};
static struct stackd_crash_link crash_link;

static struct stackd_own_fd wake_ends[2] = {{-1, 0, 0}, {-1, 0, 0}};
static uint32_t seen_seq;
static uint64_t leaves_at_ns; /* UINT64_MAX: not before the next work */
static bool has_left;         /* the daemon wakes the process, as before the first dump */
static uint64_t retry_ns = RETRY_FIRST_NS;

static void put_off_leave(void) {
  bool may_leave = stackd_helper.has_bell && !stackd_helper.settings->dumps_under_filter;
  leaves_at_ns = may_leave ? stackd_monotonic_ns() + LEAVE_NS : UINT64_MAX;
}

static void look_at_maps(void) {
  stackd_dump_look_at_maps(&stackd_helper.connection.ring, stackd_own_fd_get(&stackd_helper.files->maps));
  stackd_helper_pass_memory();
  __atomic_store_n(&stackd_helper.connection.ring.header->memory_passed, stackd_helper.memory_is_passed, __ATOMIC_RELAXED);
}

static void run_dump(struct stackd_job* job) {
  look_at_maps();
  const struct stackd_ring_header* header = stackd_helper.connection.ring.header;
  struct stackd_dump_options options;
  options.dump_signal = stackd_helper.settings->dump_signal;
  options.maps_fd = stackd_own_fd_get(&stackd_helper.files->maps);
  options.max_stack_bytes = __atomic_load_n(&header->max_stack_bytes, __ATOMIC_RELAXED) & ~7u;
  options.only_tid = __atomic_load_n(&header->only_tid, __ATOMIC_RELAXED);
  options.quiet = __atomic_load_n(&header->quiet, __ATOMIC_RELAXED);
  options.skip_tid = stackd_crash_recording_tid();
  bool whole = options.only_tid == 0;
  if (whole) stackd_requests_count_begin();
  stackd_dump_run(job, &options);
  if (whole) stackd_requests_count_end();
}

static void run_command(uint32_t seq) {
  const struct stackd_ring_header* header = stackd_helper.connection.ring.header;
  struct stackd_job job;
  memset(&job, 0, sizeof(job));
  job.ring = &stackd_helper.connection.ring;
  job.seq = seq;
  job.socket_fd = stackd_own_fd_get(&stackd_helper.connection.socket);
  job.is_to_hurry = stackd_helper_is_to_hurry();
  job.deadline_ns = __atomic_load_n(&header->deadline_ns, __ATOMIC_RELAXED);
  switch (__atomic_load_n(&header->command, __ATOMIC_RELAXED)) {
    case STACKD_COMMAND_DUMP:
      run_dump(&job);
      put_off_leave();
      break;
    case STACKD_COMMAND_SAMPLE:
      stackd_sample_run(&job);
      break;
    case STACKD_COMMAND_SCHEDSTAT:
      stackd_sched_stats_run(&job);
      break;
    default:
      break;
  }
}

/* Runs commands until none has come for SPIN_NS; then says that it sleeps. */
static void run_commands(void) {
  struct stackd_ring_header* header = stackd_helper.connection.ring.header;
  uint64_t spin_until_ns = 0;
  for (;;) {
    uint32_t seq = __atomic_load_n(&header->command_seq, __ATOMIC_ACQUIRE);
    if (seq != seen_seq) {
      seen_seq = seq;
      run_command(seq);
      spin_until_ns = stackd_monotonic_ns() + SPIN_NS;
      continue;
    }
    if (stackd_monotonic_ns() >= spin_until_ns) return;
    __builtin_ia32_pause();
  }
}

/* How long to wait for a message before it is time to look at what is mapped. */
static uint64_t until_look_ns(void) {
  if (looks_done == LOOKS) return UINT64_MAX;
  uint64_t elapsed_ns = stackd_monotonic_ns() - started_ns;
  return elapsed_ns < kLooksNs[looks_done] ? kLooksNs[looks_done] - elapsed_ns : 0;
}

/* How long to wait for a message before there is something to do unasked. */
static uint64_t until_due_ns(void) {
  uint64_t look_ns = until_look_ns();
  if (leaves_at_ns == UINT64_MAX) return look_ns;
  uint64_t now_ns = stackd_monotonic_ns();
  uint64_t leave_ns = now_ns < leaves_at_ns ? leaves_at_ns - now_ns : 0;
  return look_ns < leave_ns ? look_ns : leave_ns;
}

/* Whether this thread and one of the program's are all. */
static bool is_with_one_thread(void) {
  struct stat status;
  /* A folder for each, and two more links. */
  return stackd_syscall6(SYS_newfstatat, AT_FDCWD, (long)"/proc/self/task", (long)&status, 0, 0, 0) == 0 &&
         status.st_nlink == 4;
}

static bool has_work(void) {
  struct pollfd socket = {stackd_own_fd_get(&stackd_helper.connection.socket), POLLIN, 0};
  const struct timespec no_time = {0, 0};
  bool is_asked = __atomic_load_n(&stackd_helper.connection.ring.header->command_seq, __ATOMIC_SEQ_CST) != seen_seq;
  return is_asked || socket.fd < 0 || stackd_ppoll(&socket, 1, &no_time) != 0;
}

static void come_back(void) {
  has_left = false;
  put_off_leave();
  stackd_helper_silence();
  struct stackd_message_header awake = {STACKD_MSG_AWAKE, sizeof(awake)};
  stackd_connection_send(&stackd_helper.connection.socket, &awake);
  stackd_crash_helper_has_tried();
}

/* True: this thread is to return at once. The daemon knows by the bell that it is gone. What it has asked for
 * before it knew that, it asks for again by the bell. */
static bool leave(void) {
  leaves_at_ns = UINT64_MAX;
  if (!is_with_one_thread() || stackd_heartbeat_is_any()) return false;
  stackd_helper_begin_leave();
  has_left = true;
  stackd_crash_helper_leaves();
  if (stackd_helper_send_bell() && !has_work() && stackd_helper_leave()) return true;
  stackd_helper_stay();
  come_back();
  return false;
}

/* Does what is due unasked. True: the helper leaves. */
static bool do_what_is_due(void) {
  if (until_look_ns() == 0) {
    look_at_maps();
    looks_done++;
  }
  return leaves_at_ns != UINT64_MAX && stackd_monotonic_ns() >= leaves_at_ns && leave();
}

/* Until the connection is over (-ENOTCONN), or the helper is to end (-EINTR), or leaves (-ESHUTDOWN). */
static int serve(void) {
  struct stackd_ring_header* header = stackd_helper.connection.ring.header;
  for (;;) {
    run_commands();
    /* Sequentially consistent on both sides: either the daemon sees us asleep and kicks, or we see its command. */
    __atomic_store_n(&header->helper_sleeping, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&header->command_seq, __ATOMIC_SEQ_CST) == seen_seq) {
      union stackd_message message;
      int error = stackd_connection_receive(&stackd_helper.connection, &message, until_due_ns());
      if (error == -ENOTCONN || error == -EINTR) return error;
      if (error == -ETIMEDOUT && do_what_is_due()) return -ESHUTDOWN;
      if (error == 0) {
        if (message.header.type != STACKD_MSG_KICK) put_off_leave();
        stackd_helper_answer(&message);
      }
    }
    __atomic_store_n(&header->helper_sleeping, 0, __ATOMIC_RELAXED);
  }
}

static struct stackd_heartbeat_cell* ring_heartbeats(void) {
  return (struct stackd_heartbeat_cell*)((char*)stackd_helper.connection.ring.header + STACKD_HEARTBEATS_OFFSET);
}

static void drop_ring(void) {
  stackd_heartbeat_set_ring(NULL);
  stackd_handler_set_ring(NULL);
  stackd_crash_set_link(NULL);
  /* `connection.ring` and the memory serve until the last handler is out. A handler stays only in a thread that was stopped
   * there; without that thread there would be no whole dump anyway. */
  while (!stackd_handler_quiesce(QUIESCE_NS) || stackd_crash_is_using_link()) {
    stackd_pause_ns(QUIESCE_NS);
  }
  stackd_unmap(stackd_helper.connection.ring.header, stackd_helper.connection.ring_bytes);
}

/* The spool file that came with this connection takes the place of the one before, if there is one. */
static void use_spool(void) {
  if (stackd_helper.connection.spool.fd < 0) return;
  stackd_own_fd_close(&former_spool);
  former_spool = spools[spool_in_use];
  spool_in_use ^= 1;
  spools[spool_in_use] = stackd_helper.connection.spool;
  stackd_helper.connection.spool = STACKD_NO_FD;
  stackd_crash_set_spool(&spools[spool_in_use]);
}

/* Unless a crash may be using it: then at the next connection, if there is one. */
static void close_former_spool(void) {
  if (!stackd_crash_is_using_link()) stackd_own_fd_close(&former_spool);
}

/* Called when the ring has come: a process that has used up its fds may have one for that, and no more. A pipe would do,
 * but filters of system calls are more likely to refuse it than the sockets that are needed anyway. */
static void make_wake_pair(void) {
  if (stackd_own_fd_get(&wake_ends[0]) >= 0 && stackd_own_fd_get(&wake_ends[1]) >= 0) return;
  for (int i = 0; i < 2; i++) stackd_own_fd_close(&wake_ends[i]);
  int ends[2];
  if (stackd_syscall6(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, (long)ends, 0, 0) != 0)
    return;
  for (int i = 0; i < 2; i++) wake_ends[i] = stackd_own_fd_take(ends[i], STACKD_FD_SOCKET);
  stackd_helper_wake_by(&wake_ends[0], &wake_ends[1]);
}

static void begin_connection(void) {
  make_wake_pair();
  stackd_helper.stage = STACKD_REGISTERED;
  seen_seq = 0;
  put_off_leave();
  retry_ns = RETRY_FIRST_NS;
  stackd_handler_set_ring(&stackd_helper.connection.ring);
  stackd_heartbeat_set_ring(ring_heartbeats());
  __atomic_store_n(&stackd_helper.connection.ring.header->sigterm_count_avma, (uint64_t)&stackd_sigterm_count,
                   __ATOMIC_RELAXED);
  use_spool();
  crash_link = (struct stackd_crash_link){&stackd_helper.connection.ring, stackd_helper.connection.socket};
  stackd_crash_set_link(&crash_link);
  stackd_requests_go_by(stackd_helper.connection.socket);
  stackd_crash_helper_has_tried();
  close_former_spool();
}

static void end_connection(void) {
  stackd_helper.stage = STACKD_NOT_CONNECTED;
  stackd_requests_go_by(STACKD_NO_FD);
  drop_ring();
  stackd_connection_close(&stackd_helper.connection);
}

static void look_around_first(void) {
  started_ns = stackd_monotonic_ns();
  looks_done = 0;
  /* Before all else: the helper may be told to end at once, for a filter that allows no look later. */
  stackd_helper_describe_whole();
  if (stackd_process_has_filter()) stackd_read_memory_by_file_first();
  if (stackd_helper.settings->crash_signals != 0) stackd_spool_touch_all();
  stackd_code_ranges_refresh(stackd_own_fd_get(&stackd_helper.files->maps));
  stackd_managed_find_runtimes(stackd_own_fd_get(&stackd_helper.files->maps));
}

/* 0 when there is a ring, or a negative errno. */
static int connect_and_register(void) {
  int error = stackd_helper.stage == STACKD_NOT_CONNECTED ? stackd_helper_connect(false) : 0;
  if (error != 0) return error;
  struct stackd_message_header awake = {STACKD_MSG_AWAKE, sizeof(awake)};
  /* Before it, so that a dump that waits for AWAKE has both. */
  stackd_helper_pass_memory();
  if (stackd_helper.has_bell) stackd_connection_send(&stackd_helper.connection.socket, &awake);
  error = stackd_connection_complete(&stackd_helper.connection);
  if (error == 0 || error == -EINTR) return error;
  stackd_connection_close(&stackd_helper.connection);
  stackd_helper.stage = STACKD_NOT_CONNECTED;
  return error;
}

void stackd_helper_run(void) {
  /* The daemon need not wake it now, and a process that has used up its fds gets the ring by this one. */
  stackd_helper_silence();
  if (started_ns == 0) look_around_first();
  if (has_left) come_back();
  /* A daemon that is there gets one answer from each helper, however soon it is to end. */
  bool goes_on = stackd_helper.stage != STACKD_NOT_CONNECTED;
  for (; goes_on || __atomic_load_n(stackd_helper_is_to_end(), __ATOMIC_SEQ_CST) == 0; goes_on = false) {
    if (stackd_helper.stage != STACKD_REGISTERED) {
      bool was_introduced = stackd_helper.stage == STACKD_INTRODUCED;
      int error = connect_and_register();
      if (error == -EINTR) return;
      /* The daemon that it was introduced to may have ended long ago, and another be there. */
      if (error != 0 && was_introduced) continue;
      if (error != 0) {
        stackd_crash_helper_has_tried();
        stackd_helper_rest(retry_ns);
        retry_ns = retry_ns * 2 < RETRY_MAX_NS ? retry_ns * 2 : RETRY_MAX_NS;
        continue;
      }
      begin_connection();
    }
    int error = serve();
    if (error == -EINTR || error == -ESHUTDOWN) return;
    end_connection();
  }
}

void stackd_helper_prepare(const struct stackd_settings* settings, struct stackd_process_files* files, bool use_bell) {
  stackd_helper.settings = settings;
  stackd_helper.files = files;
  stackd_helper.has_bell = use_bell;
}

void stackd_helper_reset_after_fork(void) {
  stackd_helper_life_reset_after_fork();
  stackd_requests_reset_after_fork();
  stackd_task_source_reset_after_fork();
  stackd_helper_introduction_reset_after_fork();
  STACKD_RESET(has_left, false);
  STACKD_RESET(started_ns, 0);
  STACKD_RESET(retry_ns, RETRY_FIRST_NS);
  /* A filter of system calls, which the child has too, may forbid to close them. */
  if (stackd_is_filtered()) return;
  for (int i = 0; i < 2; i++) stackd_own_fd_close(&wake_ends[i]);
  for (int i = 0; i < 2; i++) stackd_own_fd_close(&spools[i]);
  stackd_own_fd_close(&former_spool);
}
