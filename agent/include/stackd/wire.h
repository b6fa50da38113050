/* The messages between an agent and the daemon: one SOCK_SEQPACKET connection to $STACKD_DIR/stackd.sock per process.
 *
 *     agent                                   daemon
 *       HELLO [place] + fds [mem, maps, proc, status]  ---->
 *       BELL + fd [bell]               ---->                          from now on no thread of the agent runs
 *                                      <----  WELCOME + fds [ring, spool]  (or REJECT, then close)
 *                                      <----  a byte by the bell       when a dump of the process is wanted
 *       AWAKE                          ---->
 *                                      <----  OPEN_FILE                for each mapped ELF file the daemon wants; for a
 * perf map FILE + fd (or an error)        ---->
 *                                      <----  KICK                     look at command_seq in the ring
 *                                      <----  DESCRIBE_FDS             what these fds are
 *       FD_NAMES                       ---->
 *                                      <----  DESCRIBE_EPOLLS          what these epoll instances watch
 *       FD_NAMES                       ---->
 *                                      <----  ASK_WAITS                what lies at words that threads wait on
 *       WAIT_WORDS                     ---->
 *                                      <----  READ_IMAGE               code and read-only data of a mapped file
 *       IMAGE                          ---->
 *                                      <----  DESCRIBE_TASKS           after HAS_TASKS: where the tasks of its runtime wait
 *       TASKS + fd (or an error)       ---->
 *       MEMORY + fd [mem]              ---->                          a runtime was found that keeps names in its heap
 *       DUMP_REQUEST, NAME, CRASH, FAULT, HAS_TASKS, FILTERED  -->
 *                                      <----  DUMP_READ
 *       REPORT_FILE + fd               ---->
 *
 * The connection is the process's identity: it ends with exec and exit, and a pid in a message is a label. The fds are
 *   mem   /proc/self/mem, opened by the process for reading. Absent (flag) where the process may not open its own.
 *   maps  /proc/self/maps
 *   proc  the folder /proc/self, which leads to all files of the mount namespace
 *   status  three fds: /proc/self/stat, status, schedstat, to look at a process that is stopped
 * `proc` is passed only where no helper tells of threads. That is by Go's package where all of the memory is shared, by
 * stackctl, and by older agents. `mem` stays in the process where its owner shares less (stackd_share), and where nothing
 * needs it. The daemon checks that all lie on procfs. The spool fd is an empty file of the daemon's that the agent writes a
 * crash to when the daemon does not take it (spool.h). It may be absent, and then the agent makes a file of its own.
 *
 * A process may have an agent for native code and the package of a runtime besides. Then the package has a connection of
 * its own, which begins with REPORT_FILE + fds [report, stat] and may go on with NAME and DUMP_REQUEST. The daemon knows by
 * uid and stat which process it is. The package gets no answer. The connection is closed where that process is not
 * connected, or not any more; then the package tries again.
 *
 * Both sides check size and type of every message; an unknown type is ignored, so that later versions may add some.
 */
#ifndef STACKD_WIRE_H_
#define STACKD_WIRE_H_

#include <stdint.h>

#include "stackd/ring_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STACKD_SOCKET_NAME "stackd.sock"
#define STACKD_PATH_BYTES 1024

enum stackd_message_type {
  STACKD_MSG_HELLO = 1,
  STACKD_MSG_WELCOME = 2,
  STACKD_MSG_REJECT = 3,
  STACKD_MSG_OPEN_FILE = 4,
  STACKD_MSG_FILE = 5,
  STACKD_MSG_KICK = 6,
  STACKD_MSG_DUMP_REQUEST = 7,
  STACKD_MSG_NAME = 8,
  STACKD_MSG_CRASH = 9,
  STACKD_MSG_DESCRIBE_FDS = 10,
  STACKD_MSG_FD_NAMES = 11,
  STACKD_MSG_REPORT_FILE = 12,
  STACKD_MSG_DESCRIBE_EPOLLS = 13, /* a stackd_describe_fds */
  /* A header alone. A handler of the program's deals with a fault, and may end the process without another word. The daemon
   * is to load what is mapped now, while the process is there to be asked (stackd_ring_header.modules_known). From a
   * handler. */
  STACKD_MSG_FAULT = 14,
  /* A header alone. Of the dump that this process asked for, all is read that lies in its memory, as Java's names do. */
  STACKD_MSG_DUMP_READ = 15,
  /* A header alone. The program knows tasks that some runtime in it schedules (stackd_set_task_source). */
  STACKD_MSG_HAS_TASKS = 16,
  STACKD_MSG_DESCRIBE_TASKS = 17,
  STACKD_MSG_TASKS = 18,
  STACKD_MSG_FILTERED = 19,
  STACKD_MSG_BELL = 20,
  STACKD_MSG_AWAKE = 21, /* A header alone: from now on a thread of the process obeys commands and answers messages. */
  STACKD_MSG_ASK_WAITS = 22,
  STACKD_MSG_WAIT_WORDS = 23,
  STACKD_MSG_READ_IMAGE = 24,
  STACKD_MSG_IMAGE = 25,
  /* A header alone, with the fd `mem` that did not come with HELLO. A runtime was found that needs it, and the owner of the
   * program chose no level (STACKD_HELLO_SHARES_AS_NEEDED). From then on the process shares its memory. */
  STACKD_MSG_MEMORY = 26,
};

