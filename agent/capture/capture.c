#include "agent/capture/capture.h"

#include <errno.h>
#include <stdbool.h>

#include "agent/maps/crash_maps.h"
#include "agent/runtimes/runtimes.h"
#include "agent/sys/target.h"

#define RED_ZONE_BYTES 128
/* The lowest address that leads to an outer stack may be of a variable. Below it lie registers that were saved when that
 * stack was left (Go, called by C: 300 bytes). */
#define BELOW_OUTER_BYTES 1024
#define CHUNK_WORDS 128 /* 1 KiB on the stack of the interrupted thread */
#define PAGE_BYTES 4096ull
/* Slots that STACKD_CRASH_OUTER_BYTES need if every word is kept. */
#define OUTER_SLOTS (STACKD_CRASH_OUTER_BYTES / 64 * 65 / (STACKD_SLOT_BYTES - 8) + 1)
/* Where nothing is known about the mapping of rsp (a thread that started after the last look at maps). */
#define BLIND_STACK_BYTES (64u << 10)
/* A thread descriptor farther above rsp than this is not the top of the stack that rsp is in. */
#define MAX_STACK_SPAN_BYTES (1ull << 30)

/* What to copy: [start, end), aligned to words. */
struct span {
  uint64_t start;
  uint64_t end;
  bool foreign;
};

STACKD_HANDLER static bool is_main_stack(const struct stackd_code_ranges* ranges, const struct stackd_interval* mapping) {
  return ranges != NULL && mapping->end == ranges->main_stack.end;
}

STACKD_HANDLER static struct span choose_span(const struct stackd_capture* capture) {
  uint64_t rsp = capture->regs[STACKD_REG_RSP];
  uint64_t start = (rsp - RED_ZONE_BYTES) & ~7ull;
  struct stackd_interval alternate = capture->alternate;
  if (rsp >= alternate.start && rsp < alternate.end) {
    if (start < alternate.start) start = (alternate.start + 7) & ~7ull;
    return (struct span){start, alternate.end & ~7ull, true};
  }
  struct stackd_interval mapping = capture->stack;
  if (mapping.end != 0) {
    if (is_main_stack(capture->ranges, &mapping)) {
      if (start < mapping.start) start = mapping.start;
      return (struct span){start, mapping.end & ~7ull, false};
    }
  } else if (capture->ranges != NULL) {
    struct stackd_interval main_stack = capture->ranges->main_stack;
    /* The main stack grows: its start was read earlier, its end stands. */
    if (rsp < main_stack.end && rsp >= main_stack.start - STACKD_MAIN_STACK_GROWTH_BYTES) {
      return (struct span){start, main_stack.end & ~7ull, false};
    }
    mapping = stackd_writable_mapping(capture->ranges, rsp);
  }
  /* glibc and musl put the thread descriptor at the top of the stack, also of one that the program supplied. */
  uint64_t self = capture->thread_self & ~7ull;
  bool self_above = self > rsp && self - rsp < MAX_STACK_SPAN_BYTES;
  if (mapping.end != 0) {
    bool own = self_above && self <= mapping.end;
    if (start < mapping.start) start = (mapping.start + 7) & ~7ull;
    return (struct span){start, own ? self : mapping.end & ~7ull, !own};
  }
  uint64_t end = self_above ? self : start + BLIND_STACK_BYTES;
  return (struct span){start, end, !self_above};
}

/* The thread's own stack, if rsp is on another and its place is known; else empty. */
STACKD_HANDLER static struct stackd_interval outer_stack(const struct stackd_capture* capture, const struct span* span) {
  struct stackd_interval none = {0, 0};
  if (!span->foreign || capture->ranges == NULL) return none;
  struct stackd_interval main_stack = capture->ranges->main_stack;
  if (capture->tid == (uint32_t)capture->pid) return main_stack;
  uint64_t self = capture->thread_self & ~7ull;
  struct stackd_interval mapping = stackd_writable_mapping(capture->ranges, self);
  if (mapping.end == 0) return none;
  /* The kernel joins an alternate stack with the stack above it if that has no mapping as its guard. */
  bool joined = span->end > mapping.start && span->end <= self;
  if (joined) {
    uint64_t start = stackd_target_is_other() ? span->end : stackd_guard_end(span->end, self);
    return (struct stackd_interval){start, self};
  }
  bool apart = span->start >= mapping.end || span->end <= mapping.start;
  return apart ? (struct stackd_interval){mapping.start, self} : none;
}

