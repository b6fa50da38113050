extern "C" {
#include "agent/capture/pointer_filter.h"
}

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace {

stackd_code_ranges RangesOf(std::initializer_list<stackd_interval> intervals) {
  stackd_code_ranges ranges{};
  int i = 0;
  for (const auto& interval : intervals) ranges.code[i++] = interval;
  return ranges;
}

std::vector<uint64_t> KeptOneByOne(const stackd_filter& filter, const std::vector<uint64_t>& words) {
  std::vector<uint64_t> kept;
  for (uint64_t word : words) {
    if (stackd_filter_keeps(&filter, word)) kept.push_back(word);
  }
  return kept;
}

void ExpectBothKeep(const stackd_filter& filter, const std::vector<uint64_t>& words) {
  std::vector<uint64_t> expected = KeptOneByOne(filter, words);
  for (stackd_filter_fn* function : {stackd_filter_scalar, stackd_filter_avx2}) {
    if (function == stackd_filter_avx2 && stackd_filter_choose() != stackd_filter_avx2) continue;
    uint64_t out[STACKD_FILTER_OUT_WORDS + 1] = {};
    out[STACKD_FILTER_OUT_WORDS] = 0xcafe;
    uint64_t mask = function(&filter, words.data(), static_cast<unsigned>(words.size()), out);
    EXPECT_EQ(std::vector<uint64_t>(out, out + expected.size()), expected);
    for (size_t i = 0; i < 64; i++) {
      bool keep = i < words.size() && stackd_filter_keeps(&filter, words[i]);
      EXPECT_EQ((mask >> i) & 1, keep ? 1u : 0u) << "word " << i << " of " << words.size();
    }
    EXPECT_EQ(out[STACKD_FILTER_OUT_WORDS], 0xcafeu) << "wrote behind its buffer";
  }
}

TEST(PointerFilter, KeepsExactlyTheWordsInsideAnInterval) {
  auto ranges = RangesOf({{0x1000, 0x2000}, {0x7f0000000000, 0x7f0000001000}});
  stackd_filter filter;
  stackd_filter_init(&filter, &ranges, {0x7ffc00000000, 0x7ffc00002000}, {});
  const std::pair<uint64_t, bool> kCases[] = {
      {0xfff, false},          {0x1000, true},
      {0x1fff, true},          {0x2000, false},
      {0x7effffffffff, false}, {0x7f0000000000, true},
      {0x7f0000000fff, true},  {0x7f0000001000, false},
      {0x7ffc00000000, true},  {0x7ffc00001fff, true},
      {0x7ffc00002000, false}, {0, false},
      {~0ull, false},          {0x8000000000000000, false},
  };
  for (auto [word, keep] : kCases) EXPECT_EQ(stackd_filter_keeps(&filter, word) != 0, keep) << std::hex << word;
}

TEST(PointerFilter, WithoutRangesOnlyTheStackIsKept) {
  stackd_filter filter;
  stackd_filter_init(&filter, nullptr, {0x5000, 0x6000}, {});
  EXPECT_FALSE(stackd_filter_keeps(&filter, 0));
  EXPECT_FALSE(stackd_filter_keeps(&filter, 0x4fff));
  EXPECT_TRUE(stackd_filter_keeps(&filter, 0x5000));
}

TEST(PointerFilter, Avx2AndScalarAgreeOnEdgesForEveryCount) {
  auto ranges = RangesOf({{0x1000, 0x2000}, {0x7fffffffff000000, 0x8000000000001000}, {~0xfffull, ~0ull}});
  stackd_filter filter;
  stackd_filter_init(&filter, &ranges, {0x7ffc00000000, 0x7ffc00002000}, {});
  std::vector<uint64_t> edges;
  for (uint64_t edge : {0ull, 0x1000ull, 0x2000ull, 0x7fffffffff000000ull, 0x8000000000000000ull, 0x8000000000001000ull,
                        ~0xfffull, ~0ull, 0x7ffc00000000ull, 0x7ffc00002000ull}) {
    for (uint64_t word : {edge - 1, edge, edge + 1}) edges.push_back(word);
  }
  for (size_t count = 1; count <= 64; count++) {
    for (size_t rotation = 0; rotation < edges.size(); rotation++) {
      std::vector<uint64_t> words;
      for (size_t i = 0; i < count; i++) words.push_back(edges[(i + rotation) % edges.size()]);
      ExpectBothKeep(filter, words);
    }
  }
}

TEST(PointerFilter, Avx2AndScalarAgreeOnRandomWords) {
  std::mt19937_64 random(20240607);
  for (int round = 0; round < 20000; round++) {
    stackd_code_ranges ranges{};
    for (auto& interval : ranges.code) {
      uint64_t start = random() >> (random() % 64);
      interval = {start, start + (random() >> (random() % 64))};
      if (interval.end < interval.start) interval = {0, 0};
    }
    stackd_filter filter;
    uint64_t stack = random() >> 17;
    stackd_filter_init(&filter, &ranges, {stack, stack + random() % 100000}, {});
    std::vector<uint64_t> words(1 + random() % 64);
    for (auto& word : words) {
      const auto& near = ranges.code[random() % STACKD_CODE_INTERVALS];
      switch (random() % 4) {
        case 0:
          word = random();
          break;
        case 1:
          word = near.start + random() % 3 - 1;
          break;
        case 2:
          word = near.end + random() % 3 - 1;
          break;
        default:
          word = stack + random() % 100000;
      }
    }
    ExpectBothKeep(filter, words);
  }
}

}  // namespace
