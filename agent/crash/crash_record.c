#include "agent/crash/crash_record.h"

#include <sys/random.h>
#include <ucontext.h>

#include "agent/capture/capture.h"
#include "agent/capture/context.h"
#include "agent/maps/crash_maps.h"

#define MAX_STACK_BYTES (256u << 10)

static uint64_t id_base[2];
static uint64_t records;
static struct stackd_last_words last_words;

void stackd_crash_record_init(void) {
  if (getrandom(id_base, sizeof(id_base), GRND_NONBLOCK) != sizeof(id_base)) {
    id_base[0] = (uint64_t)stackd_getpid();
    id_base[1] = stackd_clock_ns(CLOCK_REALTIME);
  }
}

void stackd_crash_record_set_last_words(const struct stackd_last_words* words) { last_words = *words; }

bool stackd_is_sent(const siginfo_t* info) { return info->si_code <= 0; }

STACKD_HANDLER static uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* Reads a NUL-terminated text; what cannot be read ends it. */
STACKD_HANDLER static void read_text(int32_t pid, uint64_t address, char text[STACKD_CRASH_TEXT_BYTES]) {
  uint32_t length = 0;
  while (length < STACKD_CRASH_TEXT_BYTES - 1) {
    /* Never across a page: the next may not be there. */
    uint64_t at = address + length;
    uint32_t want = (uint32_t)(4096 - at % 4096);
    if (want > STACKD_CRASH_TEXT_BYTES - 1 - length) want = STACKD_CRASH_TEXT_BYTES - 1 - length;
    long got = stackd_read_memory(pid, at, text + length, want);
    if (got <= 0) break;
    for (long i = 0; i < got; i++) {
      if (text[length] == '\0') return;
      length++;
    }
  }
  text[length] = '\0';
}

STACKD_HANDLER static uint64_t read_word(int32_t pid, uint64_t address) {
  uint64_t word = 0;
  return stackd_read_memory(pid, address, &word, sizeof(word)) == sizeof(word) ? word : 0;
}

/* glibc: struct abort_msg_s { unsigned int size; char msg[]; } *__abort_msg. */
STACKD_HANDLER static void read_abort_message(int32_t pid, char text[STACKD_CRASH_TEXT_BYTES]) {
  uint64_t message = read_word(pid, last_words.abort_message);
  if (message != 0) read_text(pid, message + sizeof(uint32_t), text);
}

/* Itanium C++ ABI 2.2.2: __cxa_eh_globals begins with caughtExceptions, which points to a __cxa_exception (2.2.1). That
 * begins with the std::type_info*; the second word of a type_info is the name. std::terminate() is called with the
 * exception caught. A name that begins with '*' is compared by address only. */
STACKD_HANDLER static void read_exception_type(int32_t pid, uint64_t thread_self, char text[STACKD_CRASH_TEXT_BYTES]) {
  uint64_t exception = read_word(pid, thread_self + (uint64_t)last_words.exception_globals);
  uint64_t type = exception != 0 ? read_word(pid, exception) : 0;
  uint64_t name = type != 0 ? read_word(pid, type + 8) : 0;
  if (name == 0) return;
  char first = 0;
  if (stackd_read_memory(pid, name, &first, 1) == 1 && first == '*') name++;
  read_text(pid, name, text);
}

STACKD_HANDLER static void fill(const struct stackd_fault* fault, const struct stackd_capture* capture,
                                struct stackd_crash_record* record) {
  const siginfo_t* info = fault->info;
  const greg_t* registers = ((const ucontext_t*)fault->context)->uc_mcontext.gregs;
  uint64_t number = __atomic_add_fetch(&records, 1, __ATOMIC_RELAXED);
  record->id[0] = id_base[0] ^ mixed(capture->begin_ns + number);
  record->id[1] = id_base[1] ^ mixed((uint64_t)capture->pid << 32 | capture->tid);
  record->time_ns = capture->begin_ns;
  record->flags = fault->flags;
  record->tid = capture->tid;
  record->signal_number = fault->signal_number;
  record->signal_code = info->si_code;
  bool sent = stackd_is_sent(info);
  record->fault_address = sent ? 0 : (uint64_t)info->si_addr;
  record->sender_pid = sent ? info->si_pid : 0;
  record->sender_uid = sent ? (int32_t)info->si_uid : 0;
  record->trap_error = sent ? 0 : (uint64_t)registers[REG_ERR];
  record->trap_number = sent ? 0 : (uint64_t)registers[REG_TRAPNO];
  if (sent) record->flags |= STACKD_CRASH_SENT;
  if (capture->pid == 1) record->flags |= STACKD_CRASH_INIT;
  record->stack_start = capture->stack.start;
  record->stack_end = capture->stack.end;
  record->abort_message[0] = '\0';
  record->exception_type[0] = '\0';
}