/* The running thread's own stack. */
STACKD_HANDLER static bool may_read_in_place(const struct stackd_capture* capture) {
  return (capture->flags & STACKD_THREAD_BY_HELPER) == 0 && !capture->by_kernel_only && !stackd_target_is_other();
}

/* Hands out a stack in pieces. */
struct source {
  int32_t pid;
  /* The running thread's own stack is read where it lies, after a look at each page: no other thread unmaps it meanwhile.
   * All else is copied by the kernel, which fails where a read of ours would fault. */
  bool in_place;
  uint64_t readable_until;
  const struct stackd_code_ranges* ranges;
  uint64_t chunk_start;
  uint32_t chunk_bytes;
  uint64_t chunk[CHUNK_WORDS];
};

/* Reads as much as can be read of [address, address + size_bytes); returns the bytes, a multiple of 8. */
STACKD_HANDLER static uint32_t read_chunk(const struct source* source, uint64_t address, uint64_t* out,
                                          uint32_t size_bytes) {
  long got = stackd_read_memory(source->pid, address, out, size_bytes);
  if (got >= 0) return (uint32_t)got & ~7u;
  if (got != -EPERM && got != -ENOSYS) return 0;
  /* A seccomp policy forbids the call. The mapping was there when the helper looked last. */
  if (source->ranges == NULL || stackd_target_is_other()) return 0;
  struct stackd_interval mapping = stackd_writable_mapping(source->ranges, address);
  if (mapping.end <= address) return 0;
  uint64_t available = mapping.end - address;
  if (available < size_bytes) size_bytes = (uint32_t)available & ~7u;
  const volatile uint64_t* words = (const volatile uint64_t*)address;
  for (uint32_t i = 0; i < size_bytes / 8; i++) {
    /* A guard page may be part of a mapping. */
    bool is_new_page = i == 0 || (uint64_t)(words + i) % PAGE_BYTES == 0;
    if (is_new_page && !stackd_is_readable((uint64_t)(words + i))) return 8 * i;
    out[i] = words[i];
  }
  return size_bytes;
}

/* The words at `address`, at most `*count`; sets `*count` to how many there are. */
STACKD_HANDLER static const uint64_t* words_at(struct source* source, uint64_t address, uint64_t end, uint32_t* count) {
  uint64_t wanted_until = address + 8ull * *count;
  if (source->in_place) {
    while (source->readable_until < wanted_until && stackd_is_readable(source->readable_until)) {
      source->readable_until += PAGE_BYTES;
    }
    uint64_t until = source->readable_until < wanted_until ? source->readable_until : wanted_until;
    *count = until > address ? (uint32_t)(until - address) / 8 : 0;
    return (const uint64_t*)address;
  }
  if (address >= source->chunk_start + source->chunk_bytes) {
    uint64_t left = end - address;
    uint32_t want = left < sizeof(source->chunk) ? (uint32_t)left : (uint32_t)sizeof(source->chunk);
    source->chunk_start = address;
    source->chunk_bytes = read_chunk(source, address, source->chunk, want);
  }
  uint32_t available = (uint32_t)(source->chunk_start + source->chunk_bytes - address) / 8;
  if (available < *count) *count = available;
  return source->chunk + (address - source->chunk_start) / 8;
}

/* Where a copy stands; kept out of the record until the end, since that is shared memory. */
struct progress {
  uint32_t stack_words;
  uint32_t payload_words;
  uint64_t lowest_outer; /* the lowest kept word that points into the outer stack; ~0 if none does */
};

