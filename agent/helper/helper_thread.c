#include "agent/helper/helper_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/capture/context.h"
#include "agent/crash/crash.h"
#include "agent/crash/spool_writer.h"
#include "agent/dump/dump.h"
#include "agent/dump/dump_handler.h"
#include "agent/dump/sample.h"
#include "agent/dump/thread_table.h"
#include "agent/helper/connection.h"
#include "agent/helper/describe_fds.h"
#include "agent/helper/heartbeat.h"
#include "agent/helper/task_source.h"
#include "agent/maps/code_ranges.h"
#include "agent/runtimes/runtimes.h"
#include "agent/signals/sigterm.h"

#define MS 1000000ull
#define RETRY_FIRST_NS (100 * MS)
/* An agent is back within two seconds of the daemon. */
#define RETRY_MAX_NS (1000 * MS)
#define AFTER_FORK_NS (20 * MS)
/* For a daemon that is stopped: the others answer, or are not there, within a millisecond. */
#define FIRST_TRY_NS (500 * MS)
/* After a dump the next command is often near (continuous dumps): watching for it so long saves two context switches. */
#define SPIN_NS 50000u
#define QUIESCE_NS (100 * MS)
#define STACK_BYTES (64u << 10)

/* A launcher loads its runtime soon after it starts, and a crash has the frames of those only that were found before it. So
 * long after its own start the helper looks unasked. */
static const uint64_t kLooksNs[] = {250 * MS, 1000 * MS, 4000 * MS, 15000 * MS};
#define LOOKS (sizeof(kLooksNs) / sizeof(kLooksNs[0]))

static const struct stackd_settings* settings;
static struct stackd_process_files* files;
static bool wait_before_registering;

static struct stackd_connection connection = {.socket = {-1, 0, 0}, .spool = {-1, 0, 0}};

static uint64_t started_ns;
static size_t looks_done;

/* Two, so that a handler that reads one while the helper sets the other sees a whole one. */
static struct stackd_own_fd spools[2] = {{-1, 0, 0}, {-1, 0, 0}};
static int spool_in_use;
static struct stackd_own_fd former_spool = {-1, 0, 0};
static struct stackd_crash_link crash_link;

/* What other threads of the program need of the connection. */
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stackd_own_fd shared_socket = {-1, 0, 0};
static char process_name[64];
static stackd_task_source_fn* task_source;

/* Written in turn: a thread that crashes may be copying the other. */
static struct stackd_hello hellos[2];
static int next_hello;

/* They grow; the last two are futex words. */
static uint32_t dumps_begun;
static uint32_t dumps_over;
static uint32_t dumps_read; /* by the daemon, of those that this process asked for */

static void pause_ns(uint64_t duration_ns) {
  struct timespec duration = {(time_t)(duration_ns / 1000000000u), (long)(duration_ns % 1000000000u)};
  nanosleep(&duration, NULL);
}

/* With shared_lock. */
static void send_name(void) {
  struct stackd_name message;
  memset(&message, 0, sizeof(message));
  message.header.type = STACKD_MSG_NAME;
  message.header.size_bytes = sizeof(message);
  memcpy(message.name, process_name, sizeof(message.name));
  stackd_connection_send(&shared_socket, &message.header, -1, MSG_DONTWAIT);
}

/* With shared_lock. */
static void send_has_tasks(void) {
  struct stackd_message_header message = {STACKD_MSG_HAS_TASKS, sizeof(message)};
  stackd_connection_send(&shared_socket, &message, -1, MSG_DONTWAIT);
}

static void share_socket(struct stackd_own_fd socket) {
  pthread_mutex_lock(&shared_lock);
  shared_socket = socket;
  /* It may have been given after HELLO was written. */
  if (socket.fd >= 0 && process_name[0] != 0) send_name();
  if (socket.fd >= 0 && task_source != NULL) send_has_tasks();
  pthread_mutex_unlock(&shared_lock);
}

static void open_file(const struct stackd_open_file* request) {
  struct stackd_file reply;
  memset(&reply, 0, sizeof(reply));
  reply.header.type = STACKD_MSG_FILE;
  reply.header.size_bytes = sizeof(reply);
  reply.request_id = request->request_id;
  char path[STACKD_PATH_BYTES];
  stackd_copy_string(path, sizeof(path), request->path);
  int fd = stackd_own_fd_hold(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (fd < 0) reply.error = -errno;
  struct stat status;
  if (fd >= 0 && (stackd_fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))) {
    stackd_own_fd_drop(fd);
    fd = -1;
    reply.error = -EINVAL;
  }
  stackd_connection_send(&connection.socket, &reply.header, fd, 0);
  if (fd >= 0) stackd_own_fd_drop(fd);
}

