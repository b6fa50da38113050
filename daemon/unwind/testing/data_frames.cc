#include "daemon/unwind/testing/data_frames.h"

#include <alloca.h>

#include <random>

namespace stackd {
namespace {

constexpr unsigned kMaxDepth = 9;

std::minstd_rand chance(1);
OnLeaf leaf;
int leaves_left;
volatile unsigned sink;

unsigned Below(unsigned limit) { return static_cast<unsigned>(chance()) % limit; }

void Step(unsigned depth);

// As the last function before a system call: it saves no register.
[[gnu::noinline]] void Leaf() {
  if (leaves_left-- <= 0) return;
  uint64_t rip, rsp;
  asm volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1" : "=r"(rip), "=r"(rsp));
  leaf(rip, rsp);
  asm volatile("" ::: "memory");
}

// Memory from the stack that nothing is written to.
#define TAKE_STACK()                        \
  void* unwritten = alloca(16 * Below(60)); \
  asm volatile("" ::"r"(unwritten) : "memory")

// Each begins or ends with what differs, so that the compiler keeps them apart.
#define STEP_ON(number) \
  sink = number;        \
  Step(depth);          \
  sink = sink + depth + number

[[gnu::noinline]] void CalledFromOnePlace(unsigned depth) {
  TAKE_STACK();
  STEP_ON(1);
}
[[gnu::noinline]] void CalledFromTwoPlaces(unsigned depth) {
  TAKE_STACK();
  STEP_ON(2);
}
[[gnu::noinline]] void CalledByPointerToo(unsigned depth) {
  TAKE_STACK();
  STEP_ON(3);
}
[[gnu::noinline]] void JumpedTo(unsigned depth) {
  TAKE_STACK();
  STEP_ON(4);
}
[[gnu::noinline]] void JumpsOn(unsigned depth) {
  sink = depth;
  return JumpedTo(depth + 1);
}
[[gnu::noinline]] void CallsItself(unsigned depth) {
  TAKE_STACK();
  if (Below(2) == 0 && depth < kMaxDepth) CallsItself(depth + 1);
  STEP_ON(5);
}
[[gnu::noinline]] void Aligned32(unsigned depth) {
  alignas(32) char values[96];
  asm volatile("" ::"r"(values) : "memory");
  STEP_ON(6);
}
[[gnu::noinline]] void Aligned256(unsigned depth) {
  alignas(256) char values[256];
  asm volatile("" ::"r"(values) : "memory");
  STEP_ON(7);
}
[[gnu::noinline]] void AlignedByData(unsigned depth) {
  alignas(64) char values[64];
  asm volatile("" ::"r"(values) : "memory");
  TAKE_STACK();
  STEP_ON(8);
}
[[gnu::noinline]] void Plain(unsigned depth) { STEP_ON(9); }
[[gnu::noinline]] void PlainToTwoPlaces(unsigned depth) {
  CalledFromTwoPlaces(depth);
  STEP_ON(10);
}

void (*volatile by_pointer[])(unsigned) = {CalledByPointerToo, Aligned32, Plain, JumpsOn};

[[gnu::noinline]] void Step(unsigned depth) {
  // Twice in a row: the second call finds what the first one left.
  for (unsigned turns = 1 + Below(2); turns > 0 && leaves_left > 0; --turns) {
    if (depth >= kMaxDepth || Below(6) == 0) {
      Leaf();
      continue;
    }
    switch (Below(10)) {
      case 0:
        CalledFromOnePlace(depth + 1);
        break;
      case 1:
        CalledFromTwoPlaces(depth + 1);
        break;
      case 2:
        CalledByPointerToo(depth + 1);
        break;
      case 3:
        JumpsOn(depth + 1);
        break;
      case 4:
        CallsItself(depth + 1);
        break;
      case 5:
        Aligned32(depth + 1);
        break;
      case 6:
        Aligned256(depth + 1);
        break;
      case 7:
        AlignedByData(depth + 1);
        break;
      case 8:
        PlainToTwoPlaces(depth + 1);
        break;
      default:
        by_pointer[Below(4)](depth + 1);
        break;
    }
  }
}

}  // namespace

void RunDataFrames(int leaves, OnLeaf on_leaf) {
  leaf = on_leaf;
  leaves_left = leaves;
  while (leaves_left > 0) Step(0);
}

}  // namespace stackd
