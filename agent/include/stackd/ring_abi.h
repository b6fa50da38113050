/* The memory that one watched process shares with the daemon, and nothing else: this file is its specification.
 *
 * The daemon creates the memory and hands it to the agent when that registers (wire.h). It is a memfd, sealed against
 * shrinking and growing. Every page is touched, so that a write in a signal handler can never meet SIGBUS. It goes away
 * when both sides have let go of it.
 *
 *     +--------------------+ 0
 *     | header             | STACKD_HEADER_BYTES
 *     +--------------------+
 *     | slot 0             | STACKD_SLOT_BYTES
 *     | slot 1             |
 *     | ...                |
 *     +--------------------+
 *
 * A record lies in a chain of slots. Slots, not a byte queue: a writer that is stopped or killed in the middle of a record
 * holds its own slots and no others. There is no head or tail that it could pin, and there is nothing to wrap, hence no
 * ABA. Records carry the time of capture; their order in memory means nothing.
 *
 *     slot states, and who may make each arrow:
 *
 *         FREE  --------(writer: clears its bit in `free`)-------->  WRITING
 *          ^                                                            |
 *          |                                        (writer: sets the bit of the record's
 *    (reader: sets the bits                          first slot in `ready`, release)
 *     of all slots of the record                                        |
 *     in `free`, release)                                               v
 *          +-------------------------(reader)-----------------------  READY
 *
 *     A writer that runs out of slots gives all of its slots back itself: WRITING -> FREE (writer).
 *
 * THE OTHER SIDE IS HOSTILE. The reader copies a value once, checks the copy, and uses the copy. Whatever the process
 * writes here, the worst result is a wrong or missing dump of that process. The agent trusts the daemon, which can read
 * its memory anyway.
 *
 * Only explicitly sized types. Little-endian, as both sides are the same machine. Times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef STACKD_RING_ABI_H_
#define STACKD_RING_ABI_H_

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define STACKD_ABI_ASSERT(condition) static_assert(condition, #condition)
extern "C" {
#else
#define STACKD_ABI_ASSERT(condition) _Static_assert(condition, #condition)
#endif

/* Raised when anything below or in wire.h changes its meaning or place. A daemon accepts exactly the versions it knows and
 * says so to others (STACKD_MSG_REJECT). */
#define STACKD_ABI_VERSION 1u

#define STACKD_RING_MAGIC 0x31676e5264636b53ull /* "SkcdRng1" */

#define STACKD_HEADER_BYTES 8192u
#define STACKD_SLOT_BYTES 2048u
#define STACKD_MAX_SLOTS 4096u
#define STACKD_BITMAP_WORDS (STACKD_MAX_SLOTS / 64u)
#define STACKD_NO_SLOT 0xffffffffu

/* Why a handler gave up on a record; index into stackd_ring_header.dropped. */
enum stackd_drop_reason {
  STACKD_DROP_NO_SLOT = 0,     /* no free slot: the helper asks the thread again until the deadline */
  STACKD_DROP_LATE = 1,        /* delivered after the dump that asked for it was over */
  STACKD_DROP_AGENT_FAULT = 2, /* the handler met a fault of its own */
  STACKD_DROP_CRASH = 3,       /* a crash record found no slot */
  STACKD_DROP_REASONS = 8
};

enum stackd_command {
  STACKD_COMMAND_DUMP = 1, /* the stack of each thread, by signal: THREAD and STATUS records */
  /* What each thread sleeps in, without a signal and without its taking part: WAIT records. Threads that run have none, and
   * the helper is one of them; `threads_listed` counts all. */
  STACKD_COMMAND_SAMPLE = 2,
  /* How often and how long each thread has run: SCHEDSTAT records. */
  STACKD_COMMAND_SCHEDSTAT = 3,
};

/* Whether a dump may interrupt system calls. An agent that does not know it signals every thread. */
enum stackd_quiet {
  STACKD_QUIET_NEVER = 0, /* each thread is signalled, if it takes the signal */
  /* A thread that sleeps in a call which a signal would end is read where it sleeps; the others are signalled. */
  STACKD_QUIET_PREFER = 1,
  STACKD_QUIET_ONLY = 2, /* none is signalled: threads that run have a status, and no stack */
};