/* False if slots ran out; `reserve_slots` of them are left alone. */
STACKD_HANDLER static bool copy_stack(const struct stackd_capture* capture, const struct stackd_filter* filter,
                                      struct stackd_interval range, bool in_place, struct stackd_ring_writer* writer,
                                      uint32_t reserve_slots, struct progress* progress) {
  struct source source;
  source.pid = capture->pid;
  source.in_place = in_place;
  source.readable_until = range.start & ~(PAGE_BYTES - 1);
  source.ranges = capture->ranges;
  source.chunk_start = range.start;
  source.chunk_bytes = 0;
  /* What points into the lowest page is a bound of that stack, not a place in it: Go has such in variables. */
  uint64_t outer_start = filter->start[STACKD_CODE_INTERVALS + 1] + PAGE_BYTES;
  uint64_t outer_length = filter->length[STACKD_CODE_INTERVALS + 1];
  outer_length = outer_length > PAGE_BYTES ? outer_length - PAGE_BYTES : 0;
  uint64_t block[1 + STACKD_FILTER_OUT_WORDS];
  for (uint64_t address = range.start; address < range.end;) {
    uint64_t left = (range.end - address) / 8;
    uint32_t want = left < STACKD_FILTER_WORDS ? (uint32_t)left : STACKD_FILTER_WORDS;
    uint32_t count = want;
    const uint64_t* words = words_at(&source, address, range.end, &count);
    if (count == 0) return true;
    uint64_t mask = capture->filter(filter, words, count, block + 1);
    block[0] = mask;
    uint32_t block_words = 1;
    for (; mask != 0; mask &= mask - 1) block_words++;
    if (outer_length != 0) {
      for (uint32_t i = 1; i < block_words; i++) {
        if (block[i] - outer_start < outer_length && block[i] < progress->lowest_outer) progress->lowest_outer = block[i];
      }
    }
    if (writer->slots_left < reserve_slots + 1 && !stackd_ring_fits(writer, block_words)) return false;
    if (!stackd_ring_append(writer, block, block_words)) return false;
    progress->stack_words += count;
    progress->payload_words += block_words;
    address += 8ull * count;
    if (count < want) return true; /* the mapping ends here */
  }
  return true;
}

/* Everything but the stack. */
STACKD_HANDLER static void fill(const struct stackd_capture* capture, const struct stackd_filter* filter,
                                struct stackd_thread_record* record) {
  record->seq = capture->seq;
  record->tid = capture->tid;
  record->flags = capture->flags | STACKD_THREAD_NO_STACK;
  record->handler_ns = 0;
  record->time_ns = capture->begin_ns;
  record->cpu_ns = capture->cpu_ns;
  record->thread_self = capture->thread_self;
  for (int i = 0; i < 16; i++) record->name[i] = capture->name[i];
  for (int i = 0; i < STACKD_REGISTERS; i++) {
    uint64_t value = capture->regs[i];
    bool keep = i == STACKD_REG_RIP || i == STACKD_REG_RSP || stackd_filter_keeps(filter, value);
    record->regs[i] = keep ? value : 0;
  }
  record->stack_base = 0;
  record->stack_words = 0;
  record->payload_words = 0;
  record->outer_base = 0;
  record->outer_words = 0;
  record->managed_words = 0;
  record->syscall = capture->call;
}

/* What is copied of a stack: decided before anything of it is read. */
struct copy_plan {
  struct stackd_interval inner; /* from rsp up, as much as was asked for */
  struct stackd_interval whole; /* the same without that bound */
  struct stackd_interval outer; /* the thread's own stack, if `inner` is another; else empty */
  bool foreign;                 /* it is another */
  bool both_ends;               /* where slots or the bound cut `inner`, the end of `whole` is copied too */
  uint32_t flags;               /* stackd_thread_flags */
};

STACKD_HANDLER static struct copy_plan plan_copy(const struct stackd_capture* capture) {
  struct copy_plan plan;
  struct span span = choose_span(capture);
  if (span.end < span.start) span.end = span.start; /* rsp is at an end of the address space */
  plan.whole = (struct stackd_interval){span.start, span.end};
  plan.inner = plan.whole;
  plan.outer = outer_stack(capture, &span);
  plan.foreign = span.foreign;
  plan.both_ends = capture->crash_slots != 0 && !span.foreign;
  plan.flags = capture->flags;
  if (span.foreign) plan.flags |= STACKD_THREAD_FOREIGN_SP;
  if (span.end - span.start > capture->max_stack_bytes) {
    plan.inner.end = span.start + capture->max_stack_bytes;
    /* What follows a fiber's stack may be the heap: a copy that was cut there was cut after its root. */
    if (!span.foreign) plan.flags |= STACKD_THREAD_TRUNCATED;
  }
  return plan;
}

