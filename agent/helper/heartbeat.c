#include "agent/helper/heartbeat.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/helper/life.h"
#include "agent/helper/process.h"
#include "agent/sys/fork_reset.h"
#include "agent/sys/kernel.h"
#include "agent/sys/lock.h"
#include "stackd/agent.h"

#define EXPORT __attribute__((visibility("default")))

#define PAGE_BYTES (STACKD_MAX_HEARTBEATS * sizeof(struct stackd_heartbeat_cell))
#define LEAST_LIMIT_MS 10u

/* Orders all but beats and suspensions, which come from any thread and from signal handlers. */
static struct stackd_lock lock;
static struct stackd_heartbeat_cell* cells; /* the page; NULL before the first heartbeat */
static struct stackd_heartbeat_cell* ring_cells;
static uint64_t taken; /* bit n: cell n */
static bool watches_forks;

/* What is given when all are taken. */
static struct stackd_heartbeat_cell unwatched;

/* `beats` when it was suspended. Beats go on from there: a loop that beats, works and suspends would otherwise show the
 * same number whenever the daemon looks. */
static uint64_t suspended_at[STACKD_MAX_HEARTBEATS + 1];

static uint64_t* suspended_at_of(const struct stackd_heartbeat_cell* cell) {
  if (cell == &unwatched) return &suspended_at[STACKD_MAX_HEARTBEATS];
  /* The page begins at a multiple of its size. */
  return &suspended_at[(uintptr_t)cell % PAGE_BYTES / sizeof(*cell)];
}

bool stackd_heartbeat_is_any(void) { return __atomic_load_n(&taken, __ATOMIC_RELAXED) != 0; }

static bool is_taken(unsigned index) { return (taken >> index & 1) != 0; }

/* --- The page --- */

/* MAP_SHARED, although no process shares it: only such a page can be mapped a second time. */
static struct stackd_heartbeat_cell* new_page(void) {
  return stackd_map(NULL, PAGE_BYTES, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1);
}

/* Maps the same memory at another address. */
static struct stackd_heartbeat_cell* map_again(struct stackd_heartbeat_cell* page) {
  return stackd_remap(page, 0, PAGE_BYTES, MREMAP_MAYMOVE, NULL);
}

/* Puts `page` where the cells are. Who beats meanwhile waits in the kernel. */
static bool put_in_place(struct stackd_heartbeat_cell* page) {
  return stackd_remap(page, PAGE_BYTES, PAGE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, cells) != NULL;
}

static void copy_cell(struct stackd_heartbeat_cell* to, const struct stackd_heartbeat_cell* from, uint64_t beats) {
  to->tid = from->tid;
  memcpy(to->name, from->name, sizeof(to->name));
  __atomic_store_n(&to->beats, beats, __ATOMIC_RELAXED);
  __atomic_store_n(&to->limit_ms, from->limit_ms, __ATOMIC_RELEASE);
}