/* What the daemon has done with the crash record of this process. */
enum stackd_crash_phase {
  STACKD_CRASH_NONE = 0,
  STACKD_CRASH_TAKEN = 1,  /* copied out of the ring */
  STACKD_CRASH_STORED = 2, /* on disk: nothing is lost if process and daemon end now */
};

#define STACKD_MAX_TENTATIVE 8u
#define STACKD_TENTATIVE_NS 10000000000ull

/* Each group of fields has one writer and a cache line of its own. */
struct stackd_ring_header {
  /* Written by the daemon before the memory is shared; constant afterwards. */
  uint64_t magic;
  uint32_t abi_version;
  uint32_t header_bytes;
  uint32_t slot_bytes;
  uint32_t slot_count;
  /* The last `crash_slot_count` slots are for crash records: live dumps leave them alone. */
  uint32_t crash_slot_count;
  uint32_t pad0[9];

  /* Daemon -> helper thread. The daemon fills in the parameters, then stores `command_seq` with release. A value that the
   * helper has not seen before is a new command. If `helper_sleeping` is set it sends STACKD_MSG_KICK too. */
  uint32_t command_seq;
  uint32_t command;
  uint64_t deadline_ns;
  uint32_t max_stack_bytes;
  /* Equal to the running command_seq: stop, the daemon does not wait for the rest. */
  uint32_t cancel_seq;
  /* DUMP: only this thread, as if the process had no other; 0: all. */
  uint32_t only_tid;
  /* DUMP: stackd_quiet. */
  uint32_t quiet;
  uint32_t pad1[8];

  /* Helper thread -> daemon. */
  uint32_t helper_sleeping; /* 1: blocked in recvmsg on the socket; 0: watches command_seq */
  uint32_t begun_seq;       /* command_seq of the dump whose threads were listed: `threads_listed` is valid */
  uint32_t threads_listed;
  uint32_t done_seq;        /* every thread of this dump has a THREAD record or a STATUS entry */
  uint32_t maps_generation; /* grows when the set of mappings with code was seen to change */
  /* Written before `done_seq`. Not 0: a negative errno, why this command could not be run. Then nothing was said of any
   * thread, or not of all. */
  int32_t failure;
  /* Written before `done_seq`. 1: STACKD_MSG_MEMORY is on its way, or has arrived. */
  uint32_t memory_passed;
  uint32_t pad2[9];

  /* Agent -> reader: `doorbell` is a futex word. A thread that has something that the reader should see at once (a dump is
   * done) adds 1. It makes the wake call only when `reader_sleeping` is not 0. The reader sets that, looks once more, then
   * waits on the value of `doorbell` that it read before looking. */
  uint32_t doorbell;
  uint32_t reader_sleeping;
  uint32_t pad3[14];

  /* Daemon -> crashing thread: `crash_phase` is a futex word, stackd_crash_phase; it only grows. The thread holds the
   * process until STORED, for as long as it may (see stackd_crash_record). */
  uint32_t crash_phase;
  /* Daemon -> thread that met a fault: a futex word. 1: it knows what is mapped, so that a crash of this process has names
   * also when the process is gone. */
  uint32_t modules_known;

  /* Helper thread -> daemon: where in the memory of the process lies the count of SIGTERMs that it has taken, 64 bits. 0:
   * no agent that counts. (Not here: children share the ring until they know that they are none of it, and take SIGTERMs.)
   */
  uint64_t sigterm_count_avma;
  uint32_t pad5[4];

  /* Agent -> daemon: crash records that count only if the process ends without taking them back: the program's own handler
   * runs, and may recover. 0, or 1 + first slot of the record, which is complete but not in `ready`. When the connection
   * ends the daemon takes those that are not older than STACKD_TENTATIVE_NS. */
  uint32_t tentative[STACKD_MAX_TENTATIVE];

  /* Grow only; indexed by stackd_drop_reason. */
  uint64_t dropped[STACKD_DROP_REASONS];

  /* Bit n of word n / 64 is slot n. */
  uint64_t free[STACKD_BITMAP_WORDS];
  uint64_t ready[STACKD_BITMAP_WORDS];
};

STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, command_seq) == 64);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, deadline_ns) == 72);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, helper_sleeping) == 128);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, failure) == 148);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, memory_passed) == 152);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, doorbell) == 192);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, crash_phase) == 256);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, modules_known) == 260);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, sigterm_count_avma) == 264);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, tentative) == 288);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, dropped) == 320);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, free) == 384);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, ready) == 384 + 512);
STACKD_ABI_ASSERT(sizeof(struct stackd_ring_header) == 384 + 1024);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, only_tid) == 88);
STACKD_ABI_ASSERT(offsetof(struct stackd_ring_header, quiet) == 92);

/* Heartbeats fill the second half of the header, a page. The agent maps it where its own page of heartbeats was, so that a
 * program's pointer to one stays good from daemon to daemon.
 *
 * A beat is one store to `beats`: any change of it is a beat, 0 means "idle, not watched". The daemon looks at the words
 * a few times a second; no thread of the process has to run for that. */
#define STACKD_HEARTBEATS_OFFSET 4096u
#define STACKD_MAX_HEARTBEATS 64u

struct stackd_heartbeat_cell {
  uint64_t beats;    /* program -> daemon */
  uint32_t limit_ms; /* 0: this cell is free. Written last, with release. */
  uint32_t tid;      /* of the thread that registered it */
  char name[48];     /* NUL-terminated */
};
STACKD_ABI_ASSERT(sizeof(struct stackd_heartbeat_cell) == 64);
STACKD_ABI_ASSERT(sizeof(struct stackd_ring_header) <= STACKD_HEARTBEATS_OFFSET);
STACKD_ABI_ASSERT(STACKD_HEARTBEATS_OFFSET + STACKD_MAX_HEARTBEATS * sizeof(struct stackd_heartbeat_cell) ==
                  STACKD_HEADER_BYTES);

enum stackd_record_kind {
  STACKD_RECORD_THREAD = 1,    /* stackd_thread_record, then the stack */
  STACKD_RECORD_STATUS = 2,    /* stackd_status_record; one slot */
  STACKD_RECORD_CRASH = 3,     /* stackd_crash_record in the first slot, then all slots of a THREAD record */
  STACKD_RECORD_WAIT = 4,      /* stackd_wait_record; one slot */
  STACKD_RECORD_SCHEDSTAT = 5, /* stackd_schedstat_record; one slot */
};

/* Starts every slot. */
struct stackd_slot_header {
  uint32_t next; /* the record goes on in this slot, or STACKD_NO_SLOT */
  uint32_t kind; /* stackd_record_kind in the first slot of a record, 0 in the others */
};

/* General registers in the order of the x86-64 psABI's DWARF numbers: rax rdx rcx rbx rsi rdi rbp rsp r8..r15 rip. */
#define STACKD_REGISTERS 17
#define STACKD_REG_RBP 6
#define STACKD_REG_RSP 7
#define STACKD_REG_RIP 16

/* A system call that a thread is in: its number, and those of its arguments that say what it waits for. None is data of the
 * program's (agent/capture/syscall_arguments.h): they say which fd, futex, process, how many, which flags. The others are
 * 0. */
#define STACKD_SYSCALL_ARGUMENTS 6
#define STACKD_SYSCALL_KNOWN (1u << 31)

struct stackd_syscall {
  uint32_t number;
  uint32_t known; /* STACKD_SYSCALL_KNOWN: it is in a call, and `number` is valid; bit n: arguments[n] is */
  uint64_t arguments[STACKD_SYSCALL_ARGUMENTS];
};
STACKD_ABI_ASSERT(sizeof(struct stackd_syscall) == 56);

enum stackd_thread_flags {
  STACKD_THREAD_TRUNCATED = 1u << 0, /* the stack was longer than max_stack_bytes, or slots ran out */
  /* Read by the helper while the thread slept. Its rsp and rip are known, and rbp if
   * it is not 0; thread_self may be 0. A status record says why it was not asked; without one it was left asleep on
   * purpose. */
  STACKD_THREAD_BY_HELPER = 1u << 1,
  STACKD_THREAD_FOREIGN_SP = 1u << 2, /* rsp was outside the thread's own stack (fiber, alternate stack) */
  STACKD_THREAD_NO_STACK = 1u << 3,   /* rsp pointed at nothing readable: registers only */
  /* The middle of a deep stack was left out: the second part is the outermost end of the same stack. */
  STACKD_THREAD_BOTH_ENDS = 1u << 4,
  STACKD_THREAD_OF_AGENT = 1u << 5, /* the agent's own thread, as it takes this dump */
};

