#include "agent/runtimes/runtimes.h"

#include <stddef.h>

#include "agent/maps/loaded_object.h"
#include "agent/runtimes/cpython/cpython.h"
#include "agent/runtimes/go/go.h"
#include "agent/runtimes/hotspot/hotspot.h"
#include "agent/runtimes/php/php.h"
#include "agent/runtimes/ruby/ruby.h"
#include "agent/runtimes/v8/v8.h"

/* 64 KiB: some hundred frames and their functions' names. */
#define MAX_CRASH_SLOTS 32u
/* Some hundred times what a thread of ten or twenty frames takes. */
#define CPU_BUDGET_NS 20000000ull
#define WALL_BUDGET_NS 250000000ull
/* For the entry that says that others are missing. */
#define LAST_WORDS (sizeof(struct stackd_managed_runtime) / 8)
#define WORDS_IN_SLOT ((STACKD_SLOT_BYTES - sizeof(struct stackd_slot_header)) / 8)

/* The runtimes that there are: a line in each of the two functions. (Direct calls: what a handler can reach is proved on
 * the linked library.) */

static void find_in(const struct stackd_loaded_object* object) {
  stackd_cpython_find(object);
  stackd_v8_find(object);
  stackd_hotspot_find(object);
  stackd_go_find(object);
  stackd_php_find(object);
  stackd_ruby_find(object);
}

void stackd_managed_prepare(void) { stackd_v8_prepare(); }

void stackd_managed_find_runtimes(int maps_fd) {
  stackd_managed_begin_look();
  stackd_loaded_objects(maps_fd, find_in);
}

bool stackd_runtimes_need_memory(void) { return stackd_managed_needs_memory() || stackd_go_is_here(); }

bool stackd_runtimes_have_uninterruptible(void) { return stackd_hotspot_has_accept(); }

uint64_t stackd_runtimes_must_not_interrupt(const struct stackd_syscall* call, uint64_t rsp) {
  return stackd_hotspot_frame_below_accept(call, rsp);
}

bool stackd_runtimes_are_read_after_dump(void) { return stackd_hotspot_is_here(); }

uint32_t stackd_managed_crash_slots(uint32_t slots) {
  if (!stackd_managed_any_found()) return 0;
  return slots / 4 < MAX_CRASH_SLOTS ? slots / 4 : MAX_CRASH_SLOTS;
}

bool stackd_managed_write(struct stackd_ring_writer* ring, struct stackd_managed_thread* thread, uint32_t* words) {
  *words = 0;
  if (!stackd_managed_any_found()) return true;
  /* A walker that sees the end come says so; one that meets it cannot. */
  uint64_t room = (uint64_t)ring->slots_left * WORDS_IN_SLOT;
  uint32_t limit = room < STACKD_MAX_MANAGED_WORDS ? (uint32_t)room : STACKD_MAX_MANAGED_WORDS;
  if (limit < LAST_WORDS) return true;
  struct stackd_managed_writer writer;
  writer.ring = ring;
  writer.words_left = limit - LAST_WORDS;
  writer.full = false;
  writer.ring_full = false;
  writer.words = 0;
  writer.last.runtime = 0;
  struct stackd_managed_budget budget;
  budget.reads = 0;
  budget.spent = false;
  budget.cpu_deadline_ns = thread->begin_cpu_ns + CPU_BUDGET_NS;
  budget.wall_deadline_ns = thread->begin_ns + WALL_BUDGET_NS;
  thread->budget = &budget;
  thread->pages = stackd_page_copies_take();
  stackd_cpython_walk(&writer, thread);
  stackd_v8_walk(&writer, thread);
  stackd_hotspot_walk(&writer, thread);
  stackd_php_walk(&writer, thread);
  stackd_ruby_walk(&writer, thread);
  if (thread->pages != NULL) stackd_page_copies_give_back(thread->pages);
  stackd_managed_say_what_is_missing(&writer, &budget);
  *words = writer.words;
  return !writer.ring_full;
}
