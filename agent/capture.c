#include "agent/capture.h"

#include <errno.h>
#include <stdbool.h>

#define RED_ZONE_BYTES 128
#define CHUNK_WORDS 256 /* 2 KiB on the stack of the interrupted thread */
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

STACKD_HANDLER static struct span choose_span(const struct stackd_capture* capture) {
  uint64_t rsp = capture->regs[STACKD_REG_RSP];
  uint64_t start = (rsp - RED_ZONE_BYTES) & ~7ull;
  struct stackd_interval mapping = {0, 0};
  if (capture->ranges != NULL) {
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

/* Reads as much as can be read of [address, address + size_bytes); returns the bytes, a multiple of 8. */
STACKD_HANDLER static uint32_t read_chunk(const struct stackd_capture* capture, uint64_t address, uint64_t* out,
                                          uint32_t size_bytes) {
  long got = stackd_read_memory(capture->pid, address, out, size_bytes);
  if (got >= 0) return (uint32_t)got & ~7u;
  if (got != -EPERM && got != -ENOSYS) return 0;
  /* A seccomp policy forbids the call. The mapping was there when the helper looked last, and threads do not unmap the
   * stack they run on. */
  if (capture->ranges == NULL) return 0;
  struct stackd_interval mapping = stackd_writable_mapping(capture->ranges, address);
  if (mapping.end <= address) return 0;
  uint64_t available = mapping.end - address;
  if (available < size_bytes) size_bytes = (uint32_t)available & ~7u;
  const volatile uint64_t* words = (const volatile uint64_t*)address;
  for (uint32_t i = 0; i < size_bytes / 8; i++) out[i] = words[i];
  return size_bytes;
}

/* Where a copy stands; kept out of the record until the end, since that is shared memory. */
struct progress {
  uint32_t stack_words;
  uint32_t payload_words;
  uint32_t flags;
};

/* False if slots ran out. */
STACKD_HANDLER static bool copy_stack(const struct stackd_capture* capture, const struct stackd_filter* filter,
                                      const struct span* span, struct stackd_ring_writer* writer,
                                      struct progress* progress) {
  uint64_t chunk[CHUNK_WORDS];
  uint64_t block[1 + STACKD_FILTER_OUT_WORDS];
  for (uint64_t address = span->start; address < span->end;) {
    uint64_t left = span->end - address;
    uint32_t want = left < sizeof(chunk) ? (uint32_t)left : (uint32_t)sizeof(chunk);
    uint32_t got = read_chunk(capture, address, chunk, want);
    for (uint32_t i = 0; i < got / 8; i += STACKD_FILTER_WORDS) {
      uint32_t count = got / 8 - i < STACKD_FILTER_WORDS ? got / 8 - i : STACKD_FILTER_WORDS;
      uint64_t mask = capture->filter(filter, chunk + i, count, block + 1);
      block[0] = mask;
      uint32_t words = 1;
      for (; mask != 0; mask &= mask - 1) words++;
      if (!stackd_ring_append(writer, block, words)) return false;
      progress->stack_words += count;
      progress->payload_words += words;
    }
    address += got;
    if (got < want) return true; /* the mapping ends here */
  }
  return true;
}

int stackd_capture_write(const struct stackd_capture* capture) {
  struct stackd_ring_writer writer;
  struct stackd_thread_record* record =
      stackd_ring_begin(&writer, capture->ring, STACKD_RECORD_THREAD, sizeof(struct stackd_thread_record), capture->tid);
  if (record == NULL) {
    stackd_ring_count_drop(capture->ring, STACKD_DROP_NO_SLOT);
    return -ENOSPC;
  }

  struct progress progress = {0, 0, capture->flags};
  struct span span = choose_span(capture);
  if (span.end < span.start) span.end = span.start; /* rsp is at an end of the address space */
  if (span.end - span.start > capture->max_stack_bytes) {
    span.end = span.start + capture->max_stack_bytes;
    progress.flags |= STACKD_THREAD_TRUNCATED;
  }
  if (span.foreign) {
    /* What follows a fiber's stack may be the heap: a copy that was cut there was cut after its root. */
    progress.flags |= STACKD_THREAD_FOREIGN_SP;
    progress.flags &= ~(uint32_t)STACKD_THREAD_TRUNCATED;
  }
  struct stackd_filter filter;
  stackd_filter_init(&filter, capture->ranges, (struct stackd_interval){span.start, span.end});
  if (!copy_stack(capture, &filter, &span, &writer, &progress)) {
    /* The helper asks again when there is room: a whole stack later is better than half of one now. */
    stackd_ring_abandon(&writer);
    stackd_ring_count_drop(capture->ring, STACKD_DROP_NO_SLOT);
    return -ENOSPC;
  }
  if (progress.stack_words == 0) {
    progress.flags |= STACKD_THREAD_NO_STACK;
    stackd_filter_init(&filter, capture->ranges, (struct stackd_interval){0, 0}); /* nothing points into it */
  }

  record->seq = capture->seq;
  record->tid = capture->tid;
  record->flags = progress.flags;
  record->time_ns = capture->begin_ns;
  record->cpu_ns = capture->cpu_ns;
  record->thread_self = capture->thread_self;
  for (int i = 0; i < 16; i++) record->name[i] = capture->name[i];
  for (int i = 0; i < STACKD_REGISTERS; i++) {
    uint64_t value = capture->regs[i];
    bool keep = i == STACKD_REG_RIP || i == STACKD_REG_RSP || stackd_filter_keeps(&filter, value);
    record->regs[i] = keep ? value : 0;
  }
  record->stack_base = span.start;
  record->stack_words = progress.stack_words;
  record->payload_words = progress.payload_words;
  uint64_t elapsed_ns = stackd_clock_ns(CLOCK_MONOTONIC) - capture->begin_ns;
  record->handler_ns = elapsed_ns < UINT32_MAX ? (uint32_t)elapsed_ns : UINT32_MAX;
  stackd_ring_commit(&writer);
  return 0;
}