/* The stack follows as 64-bit words, through all slots of the record. For each 64 words of the stack, from `stack_base` up,
 * one word of mask, then the words whose mask bit is set, lowest first. A clear bit stands for a word that pointed neither
 * into code nor into this stack; it reads as zero. The last mask covers what is left of `stack_words`. */
struct stackd_thread_record {
  struct stackd_slot_header slot;
  uint32_t seq; /* command_seq of the dump */
  uint32_t tid;
  uint32_t flags; /* stackd_thread_flags */
  uint32_t handler_ns;
  uint64_t time_ns;
  uint64_t cpu_ns;      /* CPU time of the thread in its life */
  uint64_t thread_self; /* fs base: the C library's thread descriptor */
  char name[16];        /* NUL-terminated */
  /* Registers that point into code or into the stack; the others are zero. */
  uint64_t regs[STACKD_REGISTERS];
  uint64_t stack_base;  /* address of the first word: rsp - 128, rounded down to 8 */
  uint32_t stack_words; /* words covered, kept or not */
  uint32_t payload_words;
  /* With STACKD_THREAD_FOREIGN_SP: the part of the thread's own stack that the first one leads to, from the lowest word
   * that it points at. With STACKD_THREAD_BOTH_ENDS: the outermost end of the stack. It follows in the payload in the same
   * form. */
  uint64_t outer_base;
  uint32_t outer_words;
  /* Behind the stack: so many words of stackd_managed_entry, what runtimes know of this thread. */
  uint32_t managed_words;
  struct stackd_syscall syscall;
};

STACKD_ABI_ASSERT(offsetof(struct stackd_thread_record, time_ns) == 24);
STACKD_ABI_ASSERT(offsetof(struct stackd_thread_record, name) == 48);
STACKD_ABI_ASSERT(offsetof(struct stackd_thread_record, regs) == 64);
STACKD_ABI_ASSERT(offsetof(struct stackd_thread_record, stack_base) == 200);
STACKD_ABI_ASSERT(offsetof(struct stackd_thread_record, syscall) == 232);
STACKD_ABI_ASSERT(sizeof(struct stackd_thread_record) == 288);

/* What the runtimes of other languages know of a thread's stack, as the thread itself found it in their memory when it was
 * interrupted. That is names of functions and files, tables of lines, places in code; never a value of the program's.
 *
 * Entries follow each other, each of whole words. A RUNTIME entry begins what one runtime says: its frames, innermost
 * first, and symbols anywhere among them. A symbol may be there twice, or not at all. */
enum stackd_runtime {
  STACKD_RUNTIME_CPYTHON = 1,
  STACKD_RUNTIME_V8 = 2,
  STACKD_RUNTIME_HOTSPOT = 3,
  STACKD_RUNTIME_PHP = 4,
  STACKD_RUNTIME_RUBY = 5,
};

enum stackd_managed_kind {
  STACKD_MANAGED_RUNTIME = 1, /* stackd_managed_runtime */
  STACKD_MANAGED_FRAME = 2,   /* stackd_managed_frame */
  STACKD_MANAGED_SYMBOL = 3,  /* stackd_managed_symbol, then its texts and its table */
};

struct stackd_managed_entry {
  uint16_t kind;       /* stackd_managed_kind */
  uint16_t flags;      /* of the runtime entry: stackd_managed_runtime_flags; of a frame: stackd_managed_frame_flags */
  uint32_t size_bytes; /* of the whole entry, a multiple of 8 */
};

