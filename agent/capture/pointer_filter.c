#include "agent/capture/pointer_filter.h"

#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#include <stdbool.h>

#define RANGES STACKD_FILTER_INTERVALS
#define TOP_BIT (1ull << 63)

void stackd_filter_init(struct stackd_filter* filter, const struct stackd_code_ranges* ranges, struct stackd_interval stack,
                        struct stackd_interval outer) {
  for (int i = 0; i < STACKD_CODE_INTERVALS; i++) {
    filter->start[i] = ranges != NULL ? ranges->code[i].start : 0;
    filter->length[i] = ranges != NULL ? ranges->code[i].end - ranges->code[i].start : 0;
  }
  filter->start[STACKD_CODE_INTERVALS] = stack.start;
  filter->length[STACKD_CODE_INTERVALS] = stack.end - stack.start;
  filter->start[STACKD_CODE_INTERVALS + 1] = outer.start;
  filter->length[STACKD_CODE_INTERVALS + 1] = outer.end - outer.start;
}

int stackd_filter_keeps(const struct stackd_filter* filter, uint64_t word) {
  int keep = 0;
  for (int r = 0; r < RANGES; r++) keep |= word - filter->start[r] < filter->length[r];
  return keep;
}

uint64_t stackd_filter_scalar(const struct stackd_filter* filter, const uint64_t* words, unsigned count,
                              uint64_t out[STACKD_FILTER_OUT_WORDS]) {
  uint64_t mask = 0;
  unsigned kept = 0;
  for (unsigned i = 0; i < count; i++) {
    uint64_t keep = (uint64_t)stackd_filter_keeps(filter, words[i]);
    out[kept] = words[i];
    kept += (unsigned)keep;
    mask |= keep << i;
  }
  return mask;
}

/* For each 4-bit mask, the order of 32-bit halves that moves the kept 64-bit words to the front. */
#define HALVES(a, b, c, d) {2 * (a), 2 * (a) + 1, 2 * (b), 2 * (b) + 1, 2 * (c), 2 * (c) + 1, 2 * (d), 2 * (d) + 1}
static const int32_t kPack[16][8] __attribute__((aligned(32))) = {
    HALVES(0, 0, 0, 0), HALVES(0, 0, 0, 0), HALVES(1, 0, 0, 0), HALVES(0, 1, 0, 0), HALVES(2, 0, 0, 0), HALVES(0, 2, 0, 0),
    HALVES(1, 2, 0, 0), HALVES(0, 1, 2, 0), HALVES(3, 0, 0, 0), HALVES(0, 3, 0, 0), HALVES(1, 3, 0, 0), HALVES(0, 1, 3, 0),
    HALVES(2, 3, 0, 0), HALVES(0, 2, 3, 0), HALVES(1, 2, 3, 0), HALVES(0, 1, 2, 3),
};

__attribute__((target("avx2,popcnt"))) uint64_t stackd_filter_avx2(const struct stackd_filter* filter,
                                                                   const uint64_t* words, unsigned count,
                                                                   uint64_t out[STACKD_FILTER_OUT_WORDS]) {
  /* AVX2 compares signed numbers. Flipping the top bit of both sides orders unsigned ones; flipping that of a start flips
   * it in each distance from there. All of it stays in registers, where the loops over the intervals are unrolled. */
  __m256i start[RANGES], length[RANGES];
#pragma GCC unroll 6
  for (int r = 0; r < RANGES; r++) {
    start[r] = _mm256_set1_epi64x((int64_t)(filter->start[r] ^ TOP_BIT));
    length[r] = _mm256_set1_epi64x((int64_t)(filter->length[r] ^ TOP_BIT));
  }
  uint64_t mask = 0;
  unsigned kept = 0;
  unsigned i = 0;
  for (; i + 4 <= count; i += 4) {
    __m256i four = _mm256_loadu_si256((const __m256i*)(words + i));
    __m256i inside = _mm256_setzero_si256();
#pragma GCC unroll 6
    for (int r = 0; r < RANGES; r++) {
      inside = _mm256_or_si256(inside, _mm256_cmpgt_epi64(length[r], _mm256_sub_epi64(four, start[r])));
    }
    unsigned bits = (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(inside));
    __m256i order = _mm256_load_si256((const __m256i*)kPack[bits]);
    _mm256_storeu_si256((__m256i*)(out + kept), _mm256_permutevar8x32_epi32(four, order));
    kept += (unsigned)_mm_popcnt_u32(bits);
    mask |= (uint64_t)bits << i;
  }
  _mm256_zeroupper();
  for (; i < count; i++) {
    uint64_t keep = (uint64_t)stackd_filter_keeps(filter, words[i]);
    out[kept] = words[i];
    kept += (unsigned)keep;
    mask |= keep << i;
  }
  return mask;
}

/* XCR0: the kernel keeps the upper halves of the AVX registers for each thread. */
#define XCR0_AVX 6u

/* By hand: what the compiler's own question needs is in its support library, which not every program links (Rust's for musl
 * does not). */
STACKD_HANDLER static bool has_avx2(void) {
  unsigned a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0 || (c & bit_POPCNT) == 0) return false;
  unsigned xcr0, high;
  __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
  if ((xcr0 & XCR0_AVX) != XCR0_AVX) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_AVX2) != 0;
}

stackd_filter_fn* stackd_filter_choose(void) {
  static stackd_filter_fn* _Atomic chosen;
  stackd_filter_fn* filter = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (filter == NULL) {
    filter = has_avx2() ? stackd_filter_avx2 : stackd_filter_scalar;
    atomic_store_explicit(&chosen, filter, memory_order_relaxed);
  }
  return filter;
}
