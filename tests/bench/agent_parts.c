/* The two inner parts of a dump handler by themselves: the pointer filter and the ring.
 *
 * Prints "AVX2 SCALAR MEMCPY RING". The first three are ns per KiB of a 4 KiB stack, a fifth of it pointers, by the
 * filter's two variants and by memcpy. RING is ns to claim a record of two slots, commit it and free it again, without
 * copying. AVX2 is 0 where the CPU lacks it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/capture/pointer_filter.h"
#include "agent/maps/code_ranges.h"
#include "agent/ring/ring_writer.h"
#include "stackd/ring_abi.h"

#define STACK_WORDS 512
/* The fastest of many short batches: a longer one would hold what else the machine does. */
#define BATCHES 400
#define ROUNDS 50
#define RING_BYTES (1u << 20)

static uint64_t stack[STACK_WORDS];
static uint64_t out[STACK_WORDS + STACKD_FILTER_OUT_WORDS];

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void fill_stack(void) {
  for (size_t i = 0; i < STACK_WORDS; i++) {
    stack[i] = i * 0x9e3779b97f4a7c15u;
    if (i % 10 == 0) stack[i] = (uint64_t)(uintptr_t)&stack[i];
    if (i % 10 == 5) stack[i] = (uint64_t)(uintptr_t)&fill_stack;
  }
}

/* Evaluates to the ns that one execution of `body` takes. */
#define MEASURE(body)                                 \
  ({                                                  \
    uint64_t best_ns = UINT64_MAX;                    \
    for (int batch = 0; batch < BATCHES; batch++) {   \
      uint64_t begin_ns = now_ns();                   \
      for (int round = 0; round < ROUNDS; round++) {  \
        body;                                         \
        __asm__ volatile("" : : "r"(out) : "memory"); \
      }                                               \
      uint64_t took_ns = now_ns() - begin_ns;         \
      if (took_ns < best_ns) best_ns = took_ns;       \
    }                                                 \
    (double)best_ns / ROUNDS;                         \
  })

#define STACK_KIB (sizeof(stack) / 1024.0)

static void filter_stack(stackd_filter_fn* filter_fn, const struct stackd_filter* filter) {
  for (size_t i = 0; i < STACK_WORDS; i += STACKD_FILTER_WORDS) {
    uint64_t mask = filter_fn(filter, stack + i, STACKD_FILTER_WORDS, out + i);
    __asm__ volatile("" : : "r"(mask));
  }
}

static void attach(struct stackd_ring* ring) {
  struct stackd_ring_header* header = aligned_alloc(4096, RING_BYTES);
  memset(header, 0, RING_BYTES);
  header->magic = STACKD_RING_MAGIC;
  header->abi_version = STACKD_ABI_VERSION;
  header->header_bytes = STACKD_HEADER_BYTES;
  header->slot_bytes = STACKD_SLOT_BYTES;
  header->slot_count = (RING_BYTES - STACKD_HEADER_BYTES) / STACKD_SLOT_BYTES;
  for (uint32_t slot = 0; slot < header->slot_count; slot++) header->free[slot / 64] |= 1ull << (slot % 64);
  if (!stackd_ring_attach(ring, header, RING_BYTES)) exit(1);
}

/* As the reader does it. */
static void free_record(struct stackd_ring_header* header, uint32_t slot, const struct stackd_ring* ring) {
  __atomic_fetch_and(&header->ready[slot / 64], ~(1ull << (slot % 64)), __ATOMIC_ACQUIRE);
  while (slot != STACKD_NO_SLOT) {
    uint32_t next = ((struct stackd_slot_header*)stackd_slot(ring, slot))->next;
    __atomic_fetch_or(&header->free[slot / 64], 1ull << (slot % 64), __ATOMIC_RELEASE);
    slot = next;
  }
}

static void write_record(const struct stackd_ring* ring, uint32_t words) {
  struct stackd_ring_writer writer;
  if (stackd_ring_begin(&writer, ring, STACKD_RECORD_THREAD, sizeof(struct stackd_thread_record), 1234) == NULL) exit(1);
  if (!stackd_ring_append(&writer, stack, words)) exit(1);
  uint32_t first = writer.first_slot;
  stackd_ring_commit(&writer);
  free_record(ring->header, first, ring);
}

int main(void) {
  fill_stack();
  struct stackd_code_ranges ranges;
  memset(&ranges, 0, sizeof ranges);
  uint64_t code = (uint64_t)(uintptr_t)&fill_stack;
  ranges.code[0] = (struct stackd_interval){code - 0x10000, code + 0x10000};
  for (int i = 1; i < STACKD_CODE_INTERVALS; i++) {
    ranges.code[i] = (struct stackd_interval){(uint64_t)i << 44, ((uint64_t)i << 44) + (64 << 20)};
  }
  struct stackd_filter filter;
  stackd_filter_init(&filter, &ranges,
                     (struct stackd_interval){(uint64_t)(uintptr_t)stack, (uint64_t)(uintptr_t)(stack + STACK_WORDS)},
                     (struct stackd_interval){0, 0});
  int has_avx2 = stackd_filter_choose() == stackd_filter_avx2;
  double avx2_ns = has_avx2 ? MEASURE(filter_stack(stackd_filter_avx2, &filter)) : 0;
  double scalar_ns = MEASURE(filter_stack(stackd_filter_scalar, &filter));
  double memcpy_ns = MEASURE(memcpy(out, stack, sizeof(stack)));
  struct stackd_ring ring;
  attach(&ring);
  /* Just more than the first slot holds. */
  uint32_t words = STACKD_SLOT_BYTES / 8 - 20;
  double ring_ns = MEASURE(write_record(&ring, words)) - MEASURE(memcpy(out, stack, words * 8));
  printf("%.1f %.1f %.1f %.1f\n", avx2_ns / STACK_KIB, scalar_ns / STACK_KIB, memcpy_ns / STACK_KIB, ring_ns);
  return 0;
}