/* How a walk over a runtime's frames ended. */
enum stackd_walk_status {
  STACKD_WALK_WHOLE = 0,           /* all frames are there */
  STACKD_WALK_UNKNOWN_VERSION = 1, /* of this version of the runtime nothing is known: no frames */
  STACKD_WALK_BAD_LAYOUT = 2,      /* something was not what it should be: frames up to there */
  STACKD_WALK_UNREADABLE = 3,      /* memory could not be read: frames up to there */
  STACKD_WALK_LIMIT = 4,           /* too many frames: the innermost ones */
};

enum stackd_managed_runtime_flags {
  STACKD_MANAGED_HOLDS_GIL = 1u << 0, /* CPython: this thread had the global interpreter lock */
};

struct stackd_managed_runtime {
  struct stackd_managed_entry entry;
  uint32_t runtime; /* stackd_runtime */
  int32_t status;   /* stackd_walk_status */
  uint64_t
      version; /* as the runtime counts: CPython's PY_VERSION_HEX; V8: major << 48 | minor << 32 | build << 16 | patch */
  uint64_t instance; /* address of the interpreter or isolate that the thread is in */
};
STACKD_ABI_ASSERT(sizeof(struct stackd_managed_runtime) == 32);

enum stackd_managed_frame_flags {
  /* The runtime was called from native code here; no function of its own. Frames beyond it are of an older activation. */
  STACKD_MANAGED_BOUNDARY = 1u << 0,
};

struct stackd_managed_frame {
  struct stackd_managed_entry entry;
  uint64_t anchor;  /* an address in the native frame that runs this function; 0: of the same as the frame before */
  uint64_t key;     /* of its symbol; unique in this record alone: memory is used again */
  int64_t position; /* in its code, as the runtime counts: bytes, offsets of bytecode */
};
STACKD_ABI_ASSERT(sizeof(struct stackd_managed_frame) == 32);

/* The texts follow, UTF-8 or what the runtime has, without NUL: function, file, table; then zeros up to a whole word. */
struct stackd_managed_symbol {
  struct stackd_managed_entry entry;
  uint64_t key;
  uint32_t first_line; /* 0: not known */
  uint16_t function_bytes;
  uint16_t file_bytes;
  uint32_t table_bytes;  /* from positions to lines, as the runtime keeps it; the runtime's version tells its format */
  uint32_t table_format; /* the runtime's own business */
};
STACKD_ABI_ASSERT(sizeof(struct stackd_managed_symbol) == 32);

/* At most so much for one thread. A record with more is corrupt. */
#define STACKD_MAX_MANAGED_WORDS 16384u

enum stackd_thread_status {
  STACKD_STATUS_SIGNAL_BLOCKED = 2, /* numbers as in stackd.v1.Thread.Status */
  STACKD_STATUS_UNINTERRUPTIBLE = 3,
  STACKD_STATUS_STOPPED = 4,
  STACKD_STATUS_EXITED = 5,
  STACKD_STATUS_TIMED_OUT = 6,
  STACKD_STATUS_RING_FULL = 7,
  STACKD_STATUS_SIGNAL_QUEUE_FULL = 8,
  STACKD_STATUS_AGENT_FAULT = 9,
  STACKD_STATUS_RUNNING = 10, /* with STACKD_QUIET_ONLY: it ran, and was not interrupted */
};

/* A thread that did not answer. */
struct stackd_thread_status_entry {
  uint32_t tid;
  uint8_t status; /* stackd_thread_status */
  char state;     /* as in /proc/PID/task/TID/stat, or 0 */
  uint16_t pad;
  char name[16];
  char wait_channel[32];
};
STACKD_ABI_ASSERT(sizeof(struct stackd_thread_status_entry) == 56);

#define STACKD_STATUS_ENTRIES 36

struct stackd_status_record {
  struct stackd_slot_header slot;
  uint32_t seq;
  uint32_t entry_count;
  struct stackd_thread_status_entry entries[STACKD_STATUS_ENTRIES];
};
STACKD_ABI_ASSERT(sizeof(struct stackd_status_record) <= STACKD_SLOT_BYTES);

struct stackd_wait_entry {
  uint32_t tid;
  uint32_t pad;
  uint64_t rsp;
  uint64_t rip;
  struct stackd_syscall syscall;
};
STACKD_ABI_ASSERT(sizeof(struct stackd_wait_entry) == 80);

