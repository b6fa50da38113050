#include "agent/runtimes/walker.h"

#include <stddef.h>

#include "agent/sys/target.h"

#define MAX_TEXT_BYTES 1024u
#define MAX_TABLE_BYTES (32u << 10)
#define CHUNK_BYTES 256u
#define READS_BETWEEN_LOOKS 64u
/* At a runtime that may be half loaded; dump.c lets a tenth of a second pass between two. */
#define MAX_LOOKS_AGAIN 20u
static bool any_found, any_needs_memory;

STACKD_HANDLER static bool is_spent(struct stackd_managed_budget* budget) {
  if (!budget->spent && ++budget->reads % READS_BETWEEN_LOOKS == 0) {
    budget->spent = stackd_clock_ns(CLOCK_THREAD_CPUTIME_ID) > budget->cpu_deadline_ns ||
                    stackd_clock_ns(CLOCK_MONOTONIC) > budget->wall_deadline_ns;
  }
  return budget->spent;
}

bool stackd_managed_read(const struct stackd_managed_thread* thread, uint64_t address, void* out, uint32_t size_bytes) {
  if (thread->budget != NULL && is_spent(thread->budget)) return false;
  return stackd_read_memory(thread->pid, address, out, size_bytes) == (long)size_bytes;
}

STACKD_HANDLER static const unsigned char* page_at(const struct stackd_managed_thread* thread, uint64_t start) {
  const unsigned char* page = stackd_page_copy_of(thread->pages, start);
  if (page != NULL || (thread->budget != NULL && is_spent(thread->budget))) return page;
  return stackd_page_copy(thread->pages, thread->pid, start);
}

bool stackd_managed_read_still(const struct stackd_managed_thread* thread, uint64_t address, void* out,
                               uint32_t size_bytes) {
  if (thread->pages == NULL) return stackd_managed_read(thread, address, out, size_bytes);
  unsigned char* to = out;
  while (size_bytes > 0) {
    uint32_t offset = (uint32_t)(address % STACKD_PAGE_BYTES);
    uint32_t part = STACKD_PAGE_BYTES - offset < size_bytes ? STACKD_PAGE_BYTES - offset : size_bytes;
    const unsigned char* page = page_at(thread, address - offset);
    if (page == NULL) return false;
    const unsigned char* from = page + offset;
    uint32_t i = 0;
    for (; i + 8 <= part; i += 8) __builtin_memcpy(to + i, from + i, 8);
    for (; i < part; i++) to[i] = from[i];
    address += part;
    to += part;
    size_bytes -= part;
  }
  return true;
}

const void* stackd_managed_look_still(const struct stackd_managed_thread* thread, uint64_t address, void* out,
                                      uint32_t size_bytes) {
  uint32_t offset = (uint32_t)(address % STACKD_PAGE_BYTES);
  if (thread->pages == NULL || STACKD_PAGE_BYTES - offset < size_bytes) {
    return stackd_managed_read_still(thread, address, out, size_bytes) ? out : NULL;
  }
  const unsigned char* page = page_at(thread, address - offset);
  return page != NULL ? page + offset : NULL;
}

/* Whether so many words may be written: an entry is there as a whole or not at all. What a walker was promised may yet
 * meet a ring that is full; the reader sees an entry that is cut. */
STACKD_HANDLER static bool reserve(struct stackd_managed_writer* writer, uint32_t words) {
  if (writer->full || words > writer->words_left) {
    writer->full = true;
    return false;
  }
  writer->words_left -= words;
  return true;
}

STACKD_HANDLER static void append(struct stackd_managed_writer* writer, const void* words, uint32_t size_bytes) {
  if (writer->full) return;
  if (stackd_ring_append(writer->ring, words, size_bytes / 8)) {
    writer->words += size_bytes / 8;
  } else {
    writer->full = true;
    writer->ring_full = true;
  }
}

void stackd_managed_begin(struct stackd_managed_writer* writer, uint32_t runtime, uint16_t flags, int32_t status,
                          uint64_t version, uint64_t instance) {
  struct stackd_managed_runtime begin = {
      {STACKD_MANAGED_RUNTIME, flags, sizeof(begin)}, runtime, status, version, instance};
  writer->last = begin;
  if (reserve(writer, sizeof(begin) / 8)) append(writer, &begin, sizeof(begin));
}

void stackd_managed_say_if_blind(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread,
                                 uint32_t runtime, uint64_t version) {
  bool copy;
  uint64_t readable = stackd_target_is_other() ? thread->stack_start : (uint64_t)&any_found;
  if (stackd_managed_read(thread, readable, &copy, sizeof(copy))) return;
  if (thread->budget != NULL && thread->budget->spent) return; /* said at the end */
  stackd_managed_begin(writer, runtime, 0, STACKD_WALK_UNREADABLE, version, 0);
}

void stackd_managed_say_what_is_missing(struct stackd_managed_writer* writer, const struct stackd_managed_budget* budget) {
  if ((!writer->full && !budget->spent) || writer->ring_full || writer->last.runtime == 0) return;
  writer->full = false;
  writer->last.status = STACKD_WALK_LIMIT;
  append(writer, &writer->last, sizeof(writer->last));
}