/* Repeats on `cells` what was done to `before` after it was copied with these `beats`. */
static void catch_up(const struct stackd_heartbeat_cell* before, const uint64_t beats[STACKD_MAX_HEARTBEATS]) {
  for (unsigned i = 0; i < STACKD_MAX_HEARTBEATS; i++) {
    uint64_t last = __atomic_load_n(&before[i].beats, __ATOMIC_RELAXED);
    uint64_t copied = beats[i];
    if (last == copied) continue;
    __atomic_compare_exchange_n(&cells[i].beats, &copied, last, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  }
}

static void clear(struct stackd_heartbeat_cell* page) {
  for (unsigned i = 0; i < STACKD_MAX_HEARTBEATS; i++) __atomic_store_n(&page[i].limit_ms, 0, __ATOMIC_RELEASE);
}

static bool is_there(const void* page) { return stackd_is_readable((uint64_t)page); }

/* The kernel may have taken the former page away before it found that it cannot put the new one there. Maps a new page of
 * our own, with what the cells were in `before`, which is not watched any more. */
static void fill_hole(struct stackd_heartbeat_cell* before) {
  if (stackd_map(cells, PAGE_BYTES, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1) == NULL) return;
  for (unsigned i = 0; i < STACKD_MAX_HEARTBEATS; i++) {
    if (is_taken(i)) copy_cell(&cells[i], &before[i], __atomic_load_n(&before[i].beats, __ATOMIC_RELAXED));
  }
  clear(before);
}

/* `before` is the memory that the cells have now; `page` is to be that. False if it is not. */
static bool put_cells_in(struct stackd_heartbeat_cell* page, struct stackd_heartbeat_cell* before) {
  /* A ring's own mapping is left out of a fork. */
  if (stackd_advise(page, PAGE_BYTES, MADV_DOFORK) != 0) return false;
  uint64_t beats[STACKD_MAX_HEARTBEATS];
  for (unsigned i = 0; i < STACKD_MAX_HEARTBEATS; i++) {
    beats[i] = __atomic_load_n(&before[i].beats, __ATOMIC_RELAXED);
    if (is_taken(i)) copy_cell(&page[i], &before[i], beats[i]);
  }
  /* Touched now in any case, so that no beat has to wait for memory. */
  __atomic_fetch_add(&page->beats, 0, __ATOMIC_RELAXED);
  if (!put_in_place(page)) {
    clear(page); /* no thread beats there */
    if (!is_there(cells)) fill_hole(before);
    return false;
  }
  catch_up(before, beats);
  return true;
}

/* From here on the cells are the memory of `page`, which stays mapped. */
static void move_to(struct stackd_heartbeat_cell* page) {
  struct stackd_heartbeat_cell* before = map_again(cells);
  struct stackd_heartbeat_cell* again = before != NULL ? map_again(page) : NULL;
  if (again != NULL && !put_cells_in(again, before)) stackd_unmap(again, PAGE_BYTES);
  if (before != NULL) stackd_unmap(before, PAGE_BYTES);
}

/* Moves the cells to memory of our own: else one page would keep all of the ring in memory. */
static void leave_ring(void) {
  struct stackd_heartbeat_cell* page = new_page();
  if (page == NULL) return;
  move_to(page);
  stackd_unmap(page, PAGE_BYTES);
}

void stackd_heartbeat_set_ring(struct stackd_heartbeat_cell* ring) {
  uint64_t mask = stackd_lock_and_block(&lock);
  ring_cells = ring;
  if (cells != NULL && ring != NULL) move_to(ring);
  if (cells != NULL && ring == NULL) leave_ring();
  stackd_unlock_and_restore(&lock, mask);
}

/* The child that gets no page like ours is not watched; but it must not beat for its parent. */
static void part_from_parent(void) { stackd_map(cells, PAGE_BYTES, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1); }

static void reset_in_child(void) {
  stackd_lock_reset(&lock);
  STACKD_RESET(ring_cells, NULL); /* not mapped here */
  if (cells == NULL) return;
  struct stackd_heartbeat_cell* page = new_page();
  if (page == NULL) {
    part_from_parent();
    return;
  }
  for (unsigned i = 0; i < STACKD_MAX_HEARTBEATS; i++) {
    if (!is_taken(i)) continue;
    uint64_t beats = __atomic_load_n(&cells[i].beats, __ATOMIC_RELAXED);
    if (beats != 0) suspended_at[i] = beats;
    copy_cell(&page[i], &cells[i], 0);
    page[i].tid = (uint32_t)stackd_gettid(); /* the only thread that is left */
  }
  if (put_in_place(page)) return;
  stackd_unmap(page, PAGE_BYTES);
  part_from_parent();
}

static void watch_forks(void) {
  if (!watches_forks) watches_forks = pthread_atfork(NULL, NULL, reset_in_child) == 0;
}

void stackd_heartbeat_watch_forks(void) {
  uint64_t mask = stackd_lock_and_block(&lock);
  watch_forks();
  stackd_unlock_and_restore(&lock, mask);
}

/* --- What the program calls --- */

static bool have_page(void) {
  if (cells != NULL) return true;
  cells = new_page();
  if (cells == NULL) return false;
  watch_forks(); /* the program may fork before it installs the agent, or never install it */
  if (ring_cells != NULL) move_to(ring_cells);
  return true;
}

static stackd_heartbeat_t* take_cell(const char* name, unsigned limit_ms) {
  if (!have_page() || taken == ~0ull) return &unwatched;
  unsigned index = (unsigned)__builtin_ctzll(~taken);
  taken |= 1ull << index;
  struct stackd_heartbeat_cell* cell = &cells[index];
  cell->tid = (uint32_t)stackd_gettid();
  stackd_copy_string(cell->name, sizeof(cell->name), name != NULL ? name : "");
  __atomic_store_n(&cell->beats, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&cell->limit_ms, limit_ms > LEAST_LIMIT_MS ? limit_ms : LEAST_LIMIT_MS, __ATOMIC_RELEASE);
  return cell;
}

EXPORT stackd_heartbeat_t* stackd_heartbeat_register(const char* name, unsigned limit_ms) {
  /* Its cells are in the ring, which the helper maps. */
  stackd_helper_start();
  uint64_t mask = stackd_lock_and_block(&lock);
  stackd_heartbeat_t* heartbeat = take_cell(name, limit_ms);
  stackd_unlock_and_restore(&lock, mask);
  return heartbeat;
}

EXPORT void stackd_beat(stackd_heartbeat_t* heartbeat) {
  uint64_t beats = __atomic_load_n(&heartbeat->beats, __ATOMIC_RELAXED);
  if (beats == 0) beats = __atomic_load_n(suspended_at_of(heartbeat), __ATOMIC_RELAXED);
  __atomic_store_n(&heartbeat->beats, beats + 1, __ATOMIC_RELAXED);
}

EXPORT void stackd_heartbeat_suspend(stackd_heartbeat_t* heartbeat) {
  uint64_t beats = __atomic_load_n(&heartbeat->beats, __ATOMIC_RELAXED);
  if (beats == 0) return;
  __atomic_store_n(suspended_at_of(heartbeat), beats, __ATOMIC_RELAXED);
  __atomic_store_n(&heartbeat->beats, 0, __ATOMIC_RELAXED);
}

EXPORT void stackd_heartbeat_unregister(stackd_heartbeat_t* heartbeat) {
  if (heartbeat == &unwatched) return;
  stackd_heartbeat_suspend(heartbeat);
  uint64_t mask = stackd_lock_and_block(&lock);
  __atomic_store_n(&heartbeat->limit_ms, 0, __ATOMIC_RELEASE);
  taken &= ~(1ull << (heartbeat - cells));
  stackd_unlock_and_restore(&lock, mask);
}