static void describe_fds(const struct stackd_describe_fds* request) {
  static struct stackd_fd_names names;
  stackd_fd_names(request, &names);
  stackd_connection_send(&connection.socket, &names.header, -1, 0);
}

static void describe_tasks(const struct stackd_describe_tasks* request) {
  pthread_mutex_lock(&shared_lock);
  stackd_task_source_fn* source = task_source;
  pthread_mutex_unlock(&shared_lock);
  unsigned limit_ms = request->limit_ms < STACKD_MAX_TASK_LIMIT_MS ? request->limit_ms : STACKD_MAX_TASK_LIMIT_MS;
  int fd = stackd_task_table(source, limit_ms);
  struct stackd_tasks reply;
  memset(&reply, 0, sizeof(reply));
  reply.header.type = STACKD_MSG_TASKS;
  reply.header.size_bytes = sizeof(reply);
  reply.request_id = request->request_id;
  if (fd < 0) reply.error = fd;
  stackd_connection_send(&connection.socket, &reply.header, fd, 0);
  if (fd >= 0) stackd_own_fd_drop(fd);
}

static void count_one(uint32_t* word) {
  __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
  stackd_syscall6(SYS_futex, (long)word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, 0, 0, 0);
}

static void run_dump(struct stackd_job* job) {
  const struct stackd_ring_header* header = connection.ring.header;
  struct stackd_dump_options options;
  options.dump_signal = settings->dump_signal;
  options.maps_fd = stackd_own_fd_get(&files->maps);
  options.max_stack_bytes = __atomic_load_n(&header->max_stack_bytes, __ATOMIC_RELAXED) & ~7u;
  options.only_tid = __atomic_load_n(&header->only_tid, __ATOMIC_RELAXED);
  options.skip_tid = stackd_crash_winner();
  bool whole = options.only_tid == 0;
  if (whole) __atomic_fetch_add(&dumps_begun, 1, __ATOMIC_SEQ_CST);
  stackd_dump_run(job, &options);
  if (whole) count_one(&dumps_over);
}

static void run_command(uint32_t seq) {
  const struct stackd_ring_header* header = connection.ring.header;
  struct stackd_job job;
  memset(&job, 0, sizeof(job));
  job.ring = &connection.ring;
  job.seq = seq;
  job.socket_fd = stackd_own_fd_get(&connection.socket);
  job.deadline_ns = __atomic_load_n(&header->deadline_ns, __ATOMIC_RELAXED);
  switch (__atomic_load_n(&header->command, __ATOMIC_RELAXED)) {
    case STACKD_COMMAND_DUMP:
      run_dump(&job);
      break;
    case STACKD_COMMAND_SAMPLE:
      stackd_sample_run(&job);
      break;
    default:
      break;
  }
}

/* Runs commands until none has come for SPIN_NS; then says that it sleeps. */
static void run_commands(uint32_t* seen_seq) {
  struct stackd_ring_header* header = connection.ring.header;
  uint64_t spin_until_ns = 0;
  for (;;) {
    uint32_t seq = __atomic_load_n(&header->command_seq, __ATOMIC_ACQUIRE);
    if (seq != *seen_seq) {
      *seen_seq = seq;
      run_command(seq);
      spin_until_ns = stackd_monotonic_ns() + SPIN_NS;
      continue;
    }
    if (stackd_monotonic_ns() >= spin_until_ns) return;
    __builtin_ia32_pause();
  }
}

/* False: there was none until it was time to look at what is mapped. */
static bool await_message(void) {
  if (looks_done == LOOKS) return true;
  uint64_t elapsed_ns = stackd_monotonic_ns() - started_ns;
  uint64_t left_ns = elapsed_ns < kLooksNs[looks_done] ? kLooksNs[looks_done] - elapsed_ns : 0;
  struct pollfd message = {stackd_own_fd_get(&connection.socket), POLLIN, 0};
  /* An error shows when the message is received. */
  if (poll(&message, 1, (int)(left_ns / MS) + 1) != 0) return true;
  stackd_dump_look_at_maps(&connection.ring, stackd_own_fd_get(&files->maps));
  looks_done++;
  return false;
}

static void serve(void) {
  struct stackd_ring_header* header = connection.ring.header;
  uint32_t seen_seq = 0;
  for (;;) {
    run_commands(&seen_seq);
    /* Sequentially consistent on both sides: either the daemon sees us asleep and kicks, or we see its command. */
    __atomic_store_n(&header->helper_sleeping, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&header->command_seq, __ATOMIC_SEQ_CST) == seen_seq) {
      if (!await_message()) continue;
      union stackd_message message;
      int error = stackd_connection_receive(&connection, &message);
      if (error == -EPROTO) continue;
      if (error != 0) return;
      if (message.header.type == STACKD_MSG_OPEN_FILE) open_file(&message.open_file);
      if (message.header.type == STACKD_MSG_DESCRIBE_FDS) describe_fds(&message.describe_fds);
      if (message.header.type == STACKD_MSG_DESCRIBE_EPOLLS) describe_fds(&message.describe_fds);
      if (message.header.type == STACKD_MSG_DESCRIBE_TASKS) describe_tasks(&message.describe_tasks);
      if (message.header.type == STACKD_MSG_DUMP_READ) count_one(&dumps_read);
    }
    __atomic_store_n(&header->helper_sleeping, 0, __ATOMIC_RELAXED);
  }
}

