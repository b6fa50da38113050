#include "agent/ring/ring_writer.h"

bool stackd_ring_attach(struct stackd_ring* ring, void* memory, uint64_t size_bytes) {
  if (size_bytes < STACKD_HEADER_BYTES + STACKD_SLOT_BYTES) return false;
  const struct stackd_ring_header* header = memory;
  if (header->magic != STACKD_RING_MAGIC || header->abi_version != STACKD_ABI_VERSION ||
      header->header_bytes != STACKD_HEADER_BYTES || header->slot_bytes != STACKD_SLOT_BYTES) {
    return false;
  }
  /* Once each: the daemon may write to them meanwhile. */
  uint32_t slots = __atomic_load_n(&header->slot_count, __ATOMIC_RELAXED);
  uint32_t crash_slots = __atomic_load_n(&header->crash_slot_count, __ATOMIC_RELAXED);
  if (slots > STACKD_MAX_SLOTS || crash_slots >= slots) return false;
  if (size_bytes < STACKD_HEADER_BYTES + (uint64_t)slots * STACKD_SLOT_BYTES) return false;
  ring->header = memory;
  ring->slot_count = slots;
  ring->live_slot_count = slots - crash_slots;
  return true;
}

/* The bits of word `index` that are slots in [first, end). */
STACKD_HANDLER_INLINE uint64_t part_bits(uint32_t index, uint32_t first, uint32_t end) {
  uint64_t bits = ~0ull;
  uint32_t low = index * 64;
  if (low + 64 <= first || low >= end) return 0;
  if (low < first) bits &= ~0ull << (first - low);
  if (low + 64 > end) bits &= (1ull << (end - low)) - 1;
  return bits;
}

STACKD_HANDLER static uint32_t claim(struct stackd_ring_writer* writer, uint32_t hint) {
  if (writer->slots_left == 0) return STACKD_NO_SLOT;
  const struct stackd_ring* ring = writer->ring;
  uint32_t first = writer->in_crash_part ? ring->live_slot_count : 0;
  uint32_t end = writer->in_crash_part ? ring->slot_count : ring->live_slot_count;
  uint32_t words = (end + 63) / 64;
  /* Two rounds: a slot freed behind us in the first is found in the second. More would be waiting. */
  for (uint32_t i = 0; i < 2 * words; i++) {
    uint32_t index = (hint + i) % words;
    uint64_t* word = &ring->header->free[index];
    uint64_t part = part_bits(index, first, end);
    uint64_t candidates = __atomic_load_n(word, __ATOMIC_RELAXED) & part;
    while (candidates != 0) {
      uint64_t bit = candidates & -candidates;
      uint64_t before = __atomic_fetch_and(word, ~bit, __ATOMIC_ACQUIRE);
      if (before & bit) {
        writer->slots_left--;
        return index * 64 + (uint32_t)__builtin_ctzll(bit);
      }
      candidates = before & (candidates - 1) & part;
    }
  }
  return STACKD_NO_SLOT;
}

STACKD_HANDLER static void* begin(struct stackd_ring_writer* writer, uint32_t kind, uint32_t fixed_bytes, uint32_t hint) {
  uint32_t slot = claim(writer, hint);
  if (slot == STACKD_NO_SLOT) return NULL;
  writer->first_slot = slot;
  writer->slot = slot;
  writer->position_bytes = fixed_bytes;
  struct stackd_slot_header* header = stackd_slot(writer->ring, slot);
  header->next = STACKD_NO_SLOT;
  header->kind = kind;
  return header;
}

void* stackd_ring_begin(struct stackd_ring_writer* writer, const struct stackd_ring* ring, uint32_t kind,
                        uint32_t fixed_bytes, uint32_t hint) {
  writer->ring = ring;
  writer->in_crash_part = false;
  writer->slots_left = ring->live_slot_count;
  return begin(writer, kind, fixed_bytes, hint);
}

void* stackd_ring_begin_crash(struct stackd_ring_writer* writer, const struct stackd_ring* ring, uint32_t kind,
                              uint32_t fixed_bytes, uint32_t max_slots) {
  writer->ring = ring;
  writer->in_crash_part = true;
  writer->slots_left = max_slots;
  return begin(writer, kind, fixed_bytes, ring->live_slot_count / 64);
}

bool stackd_ring_append(struct stackd_ring_writer* writer, const uint64_t* words, uint32_t count) {
  for (uint32_t done = 0; done < count;) {
    struct stackd_slot_header* header = stackd_slot(writer->ring, writer->slot);
    uint32_t room = (STACKD_SLOT_BYTES - writer->position_bytes) / 8;
    if (room == 0) {
      uint32_t next = claim(writer, writer->slot / 64);
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

STACKD_HANDLER static uint32_t count_free(const struct stackd_ring* ring, uint32_t first, uint32_t end) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < STACKD_BITMAP_WORDS; i++) {
    uint64_t bits = __atomic_load_n(&ring->header->free[i], __ATOMIC_RELAXED) & part_bits(i, first, end);
    /* Not __builtin_popcountll: without -mpopcnt that is a call into libgcc. */
    for (; bits != 0; bits &= bits - 1) count++;
  }
  return count;
}

uint32_t stackd_ring_free_slots(const struct stackd_ring* ring) { return count_free(ring, 0, ring->live_slot_count); }

uint32_t stackd_ring_free_crash_slots(const struct stackd_ring* ring) {
  return count_free(ring, ring->live_slot_count, ring->slot_count);
}
