#include "daemon/unwind/testing/workload.h"

#include <alloca.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace stackd {
namespace {

volatile int sink;

int CompareInts(const void* left, const void* right) {
  sink = sink + 1;
  return *static_cast<const int*>(left) - *static_cast<const int*>(right);
}

template <int kDepth>
[[gnu::noinline]] int Nested(const std::function<int(int)>& function, int value) {
  if constexpr (kDepth == 0) {
    return function(value);
  } else {
    int result = Nested<kDepth - 1>([&function](int inner) { return function(inner + kDepth); }, value + kDepth);
    return result + sink;
  }
}

[[gnu::noinline]] int VariableFrame(int count) {
  auto* ints = static_cast<int*>(alloca(count * sizeof(int)));
  for (int i = 0; i < count; ++i) ints[i] = (i * 7919) % 1000;
  qsort(ints, count, sizeof(int), CompareInts);
  return ints[count / 2];
}

[[gnu::noinline]] int RealignedFrame(int value) {
  alignas(64) volatile int aligned[32] = {};
  aligned[value & 31] = VariableFrame(16 + (value & 15));
  return aligned[value & 31] + aligned[0];
}

// Both: the frame is found by a saved pointer.
[[gnu::noinline]] int RealignedVariableFrame(int count) {
  alignas(32) volatile int aligned[16] = {};
  auto* bytes = static_cast<char*>(alloca(count));
  memset(bytes, count, count);
  aligned[count & 15] = RealignedFrame(bytes[count / 2]);
  return aligned[count & 15];
}

[[gnu::noinline]] int Recursive(int depth) {
  if (depth == 0) return RealignedVariableFrame(40);
  int result = Recursive(depth - 1);
  return result + depth;
}

[[gnu::noinline]] int TailCalled(int value) { return Recursive(value & 7); }
[[gnu::noinline]] int TailCalling(int value) { return TailCalled(value + 1); }

[[gnu::noinline]] int Library(int value) {
  std::map<std::string, int> words;
  std::istringstream text("the quick brown fox jumps over the lazy dog");
  for (std::string word; text >> word;) words[word] += value;
  std::vector<std::pair<int, std::string>> sorted;
  for (const auto& [word, count] : words) sorted.emplace_back(count, word);
  std::sort(sorted.begin(), sorted.end(), [](const auto& left, const auto& right) { return left > right; });
  char formatted[128];
  snprintf(formatted, sizeof(formatted), "%s %d %.3f", sorted[0].second.c_str(), value, sin(value));
  return static_cast<int>(strlen(formatted)) + atoi(formatted + 4);
}

[[gnu::noinline]] int Clocks() {
  timespec now;
  timeval day;
  int result = 0;
  for (int i = 0; i < 20; ++i) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    gettimeofday(&day, nullptr);
    result += static_cast<int>(now.tv_nsec + day.tv_usec);
  }
  return result;
}

[[gnu::noinline]] int Throwing(int value) {
  if (value > 0) throw value;
  return value;
}

[[gnu::noinline]] int Catching(int value) {
  try {
    return Throwing(value);
  } catch (int thrown) {
    return thrown + sink;
  }
}

}  // namespace

int RunWorkload(int rounds) {
  int result = 0;
  for (int i = 1; i <= rounds; ++i) {
    result += Nested<12>([](int value) { return TailCalling(value); }, i);
    result += Library(i);
    result += Clocks();
    result += Catching(i);
  }
  sink = result;
  return result;
}

}  // namespace stackd