static int connect_and_register(void) {
  struct stackd_hello* hello = &hellos[next_hello];
  next_hello = 1 - next_hello;
  memset(hello, 0, sizeof(*hello));
  hello->header.type = STACKD_MSG_HELLO;
  hello->header.size_bytes = sizeof(*hello);
  hello->abi_version = STACKD_ABI_VERSION;
  hello->dump_signal = settings->dump_signal;
  stackd_process_describe(hello);
  /* The program may have closed them since. */
  stackd_process_files_open(files);
  pthread_mutex_lock(&shared_lock);
  memcpy(hello->name, process_name, sizeof(hello->name));
  pthread_mutex_unlock(&shared_lock);
  stackd_spool_set_process(hello);
  return stackd_connection_open(&connection, settings, hello, files);
}

static struct stackd_heartbeat_cell* ring_heartbeats(void) {
  return (struct stackd_heartbeat_cell*)((char*)connection.ring.header + STACKD_HEARTBEATS_OFFSET);
}

static void drop_ring(void) {
  stackd_heartbeat_set_ring(NULL);
  stackd_handler_set_ring(NULL);
  stackd_crash_set_link(NULL);
  /* `connection.ring` and the memory serve until the last handler is out. One stays only in a thread that somebody stopped
   * there; without that thread there would be no whole dump anyway. */
  while (!stackd_handler_quiesce(QUIESCE_NS) || stackd_crash_is_using_link()) pause_ns(QUIESCE_NS);
  munmap(connection.ring.header, connection.ring_bytes);
}

/* The spool file that came with this connection takes the place of the one before, if there is one. */
static void use_spool(void) {
  if (connection.spool.fd < 0) return;
  stackd_own_fd_close(&former_spool);
  former_spool = spools[spool_in_use];
  spool_in_use ^= 1;
  spools[spool_in_use] = connection.spool;
  connection.spool = STACKD_NO_FD;
  stackd_crash_set_spool(&spools[spool_in_use]);
}

/* Unless a crash may be using it: then at the next connection, if there is one. */
static void close_former_spool(void) {
  if (!stackd_crash_is_using_link()) stackd_own_fd_close(&former_spool);
}

__attribute__((noreturn)) static void* helper_main(void* unused) {
  (void)unused;
  prctl(PR_SET_NAME, "stackd-agent", 0, 0, 0);
  if (wait_before_registering) stackd_crash_pause_helper(AFTER_FORK_NS);
  started_ns = stackd_monotonic_ns();
  looks_done = 0;
  stackd_code_ranges_refresh(stackd_own_fd_get(&files->maps));
  stackd_managed_find_runtimes(stackd_own_fd_get(&files->maps));
  uint64_t retry_ns = RETRY_FIRST_NS;
  for (;;) {
    if (connect_and_register() != 0) {
      stackd_crash_helper_has_tried();
      pause_ns(retry_ns);
      retry_ns = retry_ns * 2 < RETRY_MAX_NS ? retry_ns * 2 : RETRY_MAX_NS;
      continue;
    }
    retry_ns = RETRY_FIRST_NS;
    stackd_handler_set_ring(&connection.ring);
    stackd_heartbeat_set_ring(ring_heartbeats());
    __atomic_store_n(&connection.ring.header->sigterm_count_avma, (uint64_t)&stackd_sigterm_count, __ATOMIC_RELAXED);
    use_spool();
    crash_link = (struct stackd_crash_link){&connection.ring, connection.socket};
    stackd_crash_set_link(&crash_link);
    share_socket(connection.socket);
    stackd_crash_helper_has_tried();
    close_former_spool();
    serve();
    share_socket(STACKD_NO_FD);
    drop_ring();
    stackd_connection_close(&connection);
  }
}

/* glibc puts the static TLS of all libraries at the top of each thread's stack. */
static size_t tls_bytes;

static int add_tls(struct dl_phdr_info* object, size_t size_bytes, void* total_bytes) {
  (void)size_bytes;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr)* segment = &object->dlpi_phdr[i];
    if (segment->p_type == PT_TLS) *(size_t*)total_bytes += segment->p_memsz + segment->p_align;
  }
  return 0;
}

static unsigned* libc_thread_count;

void stackd_helper_hide_from(unsigned* thread_count) { libc_thread_count = thread_count; }