__attribute__((noinline)) STACKD_HANDLER static void write_with_stack(struct stackd_capture* capture, int maps_fd,
                                                                      const struct stackd_fault* fault,
                                                                      struct stackd_crash_record* record, uint32_t own_slot,
                                                                      uint32_t* first_slot) {
  struct stackd_memory_map map;
  if (maps_fd >= 0 && stackd_memory_map_read(&map, maps_fd, capture->regs[STACKD_REG_RSP], capture->thread_self)) {
    capture->ranges = stackd_memory_map_ranges(&map);
    capture->stack = map.stack;
  }
  fill(fault, capture, record);
  __atomic_store_n(first_slot, own_slot, __ATOMIC_RELEASE);
  /* Sets record->slot.next before it copies: the thread that finishes the record of a handler that met a fault finds the
   * registers.
   */
  stackd_capture_write_crash(capture, &record->slot.next);
}

STACKD_HANDLER static void add_last_words(const struct stackd_capture* capture, struct stackd_crash_record* record) {
  /* The first process of a PID namespace cannot be sent SIGABRT: abort() ends it otherwise. */
  if (record->signal_number != SIGABRT && capture->pid != 1) return;
  if (last_words.abort_message != 0) read_abort_message(capture->pid, record->abort_message);
  if (last_words.has_exception_globals) read_exception_type(capture->pid, capture->thread_self, record->exception_type);
}

void stackd_crash_record_write(const struct stackd_ring* ring, uint32_t max_slots, const struct stackd_fault* fault,
                               struct stackd_crash_sources sources, uint32_t* first_slot) {
  struct stackd_ring_writer writer;
  struct stackd_crash_record* record = NULL;
  if (max_slots > 1) record = stackd_ring_begin_crash(&writer, ring, STACKD_RECORD_CRASH, sizeof(*record), 1);
  if (record == NULL) {
    stackd_ring_count_drop(ring, STACKD_DROP_CRASH);
    return;
  }
  struct stackd_capture capture;
  capture.begin_ns = stackd_clock_ns(CLOCK_MONOTONIC);
  capture.ring = ring;
  capture.filter = stackd_filter_choose();
  capture.seq = 0;
  capture.tid = (uint32_t)stackd_gettid();
  capture.pid = stackd_getpid();
  capture.flags = 0;
  capture.max_stack_bytes = MAX_STACK_BYTES;
  capture.thread_self = stackd_fs_base();
  capture.cpu_ns = stackd_clock_ns(CLOCK_THREAD_CPUTIME_ID);
  stackd_thread_name(capture.name);
  stackd_copy_registers(fault->context, capture.regs);
  capture.call = (struct stackd_syscall){0};
  capture.crash_slots = max_slots - 1;
  capture.by_kernel_only = sources.by_kernel_only;
  stackd_handler_enter();
  capture.ranges = stackd_code_ranges_current();
  capture.stack = (struct stackd_interval){0, 0};
  capture.alternate = stackd_alternate_stack(fault->context);
  if (stackd_has_room(fault->context, STACKD_CRASH_STACK_BYTES)) {
    write_with_stack(&capture, sources.maps_fd, fault, record, writer.first_slot, first_slot);
  } else {
    fill(fault, &capture, record);
    stackd_capture_write_registers(&capture, &record->slot.next);
    __atomic_store_n(first_slot, writer.first_slot, __ATOMIC_RELEASE);
  }
  stackd_handler_leave();
  add_last_words(&capture, record);
}