void stackd_managed_frame(struct stackd_managed_writer* writer, uint16_t flags, uint64_t anchor, uint64_t key,
                          int64_t position) {
  struct stackd_managed_frame frame = {{STACKD_MANAGED_FRAME, flags, sizeof(frame)}, anchor, key, position};
  if (reserve(writer, sizeof(frame) / 8)) append(writer, &frame, sizeof(frame));
}

/* A symbol and its texts, end to end, by whole words: through a chunk, or into a copy that has room for all of them. */
struct packer {
  struct stackd_managed_writer* writer;
  const struct stackd_managed_thread* thread;
  uint32_t filled_bytes;
  uint32_t chunk_bytes;
  unsigned char* chunk;
  bool whole;
};

STACKD_HANDLER static void pack(struct packer* packer, uint64_t address, uint32_t size_bytes) {
  for (uint32_t done = 0; done < size_bytes;) {
    uint32_t room = packer->chunk_bytes - packer->filled_bytes;
    uint32_t part = size_bytes - done < room ? size_bytes - done : room;
    unsigned char* to = packer->chunk + packer->filled_bytes;
    if (!stackd_managed_read_still(packer->thread, address + done, to, part)) {
      for (uint32_t i = 0; i < part; i++) to[i] = 0;
      packer->whole = false;
    }
    packer->filled_bytes += part;
    done += part;
    if (packer->filled_bytes == packer->chunk_bytes) {
      append(packer->writer, packer->chunk, packer->chunk_bytes);
      packer->filled_bytes = 0;
    }
  }
}

STACKD_HANDLER static void pad(struct packer* packer) {
  while (packer->filled_bytes % 8 != 0) packer->chunk[packer->filled_bytes++] = 0;
  append(packer->writer, packer->chunk, packer->filled_bytes);
}

void stackd_managed_symbol(struct stackd_managed_writer* writer, const struct stackd_managed_thread* thread,
                           const struct stackd_managed_symbol_source* symbol, struct stackd_symbol_copy* copy) {
  struct stackd_managed_bytes function = symbol->function, file = symbol->file, table = symbol->table;
  if (function.size_bytes > MAX_TEXT_BYTES) function.size_bytes = MAX_TEXT_BYTES;
  if (file.size_bytes > MAX_TEXT_BYTES) {
    file.address += file.size_bytes - MAX_TEXT_BYTES;
    file.size_bytes = MAX_TEXT_BYTES;
  }
  if (table.size_bytes > MAX_TABLE_BYTES) table.size_bytes = 0;
  uint32_t text_bytes = function.size_bytes + file.size_bytes + table.size_bytes;
  struct stackd_managed_symbol entry;
  entry.entry.kind = STACKD_MANAGED_SYMBOL;
  entry.entry.flags = 0;
  entry.entry.size_bytes = (uint32_t)sizeof(entry) + ((text_bytes + 7) & ~7u);
  entry.key = symbol->key;
  entry.first_line = symbol->first_line;
  entry.function_bytes = (uint16_t)function.size_bytes;
  entry.file_bytes = (uint16_t)file.size_bytes;
  entry.table_bytes = table.size_bytes;
  entry.table_format = symbol->table_format;
  if (!reserve(writer, entry.entry.size_bytes / 8)) return;
  unsigned char chunk[CHUNK_BYTES];
  bool kept = copy != NULL && entry.entry.size_bytes <= sizeof(copy->words);
  struct packer packer;
  packer.writer = writer;
  packer.thread = thread;
  packer.chunk = kept ? (unsigned char*)copy->words : chunk;
  packer.chunk_bytes = kept ? sizeof(copy->words) : sizeof(chunk);
  packer.whole = true;
  __builtin_memcpy(packer.chunk, &entry, sizeof(entry));
  packer.filled_bytes = sizeof(entry);
  pack(&packer, function.address, function.size_bytes);
  pack(&packer, file.address, file.size_bytes);
  pack(&packer, table.address, table.size_bytes);
  pad(&packer);
  if (kept && packer.whole) copy->word_count = entry.entry.size_bytes / 8;
}

void stackd_managed_symbol_again(struct stackd_managed_writer* writer, const struct stackd_symbol_copy* copy) {
  uint32_t words = copy->word_count < STACKD_SYMBOL_WORDS ? copy->word_count : STACKD_SYMBOL_WORDS;
  if (reserve(writer, words)) append(writer, copy->words, 8 * words);
}

static uint32_t looks_again;
static bool unsettled;

void stackd_managed_look_again(void) {
  unsettled = looks_again < MAX_LOOKS_AGAIN;
  looks_again++;
}

bool stackd_managed_is_unsettled(void) { return unsettled; }

void stackd_managed_begin_look(void) { unsettled = false; }

void stackd_managed_has_found(bool needs_memory) {
  if (needs_memory) any_needs_memory = true;
  __atomic_store_n(&any_found, true, __ATOMIC_RELAXED);
}

bool stackd_managed_needs_memory(void) { return any_needs_memory; }

bool stackd_managed_any_found(void) { return __atomic_load_n(&any_found, __ATOMIC_RELAXED); }