struct stackd_message_header {
  uint32_t type;
  uint32_t size_bytes; /* of the whole message */
};

enum stackd_hello_flags {
  STACKD_HELLO_HAS_MEM = 1u << 0,
  STACKD_HELLO_HAS_MAPS = 1u << 1,
  STACKD_HELLO_HAS_PROC = 1u << 2,
  /* Commands are obeyed by a goroutine, as soon as one gets to run, and of commands DUMP alone. */
  STACKD_HELLO_GOROUTINE = 1u << 4,
  /* BELL follows at once. No command is obeyed before AWAKE. A process that ends or calls exec soon after this, as most
   * children of shells do, need not be registered. */
  STACKD_HELLO_HAS_BELL = 1u << 5,
  /* The owner of the program chose no level: `share` is what the process needs now, and grows with MEMORY. */
  STACKD_HELLO_SHARES_AS_NEEDED = 1u << 6,
  STACKD_HELLO_HAS_STATUS = 1u << 7,
};

/* What of its memory the process lets the daemon read (STACKD_SHARE). */
enum stackd_share {
  STACKD_SHARE_NOT_SAID = 0, /* by an agent that knows no levels: all, if `mem` comes along */
  STACKD_SHARE_STACKS = 1,   /* what ASK_WAITS tells */
  STACKD_SHARE_NAMES = 2,    /* that, and what READ_IMAGE tells */
  STACKD_SHARE_MEMORY = 3,   /* all: `mem` */
};

/* Strings are NUL-terminated and cut to fit. */
struct stackd_hello {
  struct stackd_message_header header;
  uint32_t abi_version;
  uint32_t flags; /* stackd_hello_flags: which fds come along, in this order */
  int32_t pid;    /* in the process's own PID namespace */
  int32_t uid;
  uint64_t start_ticks; /* field 22 of /proc/self/stat: clock ticks since boot; 0: to be read below `proc` */
  int32_t dump_signal;
  uint32_t share; /* stackd_share */
  char hostname[64];
  char name[64]; /* from stackd_set_process_name() or STACKD_NAME; else empty */
  char argv0[256];
  char exe[STACKD_PATH_BYTES];
};
STACKD_ABI_ASSERT(sizeof(struct stackd_hello) == 1448);

/* Where the process runs: what may follow HELLO, in the same message. Variables of its environment, "NAME=value", each
 * NUL-terminated, those of STACKD_PLACE_VARIABLES that are set and no others. The daemon takes them for the process's own
 * word. An agent that sends none, and a daemon that reads none, are as good as before. */
#define STACKD_PLACE_BYTES 2048u
#define STACKD_PLACE_VARIABLES                                               \
  {"POD_NAME",          "POD_NAMESPACE",           "POD_UID",                \
   "NODE_NAME",         "STACKD_CONTAINER_NAME",   "STACKD_CONTAINER_IMAGE", \
   "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"}

struct stackd_welcome {
  struct stackd_message_header header;
  uint32_t ring_bytes;
  uint32_t pad;
};

struct stackd_reject {
  struct stackd_message_header header;
  char reason[248]; /* one sentence */
};

struct stackd_open_file {
  struct stackd_message_header header;
  uint32_t request_id;
  uint32_t pad;
  /* That of a mapping with code, as in /proc/self/maps; or "/proc/self/exe"; or "/tmp/perf-PID.map". In the last one a
   * runtime names the code that it makes, and PID is the process's own. */
  char path[STACKD_PATH_BYTES];
};

struct stackd_file {
  struct stackd_message_header header;
  uint32_t request_id;
  int32_t error; /* 0: one fd comes along; else a negative errno */
};

struct stackd_kick {
  struct stackd_message_header header;
};

/* The process wants a dump of itself (stackd_dump_now). */
struct stackd_dump_request {
  struct stackd_message_header header;
};

/* A stackd_dump_request because of an exception that was not caught: the dump is that of a crash. A daemon that reads the
 * header alone takes it as one for any other reason. */