static int create_thread(size_t stack_bytes) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_t thread;
  int error = pthread_create(&thread, &attributes, helper_main, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

int stackd_helper_start(const struct stackd_settings* use_settings, struct stackd_process_files* use_files,
                        bool after_fork) {
  settings = use_settings;
  files = use_files;
  wait_before_registering = after_fork;
  /* The thread inherits the mask. sigprocmask leaves glibc's own signals open: setuid() waits for every thread. */
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  /* Not in a child: fork() leaves a lock of this function's taken that another thread had. */
  if (!after_fork) dl_iterate_phdr(add_tls, &tls_bytes);
  int error = create_thread(STACK_BYTES + tls_bytes);
  if (error == 0 && libc_thread_count != NULL) __atomic_fetch_sub(libc_thread_count, 1, __ATOMIC_RELAXED);
  if (error != 0) stackd_crash_helper_has_tried();
  sigprocmask(SIG_SETMASK, &before, NULL);
  return -error;
}

void stackd_helper_reset_after_fork(void) {
  stackd_code_ranges_reset_after_fork();
  stackd_thread_table_reset_after_fork();
  stackd_dump_reset_after_fork();
  pthread_mutex_init(&shared_lock, NULL);
  task_source = NULL;
  /* The ring is not mapped here (MADV_DONTFORK); the socket is the parent's. */
  stackd_connection_close(&connection);
  for (int i = 0; i < 2; i++) stackd_own_fd_close(&spools[i]);
  stackd_own_fd_close(&former_spool);
  shared_socket = STACKD_NO_FD;
}

void stackd_helper_set_name(const char* name) {
  char padded[sizeof(process_name)];
  memset(padded, 0, sizeof(padded));
  stackd_copy_string(padded, sizeof(padded), name);
  pthread_mutex_lock(&shared_lock);
  memcpy(process_name, padded, sizeof(process_name));
  for (int i = 0; i < 2; i++) memcpy(hellos[i].name, process_name, sizeof(hellos[i].name));
  send_name();
  pthread_mutex_unlock(&shared_lock);
}

void stackd_helper_set_task_source(stackd_task_source_fn* source) {
  pthread_mutex_lock(&shared_lock);
  task_source = source;
  if (source != NULL) send_has_tasks();
  pthread_mutex_unlock(&shared_lock);
}

static int send_dump_request(const char* exception_type) {
  struct stackd_exception_request message;
  memset(&message, 0, sizeof(message));
  message.header.type = STACKD_MSG_DUMP_REQUEST;
  message.header.size_bytes = exception_type[0] == '\0' ? sizeof(struct stackd_dump_request) : sizeof(message);
  message.tid = stackd_gettid();
  stackd_copy_string(message.type, sizeof(message.type), exception_type);
  pthread_mutex_lock(&shared_lock);
  int error = stackd_connection_send(&shared_socket, &message.header, -1, MSG_DONTWAIT);
  pthread_mutex_unlock(&shared_lock);
  return error;
}

static bool await_count(uint32_t* word, uint32_t value, uint64_t deadline_ns) {
  for (;;) {
    uint32_t seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    if ((int32_t)(seen - value) >= 0) return true;
    uint64_t now_ns = stackd_monotonic_ns();
    if (now_ns >= deadline_ns) return false;
    uint64_t left_ns = deadline_ns - now_ns;
    struct timespec timeout = {(time_t)(left_ns / 1000000000u), (long)(left_ns % 1000000000u)};
    stackd_futex_wait(word, seen, &timeout, FUTEX_PRIVATE_FLAG);
  }
}

int stackd_helper_request_dump(const char* exception_type, int timeout_ms) {
  uint64_t timeout_ns = (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * MS;
  uint64_t deadline_ns = stackd_monotonic_ns() + timeout_ns;
  /* One that runs already may have passed this thread: the next one counts. */
  uint32_t over_at = __atomic_load_n(&dumps_begun, __ATOMIC_SEQ_CST) + 1;
  uint32_t read_at = __atomic_load_n(&dumps_read, __ATOMIC_SEQ_CST) + 1;
  if (send_dump_request(exception_type) != 0) {
    /* A program that fails at its start does so before it is registered. */
    stackd_crash_await_helper(timeout_ns < FIRST_TRY_NS ? timeout_ns : FIRST_TRY_NS);
    if (send_dump_request(exception_type) != 0) return -ENOTCONN;
  }
  if (timeout_ms <= 0) return 0;
  if (!await_count(&dumps_over, over_at, deadline_ns)) return -ETIMEDOUT;
  /* The program may be about to end, and nobody could read who its methods are, or the lines of its scripts. */
  if (stackd_runtimes_are_read_after_dump() || exception_type[0] != '\0') await_count(&dumps_read, read_at, deadline_ns);
  return 0;
}