struct copied {
  struct progress inner;
  struct progress outer;
  uint64_t outer_base;
  uint32_t flags; /* stackd_thread_flags */
};

/* Copies the outermost end of a stack whose middle is left out. */
STACKD_HANDLER static bool copy_far_end(const struct stackd_capture* capture, const struct copy_plan* plan,
                                        const struct stackd_filter* filter, struct stackd_ring_writer* writer,
                                        uint32_t reserve_slots, struct copied* copied) {
  uint64_t copied_until = plan->inner.start + 8ull * copied->inner.stack_words;
  copied->outer_base = plan->whole.end - STACKD_CRASH_OUTER_BYTES;
  if (copied->outer_base < copied_until) copied->outer_base = copied_until;
  copied->flags &= ~(uint32_t)STACKD_THREAD_TRUNCATED;
  copied->flags |= STACKD_THREAD_BOTH_ENDS;
  struct stackd_interval range = {copied->outer_base, plan->whole.end};
  return copy_stack(capture, filter, range, may_read_in_place(capture), writer, reserve_slots, &copied->outer);
}

/* Copies the part of the thread's own stack that the first one leads to. */
STACKD_HANDLER static bool copy_outer(const struct stackd_capture* capture, const struct copy_plan* plan,
                                      const struct stackd_filter* filter, struct stackd_ring_writer* writer,
                                      struct copied* copied) {
  uint64_t base = (copied->inner.lowest_outer - BELOW_OUTER_BYTES) & ~7ull;
  if (base < plan->outer.start) base = plan->outer.start;
  struct stackd_interval range = {base, plan->outer.end & ~7ull};
  if (range.end - range.start > capture->max_stack_bytes) {
    range.end = range.start + capture->max_stack_bytes;
    copied->flags |= STACKD_THREAD_TRUNCATED;
  }
  copied->outer_base = base;
  return copy_stack(capture, filter, range, may_read_in_place(capture), writer, 0, &copied->outer);
}

/* False if slots ran out: the copy ends there. */
STACKD_HANDLER static bool copy_planned(const struct stackd_capture* capture, const struct copy_plan* plan,
                                        const struct stackd_filter* filter, struct stackd_ring_writer* writer,
                                        struct copied* copied) {
  *copied = (struct copied){{0, 0, ~0ull}, {0, 0, ~0ull}, 0, plan->flags};
  uint32_t managed_slots = stackd_managed_crash_slots(capture->crash_slots);
  bool fits = copy_stack(capture, filter, plan->inner, may_read_in_place(capture) && !plan->foreign, writer,
                         managed_slots + (plan->both_ends ? OUTER_SLOTS : 0), &copied->inner);
  if (plan->both_ends && (!fits || (plan->flags & STACKD_THREAD_TRUNCATED) != 0))
    return copy_far_end(capture, plan, filter, writer, managed_slots, copied);
  if (fits && copied->inner.lowest_outer != ~0ull) return copy_outer(capture, plan, filter, writer, copied);
  return fits;
}

/* Only the thread itself stands still while this looks, or one that sleeps in a call. */
__attribute__((noinline)) STACKD_HANDLER static bool write_managed(const struct stackd_capture* capture, uint64_t stack_end,
                                                                   struct stackd_ring_writer* writer, uint32_t* words) {
  *words = 0;
  bool by_helper = (capture->flags & STACKD_THREAD_BY_HELPER) != 0;
  if (by_helper && (capture->call.known & STACKD_SYSCALL_KNOWN) == 0) return true;
  struct stackd_managed_thread thread;
  thread.pid = capture->pid;
  thread.tid = capture->tid;
  thread.thread_self = capture->thread_self;
  thread.regs = capture->regs;
  thread.stack_start = capture->regs[STACKD_REG_RSP];
  thread.stack_end = stack_end;
  thread.budget = NULL;
  thread.pages = NULL;
  thread.begin_ns = capture->begin_ns;
  /* Who looks at another thread does so by its own clock. */
  bool by_other = by_helper || stackd_target_is_other();
  thread.begin_cpu_ns = by_other ? stackd_clock_ns(CLOCK_THREAD_CPUTIME_ID) : capture->cpu_ns;
  return stackd_managed_write(writer, &thread, words);
}

