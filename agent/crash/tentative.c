#include "agent/crash/tentative.h"

#include "agent/sys/fork_reset.h"

#define INTERVAL_NS 100000000ull
#define MIN_SLOTS 4

static uint64_t last_ns;
static STACKD_AT_FORK uint32_t known; /* to active faults; each process looks at it as it ends */

bool stackd_tentative_is_any(void) { return __atomic_load_n(&known, __ATOMIC_RELAXED) != 0; }

STACKD_HANDLER static bool is_due(uint64_t now_ns) {
  uint64_t before = __atomic_load_n(&last_ns, __ATOMIC_RELAXED);
  return now_ns - before >= INTERVAL_NS &&
         __atomic_compare_exchange_n(&last_ns, &before, now_ns, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

STACKD_HANDLER static void give_back(const struct stackd_ring* ring, uint32_t first_slot) {
  struct stackd_ring_writer writer;
  writer.ring = ring;
  writer.first_slot = first_slot;
  stackd_ring_abandon(&writer);
}

/* Empties a place of the list that holds `value`. */
STACKD_HANDLER static bool empty_place(const struct stackd_ring* ring, uint32_t place, uint32_t value) {
  if (!__atomic_compare_exchange_n(&ring->header->tentative[place], &value, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    return false;
  }
  give_back(ring, value - 1);
  return true;
}

/* Takes back what is too old to count: its handler was left without a word to the agent. */
STACKD_HANDLER static void expire(const struct stackd_ring* ring, uint64_t now_ns) {
  for (uint32_t place = 0; place < STACKD_MAX_TENTATIVE; place++) {
    uint32_t value = __atomic_load_n(&ring->header->tentative[place], __ATOMIC_ACQUIRE);
    if (value == 0 || value > ring->slot_count) continue;
    const struct stackd_crash_record* record = stackd_slot(ring, value - 1);
    if (now_ns - record->time_ns > STACKD_TENTATIVE_NS) empty_place(ring, place, value);
  }
}

void stackd_tentative_write(const struct stackd_ring* ring, const struct stackd_fault* fault,
                            struct stackd_active_fault* active) {
  uint64_t now_ns = stackd_clock_ns(CLOCK_MONOTONIC);
  if (!is_due(now_ns)) return;
  expire(ring, now_ns);
  /* Half of what is free, so that a crash finds room whatever recovers meanwhile. */
  uint32_t slots = stackd_ring_free_crash_slots(ring) / 2;
  if (slots < MIN_SLOTS) return;
  uint32_t first_slot = STACKD_NO_SLOT;
  /* Not the maps: they may be long, and the program has work to do. */
  struct stackd_crash_sources sources = {.maps_fd = -1, .by_kernel_only = true};
  stackd_crash_record_write(ring, slots, fault, sources, &first_slot);
  if (first_slot == STACKD_NO_SLOT) return;
  for (uint32_t place = 0; place < STACKD_MAX_TENTATIVE; place++) {
    uint32_t none = 0;
    if (!__atomic_compare_exchange_n(&ring->header->tentative[place], &none, first_slot + 1, 0, __ATOMIC_RELEASE,
                                     __ATOMIC_RELAXED)) {
      continue;
    }
    active->record_slot = first_slot;
    active->record_place = place;
    __atomic_fetch_add(&known, 1, __ATOMIC_RELAXED);
    active->record_id = ((const struct stackd_crash_record*)stackd_slot(ring, first_slot))->id[0];
    return;
  }
  give_back(ring, first_slot);
}

void stackd_tentative_withdraw(const struct stackd_ring* ring, struct stackd_active_fault* active) {
  if (active->record_id == 0) return;
  /* The ring may be another daemon's by now. */
  if (active->record_slot < ring->slot_count) {
    const struct stackd_crash_record* record = stackd_slot(ring, active->record_slot);
    if (record->id[0] == active->record_id) empty_place(ring, active->record_place, active->record_slot + 1);
  }
  active->record_id = 0;
  __atomic_fetch_sub(&known, 1, __ATOMIC_RELAXED);
}

void stackd_tentative_withdraw_all(const struct stackd_ring* ring) {
  for (uint32_t place = 0; place < STACKD_MAX_TENTATIVE; place++) {
    uint32_t value = __atomic_load_n(&ring->header->tentative[place], __ATOMIC_ACQUIRE);
    if (value != 0 && value <= ring->slot_count) empty_place(ring, place, value);
  }
}
