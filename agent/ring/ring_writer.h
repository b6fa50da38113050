/* Writes one record into the ring (ring_abi.h): claims slots as it goes, and makes the record visible as a whole or not at
 * all.
 *
 * SIGNAL-SAFE, any number of threads at a time, each with a writer of its own on its stack. Blocks never: a claim is a
 * bounded number of atomic operations.
 */
#ifndef STACKD_RING_WRITER_H_
#define STACKD_RING_WRITER_H_

#include <stdbool.h>
#include <stdint.h>

#include "agent/sys/syscalls.h"
#include "stackd/ring_abi.h"

/* The ring as this process has it mapped. The sizes are copies, checked when it was mapped. */
struct stackd_ring {
  struct stackd_ring_header* header;
  uint32_t slot_count;
  uint32_t live_slot_count; /* slots that live dumps may use */
};

struct stackd_ring_writer {
  const struct stackd_ring* ring;
  bool in_crash_part;
  uint32_t slots_left; /* it claims no more than so many */
  uint32_t first_slot;
  uint32_t slot;
  uint32_t position_bytes; /* in `slot` */
};

/* Checks a mapping of `size_bytes` that the daemon handed over. False if it is not a ring of this version. */
bool stackd_ring_attach(struct stackd_ring* ring, void* memory, uint64_t size_bytes);

static inline void* stackd_slot(const struct stackd_ring* ring, uint32_t slot) {
  return (char*)ring->header + STACKD_HEADER_BYTES + (uint64_t)slot * STACKD_SLOT_BYTES;
}

/* Claims the first slot of a record whose fixed part has `fixed_bytes` (at most a slot). Returns where that goes, or NULL
 * if no slot is free. `hint` spreads threads over the slots. */
void* stackd_ring_begin(struct stackd_ring_writer* writer, const struct stackd_ring* ring, uint32_t kind,
                        uint32_t fixed_bytes, uint32_t hint) STACKD_HANDLER;

/* Like stackd_ring_begin(), in the part that is kept for crashes, with at most `max_slots` slots. */
void* stackd_ring_begin_crash(struct stackd_ring_writer* writer, const struct stackd_ring* ring, uint32_t kind,
                              uint32_t fixed_bytes, uint32_t max_slots) STACKD_HANDLER;

/* Appends words to the record. False if slots ran out: what was appended before stays. */
bool stackd_ring_append(struct stackd_ring_writer* writer, const uint64_t* words, uint32_t count) STACKD_HANDLER;

/* Whether `count` more words fit into the slot that the record is in. */
static inline bool stackd_ring_fits(const struct stackd_ring_writer* writer, uint32_t count) {
  return (STACKD_SLOT_BYTES - writer->position_bytes) / 8 >= count;
}

/* Makes the record visible. The reader looks by itself every some hundred microseconds while a dump runs: no thread pays
 * for a wake call. */
void stackd_ring_commit(struct stackd_ring_writer* writer) STACKD_HANDLER;

/* Gives all slots of the record back. */
void stackd_ring_abandon(struct stackd_ring_writer* writer) STACKD_HANDLER;

/* Wakes the reader if it sleeps. */
void stackd_ring_doorbell(const struct stackd_ring* ring) STACKD_HANDLER;

/* Adds one to header.dropped[reason]. */
void stackd_ring_count_drop(const struct stackd_ring* ring, enum stackd_drop_reason reason) STACKD_HANDLER;

/* Slots that live dumps could claim now, and those that a crash could. */
uint32_t stackd_ring_free_slots(const struct stackd_ring* ring) STACKD_HANDLER;
uint32_t stackd_ring_free_crash_slots(const struct stackd_ring* ring) STACKD_HANDLER;

#endif /* STACKD_RING_WRITER_H_ */