/* Nothing points into a stack that is not copied. */
__attribute__((noinline)) STACKD_HANDLER static void fill_without_stack(const struct stackd_capture* capture,
                                                                        struct stackd_thread_record* record) {
  struct stackd_interval none = {0, 0};
  struct stackd_filter filter;
  stackd_filter_init(&filter, capture->ranges, none, none);
  fill(capture, &filter, record);
}

/* Fills in `record`, which `writer` has begun. `*next`, if not NULL, is set to its slot before anything is read that may
 * fault. False if slots ran out. */
STACKD_HANDLER static bool copy_plan_write(const struct copy_plan* plan, const struct stackd_capture* capture,
                                           struct stackd_ring_writer* writer, struct stackd_thread_record* record,
                                           uint32_t* next) {
  struct stackd_filter filter;
  stackd_filter_init(&filter, capture->ranges, plan->both_ends ? plan->whole : plan->inner, plan->outer);
  fill(capture, &filter, record);
  if (next != NULL) __atomic_store_n(next, writer->first_slot, __ATOMIC_RELEASE);

  struct copied copied;
  bool complete = copy_planned(capture, plan, &filter, writer, &copied);
  if (!complete && capture->crash_slots == 0) return false;
  if (!complete) copied.flags |= STACKD_THREAD_TRUNCATED;
  if (copied.inner.stack_words == 0) {
    copied.flags |= STACKD_THREAD_NO_STACK;
    fill_without_stack(capture, record);
  }
  record->flags = copied.flags;
  record->stack_base = plan->inner.start;
  record->stack_words = copied.inner.stack_words;
  record->payload_words = copied.inner.payload_words + copied.outer.payload_words;
  record->outer_base = copied.outer_base;
  record->outer_words = copied.outer.stack_words;
  complete = write_managed(capture, plan->whole.end, writer, &record->managed_words);
  if (!complete && capture->crash_slots == 0) return false;
  uint64_t elapsed_ns = stackd_clock_ns(CLOCK_MONOTONIC) - capture->begin_ns;
  record->handler_ns = elapsed_ns < UINT32_MAX ? (uint32_t)elapsed_ns : UINT32_MAX;
  return true;
}

int stackd_capture_begin(const struct stackd_capture* capture, struct stackd_ring_writer* writer) {
  struct stackd_thread_record* record =
      stackd_ring_begin(writer, capture->ring, STACKD_RECORD_THREAD, sizeof(struct stackd_thread_record), capture->tid);
  if (record == NULL) {
    stackd_ring_count_drop(capture->ring, STACKD_DROP_NO_SLOT);
    return -ENOSPC;
  }
  struct copy_plan plan = plan_copy(capture);
  if (!copy_plan_write(&plan, capture, writer, record, NULL)) {
    /* The helper asks again when there is room: a whole stack later is better than half of one now. */
    stackd_ring_abandon(writer);
    stackd_ring_count_drop(capture->ring, STACKD_DROP_NO_SLOT);
    return -ENOSPC;
  }
  return 0;
}

int stackd_capture_write(const struct stackd_capture* capture) {
  struct stackd_ring_writer writer;
  int error = stackd_capture_begin(capture, &writer);
  if (error == 0) stackd_ring_commit(&writer);
  return error;
}

void stackd_capture_write_crash(const struct stackd_capture* capture, uint32_t* next) {
  struct stackd_ring_writer writer;
  struct stackd_thread_record* record = stackd_ring_begin_crash(&writer, capture->ring, STACKD_RECORD_THREAD,
                                                                sizeof(struct stackd_thread_record), capture->crash_slots);
  if (record == NULL) return;
  struct copy_plan plan = plan_copy(capture);
  copy_plan_write(&plan, capture, &writer, record, next);
}

void stackd_capture_write_registers(const struct stackd_capture* capture, uint32_t* next) {
  struct stackd_ring_writer writer;
  struct stackd_thread_record* record =
      stackd_ring_begin_crash(&writer, capture->ring, STACKD_RECORD_THREAD, sizeof(struct stackd_thread_record), 1);
  if (record == NULL) return;
  fill_without_stack(capture, record);
  __atomic_store_n(next, writer.first_slot, __ATOMIC_RELEASE);
}
