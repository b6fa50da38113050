#include "agent/crash/active_fault.h"

#include <ucontext.h>

#include "agent/sys/fork_reset.h"
#include "agent/sys/large.h"

#define ENTRIES 64
/* A thread's entries are among so many. */
#define WINDOW 8
/* How far below the handler's frame a stack reaches, where it is no alternate one. */
#define STACK_BYTES (8ull << 20)

enum state { FREE = 0, CLAIMED = 1, ACTIVE = 2, RETURNED = 3 };

static STACKD_LARGE struct stackd_active_fault entries[ENTRIES];
static STACKD_AT_FORK uint64_t entered;

STACKD_HANDLER static struct stackd_active_fault* entry_of(uint32_t tid, uint32_t index) {
  return &entries[(tid * 5 + index) % ENTRIES];
}

STACKD_HANDLER static uint32_t state_of(const struct stackd_active_fault* entry) {
  return __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
}

STACKD_HANDLER static void set_state(struct stackd_active_fault* entry, uint32_t state) {
  __atomic_store_n(&entry->state, state, __ATOMIC_RELEASE);
}

STACKD_HANDLER static bool claim(struct stackd_active_fault* entry, uint32_t from) {
  return __atomic_compare_exchange_n(&entry->state, &from, CLAIMED, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Entries of threads that ended inside their handler, and RETURNED ones, which are rarely of use, make room. */
STACKD_HANDLER static bool claim_used(struct stackd_active_fault* entry) {
  if (claim(entry, RETURNED)) return true;
  uint32_t tid = __atomic_load_n(&entry->tid, __ATOMIC_RELAXED);
  bool gone = stackd_syscall6(SYS_tgkill, stackd_getpid(), (long)tid, 0, 0, 0, 0) == -ESRCH;
  return gone && claim(entry, ACTIVE);
}

STACKD_HANDLER static struct stackd_active_fault* take_entry(uint32_t tid) {
  for (uint32_t i = 0; i < WINDOW; i++) {
    struct stackd_active_fault* entry = entry_of(tid, i);
    if (state_of(entry) == FREE && claim(entry, FREE)) return entry;
  }
  for (uint32_t i = 0; i < WINDOW; i++) {
    if (claim_used(entry_of(tid, i))) return entry_of(tid, i);
  }
  return NULL;
}

struct stackd_active_fault* stackd_active_fault_enter(uint32_t tid, int signal_number,
                                                      const struct stackd_signal_frame* frame) {
  struct stackd_active_fault* entry = take_entry(tid);
  if (entry == NULL) return NULL;
  __atomic_store_n(&entry->tid, tid, __ATOMIC_RELAXED);
  entry->order = __atomic_add_fetch(&entered, 1, __ATOMIC_RELAXED);
  entry->frame = frame->new_address;
  entry->on_alternate = frame->new_address - frame->alternate_low < frame->alternate_bytes;
  entry->low = entry->on_alternate ? frame->alternate_low : frame->new_address - STACK_BYTES;
  stackd_signal_frame_marks(frame, entry->marks);
  entry->signal_number = signal_number;
  entry->info = stackd_signal_frame_info(frame);
  entry->context = stackd_signal_frame_context(frame);
  entry->record_id = 0;
  set_state(entry, ACTIVE);
  return entry;
}

void stackd_active_fault_leave(struct stackd_active_fault* fault, bool keep) {
  if (!keep) {
    set_state(fault, FREE);
    return;
  }
  const greg_t* registers = ((const ucontext_t*)fault->context)->uc_mcontext.gregs;
  fault->kept_info = *fault->info;
  fault->kept_rip = (uint64_t)registers[REG_RIP];
  fault->kept_rsp = (uint64_t)registers[REG_RSP];
  set_state(fault, RETURNED);
}

STACKD_HANDLER static bool is_inside(const struct stackd_active_fault* entry, uint64_t rsp) {
  if (rsp >= entry->frame || rsp < entry->low) return false;
  return entry->on_alternate || stackd_signal_frame_is_marked(entry->frame, entry->marks);
}

struct stackd_active_fault* stackd_active_fault_around(uint32_t tid, uint64_t rsp) {
  struct stackd_active_fault* outermost = NULL;
  for (uint32_t i = 0; i < WINDOW; i++) {
    struct stackd_active_fault* entry = entry_of(tid, i);
    if (state_of(entry) != ACTIVE || __atomic_load_n(&entry->tid, __ATOMIC_RELAXED) != tid) continue;
    if (is_inside(entry, rsp) && (outermost == NULL || entry->order < outermost->order)) outermost = entry;
  }
  return outermost;
}

bool stackd_active_fault_may_be_around(uint64_t rsp) {
  /* The end of each process comes by: memory that was never used is not to be looked at for it. */
  if (__atomic_load_n(&entered, __ATOMIC_RELAXED) == 0) return false;
  for (uint32_t i = 0; i < ENTRIES; i++) {
    const struct stackd_active_fault* entry = &entries[i];
    if (state_of(entry) == ACTIVE && rsp < entry->frame && rsp >= entry->low) return true;
  }
  return false;
}

struct stackd_active_fault* stackd_active_fault_returned(uint32_t tid, int signal_number, const void* context) {
  const greg_t* registers = ((const ucontext_t*)context)->uc_mcontext.gregs;
  for (uint32_t i = 0; i < WINDOW; i++) {
    struct stackd_active_fault* entry = entry_of(tid, i);
    if (state_of(entry) != RETURNED || __atomic_load_n(&entry->tid, __ATOMIC_RELAXED) != tid) continue;
    if (entry->signal_number == signal_number && entry->kept_rip == (uint64_t)registers[REG_RIP] &&
        entry->kept_rsp == (uint64_t)registers[REG_RSP]) {
      return entry;
    }
  }
  return NULL;
}

struct stackd_active_fault* stackd_active_fault_stale(uint32_t tid, uint64_t rsp, uint32_t* index) {
  while (*index < WINDOW) {
    struct stackd_active_fault* entry = entry_of(tid, (*index)++);
    uint32_t state = state_of(entry);
    if ((state != ACTIVE && state != RETURNED) || __atomic_load_n(&entry->tid, __ATOMIC_RELAXED) != tid) continue;
    if (state == RETURNED || !is_inside(entry, rsp)) return entry;
  }
  return NULL;
}

void stackd_active_fault_reset_after_fork(void) {
  if (entered == 0) return;
  for (uint32_t i = 0; i < ENTRIES; i++) STACKD_RESET(entries[i].state, FREE);
}
