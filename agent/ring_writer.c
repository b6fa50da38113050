#include "agent/ring_writer.h"

bool stackd_ring_attach(struct stackd_ring* ring, void* memory, uint64_t size_bytes) {
  if (size_bytes < STACKD_HEADER_BYTES + STACKD_SLOT_BYTES) return false;
  const struct stackd_ring_header* header = memory;
  if (header->magic != STACKD_RING_MAGIC || header->abi_version != STACKD_ABI_VERSION ||
      header->header_bytes != STACKD_HEADER_BYTES || header->slot_bytes != STACKD_SLOT_BYTES) {
    return false;
  }
  uint32_t slots = header->slot_count;
  uint32_t crash_slots = header->crash_slot_count;
  if (slots > STACKD_MAX_SLOTS || crash_slots >= slots) return false;
  if (size_bytes < STACKD_HEADER_BYTES + (uint64_t)slots * STACKD_SLOT_BYTES) return false;
  ring->header = memory;
  ring->slot_count = slots;
  ring->live_slot_count = slots - crash_slots;
  return true;
}

/* The bits of word `index` that are slots of live dumps. */
STACKD_HANDLER_INLINE uint64_t live_bits(const struct stackd_ring* ring, uint32_t index) {
  uint32_t first = index * 64;
  if (first + 64 <= ring->live_slot_count) return ~0ull;
  return first < ring->live_slot_count ? (1ull << (ring->live_slot_count - first)) - 1 : 0;
}

STACKD_HANDLER static uint32_t claim(const struct stackd_ring* ring, uint32_t hint) {
  uint32_t words = (ring->live_slot_count + 63) / 64;
  /* Two rounds: a slot freed behind us in the first is found in the second. More would be waiting. */
  for (uint32_t i = 0; i < 2 * words; i++) {
    uint32_t index = (hint + i) % words;
    uint64_t* word = &ring->header->free[index];
    uint64_t candidates = __atomic_load_n(word, __ATOMIC_RELAXED) & live_bits(ring, index);
    while (candidates != 0) {
      uint64_t bit = candidates & -candidates;
      uint64_t before = __atomic_fetch_and(word, ~bit, __ATOMIC_ACQUIRE);
      if (before & bit) return index * 64 + (uint32_t)__builtin_ctzll(bit);
      candidates = before & (candidates - 1) & live_bits(ring, index);
    }
  }
  return STACKD_NO_SLOT;
}

void* stackd_ring_begin(struct stackd_ring_writer* writer, const struct stackd_ring* ring, uint32_t kind,
                        uint32_t fixed_bytes, uint32_t hint) {
  uint32_t slot = claim(ring, hint);
  if (slot == STACKD_NO_SLOT) return NULL;
  writer->ring = ring;
  writer->first_slot = slot;
  writer->slot = slot;
  writer->position_bytes = fixed_bytes;
  struct stackd_slot_header* header = stackd_slot(ring, slot);
  header->next = STACKD_NO_SLOT;
  header->kind = kind;
  return header;
}

bool stackd_ring_append(struct stackd_ring_writer* writer, const uint64_t* words, uint32_t count) {
  for (uint32_t done = 0; done < count;) {
    struct stackd_slot_header* header = stackd_slot(writer->ring, writer->slot);
    uint32_t room = (STACKD_SLOT_BYTES - writer->position_bytes) / 8;
    if (room == 0) {
      uint32_t next = claim(writer->ring, writer->slot / 64);
      if (next == STACKD_NO_SLOT) return false;
      struct stackd_slot_header* next_header = stackd_slot(writer->ring, next);
      next_header->next = STACKD_NO_SLOT;
      next_header->kind = 0;
      header->next = next;
      writer->slot = next;
      writer->position_bytes = sizeof(*next_header);
      continue;
    }
    uint64_t* out = (uint64_t*)((char*)header + writer->position_bytes);
    uint32_t n = count - done < room ? count - done : room;
    for (uint32_t i = 0; i < n; i++) out[i] = words[done + i];
    writer->position_bytes += 8 * n;
    done += n;
  }
  return true;
}

void stackd_ring_doorbell(const struct stackd_ring* ring) {
  /* Sequentially consistent on both sides: either the reader sees the new value before it sleeps, or we see it asleep. */
  __atomic_fetch_add(&ring->header->doorbell, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&ring->header->reader_sleeping, __ATOMIC_SEQ_CST) != 0) {
    stackd_futex_wake(&ring->header->doorbell, 0);
  }
}

void stackd_ring_commit(struct stackd_ring_writer* writer) {
  uint32_t slot = writer->first_slot;
  __atomic_fetch_or(&writer->ring->header->ready[slot / 64], 1ull << (slot % 64), __ATOMIC_RELEASE);
}

void stackd_ring_abandon(struct stackd_ring_writer* writer) {
  uint32_t slot = writer->first_slot;
  /* The chain is ours, but it lies in shared memory: bounded all the same. */
  for (uint32_t i = 0; i < writer->ring->slot_count && slot < writer->ring->slot_count; i++) {
    struct stackd_slot_header* header = stackd_slot(writer->ring, slot);
    uint32_t next = header->next;
    __atomic_fetch_or(&writer->ring->header->free[slot / 64], 1ull << (slot % 64), __ATOMIC_RELEASE);
    slot = next;
  }
}

void stackd_ring_count_drop(const struct stackd_ring* ring, enum stackd_drop_reason reason) {
  __atomic_fetch_add(&ring->header->dropped[reason], 1, __ATOMIC_RELAXED);
}

uint32_t stackd_ring_free_slots(const struct stackd_ring* ring) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < STACKD_BITMAP_WORDS; i++) {
    uint64_t bits = __atomic_load_n(&ring->header->free[i], __ATOMIC_RELAXED) & live_bits(ring, i);
    /* Not __builtin_popcountll: without -mpopcnt that is a call into libgcc. */
    for (; bits != 0; bits &= bits - 1) count++;
  }
  return count;
}