struct stackd_exception_request {
  struct stackd_message_header header; /* STACKD_MSG_DUMP_REQUEST */
  int32_t tid;                         /* of the thread that it ends */
  uint32_t pad;
  char type[128]; /* never empty */
};
STACKD_ABI_ASSERT(sizeof(struct stackd_exception_request) == 144);

/* A crash record is ready in the ring. Sent from a signal handler. */
struct stackd_crash {
  struct stackd_message_header header;
};

#define STACKD_MAX_DESCRIBED_FDS 32u

struct stackd_describe_fds {
  struct stackd_message_header header;
  uint32_t request_id;
  uint32_t fd_count;
  int32_t fds[STACKD_MAX_DESCRIBED_FDS];
};

#define STACKD_MAX_WATCHED_FDS 16u
#define STACKD_EPOLL_NAME "anon_inode:[eventpoll]"

struct stackd_fd_name {
  int32_t fd;
  int32_t error; /* 0, or a negative errno: nothing else is valid */
  /* In the answer to DESCRIBE_EPOLLS, of an epoll instance: how many fds it watches, and the first of them. 0 where the
   * process has so many fds that looking would hold up its threads. */
  uint32_t watched_count;
  int32_t watched[STACKD_MAX_WATCHED_FDS];
  /* The fd of this process that is the other end of a pipe; -1: none was found, or it is no pipe. */
  int32_t other_end;
  /* NUL-terminated: where /proc/self/fd/N points ("pipe:[123]", "anon_inode:[eventfd]", "/var/lib/db"); of a socket its
   * kind and addresses ("tcp 10.0.0.7:5432 -> 10.0.0.9:41234", "tcp listening on 0.0.0.0:80", "unix /run/x.sock"). */
  char name[160];
};
STACKD_ABI_ASSERT(sizeof(struct stackd_fd_name) == 240);

/* Names of the fds that were asked for, in the same order. */
struct stackd_fd_names {
  struct stackd_message_header header;
  uint32_t request_id;
  uint32_t fd_count;
  struct stackd_fd_name fds[STACKD_MAX_DESCRIBED_FDS];
};

#define STACKD_MAX_ASKED_WAITS 16u

/* What the daemon may ask of memory that it has no fd of. The agent looks whether the thread sleeps in such a call now,
 * with such an argument, and answers nothing else. */
enum stackd_wait_question_kind {
  /* `avma` is the futex that the thread waits on: the word, and what a lock of the C library has around it. */
  STACKD_ASK_LOCK = 1,
  /* The thread is in poll() or select(): the fds in its table. `avma` says nothing. */
  STACKD_ASK_FD_TABLE = 2,
  /* How many SIGTERMs the program has taken. `tid` and `avma` say nothing. */
  STACKD_ASK_SIGTERM = 3,
  /* The state of a thread, and how often it was given a processor. `avma` says nothing. */
  STACKD_ASK_THREAD = 4,
  /* The thread sleeps in flock() or fcntl(): the inode of the file. `avma` is the fd. */
  STACKD_ASK_LOCKED_FILE = 5,
};

struct stackd_wait_question {
  uint32_t kind;
  int32_t tid;
  uint64_t avma;
};

struct stackd_ask_waits {
  struct stackd_message_header header;
  uint32_t request_id;
  uint32_t question_count;
  struct stackd_wait_question questions[STACKD_MAX_ASKED_WAITS];
};

#define STACKD_LOCK_BYTES_BEFORE 12u
#define STACKD_LOCK_BYTES_FROM 52u
#define STACKD_MAX_TABLE_FDS 64u

struct stackd_wait_answer {
  /* 0, or a negative errno: nothing else is valid. -EAGAIN: the thread does not sleep there now. */
  int32_t error;
  uint32_t count;          /* of bytes of a lock, or of fds; or the state of a thread ('R', 'S', ...) */
  uint32_t word_offset;    /* where in `lock` the futex is */
  int32_t thread_tid;      /* of the thread whose control block the futex lies in (glibc's struct pthread); 0: none */
  int32_t stdio_owner_tid; /* of the owner, if the futex is the lock of a stream of glibc's; 0: it is none */
  uint32_t pad;
  uint64_t number; /* SIGTERMs taken; how often a thread ran; or an inode */
  uint8_t lock[STACKD_LOCK_BYTES_BEFORE + STACKD_LOCK_BYTES_FROM];
  int32_t fds[STACKD_MAX_TABLE_FDS]; /* ascending, each once */
};
STACKD_ABI_ASSERT(sizeof(struct stackd_wait_answer) == 352);

/* An answer to each question, in the same order. */
struct stackd_wait_words {
  struct stackd_message_header header;
  uint32_t request_id;
  uint32_t answer_count;
  struct stackd_wait_answer answers[STACKD_MAX_ASKED_WAITS];
};

