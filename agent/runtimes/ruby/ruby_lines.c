#include "agent/runtimes/ruby/ruby_lines.h"

#define MAX_WORDS (1u << 24)
/* struct succ_index_table (iseq.c): how many entries begin at or before a place. Of the first 54 places 9 counts of 7 bits
 * a word; then blocks of 512 places. */
#define FIRST_PLACES 54u
#define PLACES_IN_WORD 9u
#define BLOCKS_BEGIN (FIRST_PLACES / PLACES_IN_WORD * 8)
#define PLACES_IN_BLOCK 512u
/* struct succ_dict_block: a count, counts of its words (9 bits each, none of the first), and a bit for each place. */
struct block {
  uint32_t count;
  uint32_t pad;
  uint64_t word_counts;
  uint64_t bits[PLACES_IN_BLOCK / 64];
};

STACKD_HANDLER static uint32_t bits_set(uint64_t word) {
  uint32_t count = 0;
  for (; word != 0; word &= word - 1) count++;
  return count;
}

/* 0: it cannot be read. */
STACKD_HANDLER static uint32_t entries_up_to(const struct stackd_managed_thread* thread, uint64_t table, uint32_t place) {
  if (place < FIRST_PLACES) {
    uint64_t word;
    if (!stackd_managed_read_still(thread, table + place / PLACES_IN_WORD * 8, &word, sizeof(word))) return 0;
    return (uint32_t)(word >> place % PLACES_IN_WORD * 7) & 0x7f;
  }
  place -= FIRST_PLACES;
  struct block block;
  uint64_t address = table + BLOCKS_BEGIN + (uint64_t)(place / PLACES_IN_BLOCK) * sizeof(block);
  if (!stackd_managed_read_still(thread, address, &block, sizeof(block))) return 0;
  uint32_t bit = place % PLACES_IN_BLOCK;
  uint32_t before = bit < 64 ? 0 : (uint32_t)(block.word_counts >> (bit / 64 - 1) * 9) & 0x1ff;
  return block.count + before + bits_set(block.bits[bit / 64] << (63 - bit % 64));
}

int64_t stackd_ruby_line(const struct stackd_ruby_layout* layout, const struct stackd_managed_thread* thread,
                         const uint64_t* body, uint64_t pc) {
  uint64_t offset = pc - body[STACKD_RUBY_BODY_WORDS / 8];
  uint32_t words = *((const uint32_t*)body + STACKD_RUBY_BODY_COUNT / 4);
  if (words > MAX_WORDS || offset > 8ull * words) return 0;
  /* The frame's pc is behind the instruction that it executes. */
  uint32_t place = offset < 8 ? 0 : (uint32_t)(offset / 8) - 1;
  uint32_t count = *((const uint32_t*)body + layout->code_line_count / 4);
  uint32_t entry = count == 1 ? 1 : entries_up_to(thread, body[layout->code_line_index / 8], place);
  uint32_t line;
  if (entry == 0 || entry > count) return 0;
  uint64_t address = body[layout->code_lines / 8] + (uint64_t)(entry - 1) * STACKD_RUBY_LINE_BYTES;
  return stackd_managed_read_still(thread, address, &line, sizeof(line)) ? line : 0;
}