#define STACKD_WAIT_ENTRIES 25

struct stackd_wait_record {
  struct stackd_slot_header slot;
  uint32_t seq;
  uint32_t entry_count;
  struct stackd_wait_entry entries[STACKD_WAIT_ENTRIES];
};
STACKD_ABI_ASSERT(sizeof(struct stackd_wait_record) <= STACKD_SLOT_BYTES);

/* /proc/PID/task/TID/schedstat. Of the helper, which runs for the command, all is 0. */
struct stackd_schedstat_entry {
  uint32_t tid;
  uint32_t is_helper;
  uint64_t run_ns;
  uint64_t runnable_ns; /* waited for a processor */
  uint64_t run_count;
};
STACKD_ABI_ASSERT(sizeof(struct stackd_schedstat_entry) == 32);

#define STACKD_SCHEDSTAT_ENTRIES 63

struct stackd_schedstat_record {
  struct stackd_slot_header slot;
  uint32_t seq;
  uint32_t entry_count;
  struct stackd_schedstat_entry entries[STACKD_SCHEDSTAT_ENTRIES];
};
STACKD_ABI_ASSERT(sizeof(struct stackd_schedstat_record) <= STACKD_SLOT_BYTES);

enum stackd_crash_flags {
  /* The program's handler had been called for it and did not recover: this is the fault that it was called for. */
  STACKD_CRASH_HANDLED = 1u << 0,
  /* si_code says that a process sent it: sender_pid and sender_uid are valid, fault_address is not. */
  STACKD_CRASH_SENT = 1u << 1,
  /* The handler met a fault of its own while it copied: the stack is not whole. */
  STACKD_CRASH_AGENT_FAULT = 1u << 2,
  /* The process is the first of its PID namespace. */
  STACKD_CRASH_INIT = 1u << 3,
};

#define STACKD_CRASH_TEXT_BYTES 512

/* The death of a process, or (tentative) what may become that. One per process; `seq` of the THREAD record in it is 0.
 *
 * Writer: writes record and thread into slots of the crash part, sets the `ready` bit of the first, rings, and sends
 * STACKD_MSG_CRASH on the socket. Then it waits on header.crash_phase. TAKEN does not come within a part of the hold, or
 * STORED not by its end: it writes a spool file (spool.h). Then it lets the process die as it would have died. */
struct stackd_crash_record {
  struct stackd_slot_header slot; /* slot.next: first slot of the THREAD record */
  uint64_t id[2];                 /* random, and the same in the spool file of this crash */
  uint64_t time_ns;
  uint32_t flags; /* stackd_crash_flags */
  uint32_t tid;
  int32_t signal_number;
  int32_t signal_code;    /* si_code */
  uint64_t fault_address; /* si_addr */
  int32_t sender_pid;
  int32_t sender_uid;
  uint64_t trap_error;  /* gregs[REG_ERR]: bit 1 of a page fault is a write, bit 4 an instruction fetch */
  uint64_t trap_number; /* gregs[REG_TRAPNO] */
  uint64_t stack_start; /* mapping that the thread's stack lies in, without guard pages; 0, 0: not known */
  uint64_t stack_end;
  /* What glibc keeps for a debugger of its last words ("free(): invalid pointer", a failed assertion), NUL-terminated. */
  char abort_message[STACKD_CRASH_TEXT_BYTES];
  /* Mangled type of the C++ exception that was not caught, NUL-terminated. */
  char exception_type[STACKD_CRASH_TEXT_BYTES];
};
STACKD_ABI_ASSERT(offsetof(struct stackd_crash_record, id) == 8);
STACKD_ABI_ASSERT(offsetof(struct stackd_crash_record, fault_address) == 48);
STACKD_ABI_ASSERT(offsetof(struct stackd_crash_record, abort_message) == 96);
STACKD_ABI_ASSERT(sizeof(struct stackd_crash_record) == 96 + 2 * STACKD_CRASH_TEXT_BYTES);
STACKD_ABI_ASSERT(sizeof(struct stackd_crash_record) <= STACKD_SLOT_BYTES);

#ifdef __cplusplus
}
#endif

#endif /* STACKD_RING_ABI_H_ */
