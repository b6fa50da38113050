// Threads that sleep and wake thousands of times a second, each time at the end of another path of calls. The last function
// of a path says whether its "Right" are even or odd in number, so that a stack of two moments shows. They take their time
// between two calls: who copies the stack of one that was woken finds it half rewritten.
//
//     call_paths THREADS
//
// Prints "ready"; runs until it is killed.
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr int kDepth = 12;
constexpr int kTurns = 4'000;

// Microseconds without a system call.
void Linger() {
  for (int i = 0; i < kTurns; ++i) asm volatile("");
}

[[gnu::noinline]] void Sleep(uint32_t path) {
  // So that no two threads keep in step.
  const timespec pause{0, 500'000 + 5'000l * (path % 100)};
  nanosleep(&pause, nullptr);
  asm volatile("" ::: "memory");
}

// Equal code under two names would be one function.
[[gnu::noinline, gnu::no_icf]] void EvenEnd(uint32_t path) {
  Sleep(path);
  asm volatile("" ::: "memory");
}
[[gnu::noinline, gnu::no_icf]] void OddEnd(uint32_t path) {
  Sleep(path);
  asm volatile("" ::: "memory");
}

void Step(uint32_t path, int depth);

[[gnu::noinline, gnu::no_icf]] void Left(uint32_t path, int depth) {
  Linger();
  Step(path, depth + 1);
  Linger();
}
[[gnu::noinline, gnu::no_icf]] void Right(uint32_t path, int depth) {
  Linger();
  Step(path, depth + 1);
  Linger();
}

[[gnu::always_inline]] inline void Step(uint32_t path, int depth) {
  if (depth == kDepth) {
    if (__builtin_popcount(path & ((1u << kDepth) - 1)) % 2 == 0) {
      EvenEnd(path);
    } else {
      OddEnd(path);
    }
  } else if ((path >> depth & 1) == 0) {
    Left(path, depth);
  } else {
    Right(path, depth);
  }
}

[[gnu::noinline]] void Worker(uint32_t seed) {
  for (uint32_t path = seed;;) {
    path = path * 1664525 + 1013904223;
    Step(path >> 8, 0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::vector<std::thread> threads;
  for (int i = 0; i < atoi(argv[1]); ++i) threads.emplace_back(Worker, static_cast<uint32_t>(i));
  puts("ready");
  fflush(stdout);
  for (std::thread& thread : threads) thread.join();
}