#define STACKD_MAX_IMAGE_BYTES 4096u

/* For code that has no file any more, and where the daemon has no fd of the memory. The bytes must lie in one mapping that
 * is private and not writable, of a file of which code is mapped, or of the vDSO. Where `stackd_share` is STACKS the answer
 * is -EPERM. */
struct stackd_read_image {
  struct stackd_message_header header;
  uint32_t request_id;
  uint32_t size_bytes; /* at most STACKD_MAX_IMAGE_BYTES */
  uint64_t avma;
};

struct stackd_image {
  struct stackd_message_header header;
  uint32_t request_id;
  int32_t error; /* 0, or a negative errno: nothing else is valid */
  uint8_t bytes[STACKD_MAX_IMAGE_BYTES];
};

/* A regular file in memory comes along that a runtime writes its last words to when it ends the process. The daemon reads
 * it when the connection ends, up to the first zero: if it does not begin with one, the process crashed. So it may have its
 * size, and be sealed against growing, from the start. */
struct stackd_report_file {
  struct stackd_message_header header;
  uint32_t language; /* number of stackd.v1.Language */
  uint32_t pad;
  char title[64]; /* "Go traceback" */
};
STACKD_ABI_ASSERT(sizeof(struct stackd_report_file) == 80);

struct stackd_describe_tasks {
  struct stackd_message_header header;
  uint32_t request_id;
  uint32_t limit_ms; /* so long the tasks have to say where they wait; at most STACKD_MAX_TASK_LIMIT_MS */
};

#define STACKD_MAX_TASK_LIMIT_MS 200u

struct stackd_tasks {
  struct stackd_message_header header;
  uint32_t request_id;
  int32_t error; /* 0: a sealed file in memory comes along, a stackd_task_table; else a negative errno */
};

/* The file of TASKS: this, then a stackd_task_record for each task that is listed. */
struct stackd_task_table {
  uint32_t version;   /* 1 */
  uint32_t language;  /* number of stackd.v1.Language */
  uint64_t there_are; /* tasks, listed or not */
  char runtime[32];   /* "tokio", NUL-terminated */
};
STACKD_ABI_ASSERT(sizeof(struct stackd_task_table) == 48);

#define STACKD_TASK_TABLE_VERSION 1u
#define STACKD_MAX_TASK_TABLE_BYTES (16u << 20)

enum stackd_task_state {
  STACKD_TASK_WAITS = 1,     /* it was asked, and its stacks are where it waits */
  STACKD_TASK_RUNS = 2,      /* on thread `tid`, all the time it could have been asked */
  STACKD_TASK_IS_DUE = 3,    /* it was woken, and no thread had come to it in time */
  STACKD_TASK_NEVER_RAN = 4, /* no thread has come to it yet */
  STACKD_TASK_NOT_ASKED = 5, /* there was no time for it */
};

/* Behind it lie `words`, `name` and `place`, then zeros up to size_bytes. */
struct stackd_task_record {
  uint32_t size_bytes; /* with all that; a multiple of 8 */
  uint32_t state;      /* stackd_task_state */
  uint64_t id;         /* as its runtime calls it; 0: it has none */
  int32_t tid;         /* of the thread that runs it; 0: none does */
  /* Its stacks, one for each thing that it waits for: return addresses, innermost first, then STACKD_TASK_STACK_WHOLE or
   * STACKD_TASK_STACK_CUT. */
  uint32_t word_count;
  uint32_t name_bytes;  /* its type: "orders::serve::{{closure}}" */
  uint32_t place_bytes; /* where it was made: "src/orders.rs:31" */
};
STACKD_ABI_ASSERT(sizeof(struct stackd_task_record) == 32);

#define STACKD_TASK_STACK_WHOLE 0u
#define STACKD_TASK_STACK_CUT 1u

/* A datagram socket comes along. A byte there wakes the process, by a signal: then it says AWAKE. */
struct stackd_bell {
  struct stackd_message_header header;
  int32_t signal;
  uint32_t pad;
  uint64_t sigterm_count_avma; /* as in the ring (ring_abi.h), which has it from AWAKE on only */
};

/* The program is about to put a filter of system calls on itself (seccomp). From now on the process obeys no
 * commands and answers no messages, but a crash is told. `filtered` 0: it could not, and all is as before. */
struct stackd_filtered {
  struct stackd_message_header header;
  uint32_t filtered;
  uint32_t pad;
};

struct stackd_name {
  struct stackd_message_header header;
  char name[64];
};

#ifdef __cplusplus
}
#endif

#endif /* STACKD_WIRE_H_ */
