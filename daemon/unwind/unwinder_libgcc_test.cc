// The unwinder against libgcc's, on stacks of this process interrupted anywhere.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "daemon/unwind/testing/own_process.h"
#include "daemon/unwind/testing/workload.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {
namespace {

OwnStacks* stacks;
uint64_t top_avma;

std::vector<uint64_t> Pcs(const NativeStack& stack) {
  std::vector<uint64_t> pcs;
  for (const NativeFrame& frame : stack.frames) pcs.push_back(frame.pc_avma);
  return pcs;
}

std::string Describe(const NativeStack& stack, const AddressMap& map) {
  std::string text = "end " + std::to_string(static_cast<int>(stack.end)) + "\n";
  for (const NativeFrame& frame : stack.frames) {
    const Mapping* mapping = map.Find(frame.pc_avma);
    char line[512];
    snprintf(line, sizeof(line), "  %#lx %s+%#lx by %d, CFA %#lx\n", frame.pc_avma,
             mapping != nullptr ? mapping->path.c_str() : "?", mapping != nullptr ? frame.pc_avma - mapping->bias : 0,
             static_cast<int>(frame.origin), frame.cfa_avma);
    text += line;
  }
  return text;
}

bool SameFrames(const NativeStack& left, const NativeStack& right) {
  return left.end == right.end &&
         std::ranges::equal(left.frames, right.frames, [](const NativeFrame& a, const NativeFrame& b) {
           return a.pc_avma == b.pc_avma && a.cfa_avma == b.cfa_avma && a.origin == b.origin;
         });
}

// Expects of each capture, with rsp and rip alone: frames that libgcc finds, and that a stack which is not whole says so.
void ExpectNoneWrongOfSleepers(size_t min_whole_percent) {
  auto map = OwnAddressMap();
  Unwinder unwinder;
  size_t whole = 0, wrong = 0;
  for (const OwnStack& stack : stacks->stacks()) {
    Registers asleep = stack.registers;
    asleep.known = 1u << Registers::kRsp | 1u << Registers::kRip;
    const NativeStack found = unwinder.Unwind(asleep, FilteredCopy(stack, *map), false, *map);
    const std::vector<uint64_t> truth(stack.truth, stack.truth + stack.truth_count);
    const std::vector<uint64_t> pcs = Pcs(found);
    if (pcs == truth && found.end == StackEnd::kRoot) {
      ++whole;
      continue;
    }
    const bool is_part = pcs.size() < truth.size() && std::ranges::equal(pcs, std::span(truth).first(pcs.size()));
    if (is_part && found.end != StackEnd::kRoot) continue;
    if (++wrong <= 5) ADD_FAILURE() << Describe(found, *map) << "libgcc: " << testing::PrintToString(truth);
  }
  printf("with rsp and rip alone: %zu of %zu are whole\n", whole, stacks->stacks().size());
  EXPECT_EQ(wrong, 0u);
  EXPECT_GE(whole, stacks->stacks().size() * min_whole_percent / 100);
}

// Expects of each capture: the frames libgcc finds, whether the copy is filtered or not.
void ExpectSameAsLibgcc(size_t min_stacks) {
  auto map = OwnAddressMap();
  Unwinder unwinder;
  size_t frames = 0, wrong = 0;
  for (const OwnStack& stack : stacks->stacks()) {
    NativeStack full = unwinder.Unwind(stack.registers, FullCopy(stack), false, *map);
    NativeStack filtered = unwinder.Unwind(stack.registers, FilteredCopy(stack, *map), false, *map);
    EXPECT_TRUE(SameFrames(full, filtered)) << Describe(full, *map) << Describe(filtered, *map);
    std::vector<uint64_t> truth(stack.truth, stack.truth + stack.truth_count);
    frames += full.frames.size();
    if (Pcs(full) == truth && full.end == StackEnd::kRoot) continue;
    ++wrong;
    if (wrong > 5) continue;
    ADD_FAILURE() << Describe(full, *map) << "libgcc: " << testing::PrintToString(truth);
  }
  EXPECT_EQ(wrong, 0u) << "of " << stacks->stacks().size();
  EXPECT_GE(stacks->stacks().size(), min_stacks);
  printf("%zu stacks, %zu frames\n", stacks->stacks().size(), frames);
}

void Install(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action{};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  ASSERT_EQ(sigaction(signal, &action, nullptr), 0);
}

TEST(Unwinder, FindsTheFramesThatLibgccFindsWhereverATimerInterrupts) {
  OwnStacks own(200, 64 << 20);
  CaptureByTimer(own, /*with_truth=*/true, [] { RunWorkload(10); });
  stacks = &own;
  ExpectSameAsLibgcc(200);
  ExpectNoneWrongOfSleepers(50);
}

void OnTimerTrap(int, siginfo_t*, void* context) {
  if (stacks->IsLibgcc(RegistersOf(*static_cast<ucontext_t*>(context)).value[Registers::kRip])) return;
  asm volatile("int3");
}

void OnBreakpoint(int, siginfo_t*, void* context) {
  stacks->Capture(*static_cast<ucontext_t*>(context), top_avma, /*with_truth=*/true);
}

TEST(Unwinder, FindsTheFramesBelowASignalHandler) {
  OwnStacks own(200, 64 << 20);
  stacks = &own;
  top_avma = OwnStackTop();
  Install(SIGTRAP, OnBreakpoint);
  // A breakpoint where SIGTRAP is blocked would be fatal.
  struct sigaction action{};
  action.sa_sigaction = OnTimerTrap;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ASSERT_EQ(sigaction(SIGPROF, &action, nullptr), 0);
  itimerval every_ms{{0, 1000}, {0, 1000}}, never{};
  setitimer(ITIMER_PROF, &every_ms, nullptr);
  while (!own.full()) RunWorkload(10);
  setitimer(ITIMER_PROF, &never, nullptr);
  ExpectSameAsLibgcc(200);
  auto map = OwnAddressMap();
  Unwinder unwinder;
  for (const OwnStack& stack : own.stacks()) {
    NativeStack unwound = unwinder.Unwind(stack.registers, FullCopy(stack), false, *map);
    EXPECT_EQ(std::ranges::count(unwound.frames, FrameOrigin::kSignalFrame, &NativeFrame::origin), 1);
  }
}

// Captures the first two executions of each instruction.
constexpr size_t kSeenBits = 22;
uint8_t* times_seen;

void OnTrap(int, siginfo_t*, void* argument) {
  auto* context = static_cast<ucontext_t*>(argument);
  uint64_t pc = static_cast<uint64_t>(context->uc_mcontext.gregs[REG_RIP]);
  uint8_t& times = times_seen[pc * 0x9e3779b97f4a7c15 >> (64 - kSeenBits)];
  if (times == 2) return;
  ++times;
  stacks->Capture(*context, top_avma, /*with_truth=*/true);
}

// Single-stepping: a trap after each instruction. By hand, since the compiler does not describe pushes in inline assembly.
extern "C" void stackd_test_set_trap_flag(uint64_t flag);
asm(R"(
  .text
  .type stackd_test_set_trap_flag, @function
stackd_test_set_trap_flag:
  .cfi_startproc
  pushfq
  .cfi_adjust_cfa_offset 8
  andq $~0x100, (%rsp)
  orq %rdi, (%rsp)
  popfq
  .cfi_adjust_cfa_offset -8
  ret
  .cfi_endproc
  .size stackd_test_set_trap_flag, . - stackd_test_set_trap_flag
)");

TEST(Unwinder, FindsTheFramesThatLibgccFindsAtEveryInstruction) {
  OwnStacks own(30000, 256 << 20);
  stacks = &own;
  top_avma = OwnStackTop();
  std::vector<uint8_t> seen(size_t{1} << kSeenBits);
  times_seen = seen.data();
  Install(SIGTRAP, OnTrap);
  stackd_test_set_trap_flag(0x100);
  RunWorkload(1);
  stackd_test_set_trap_flag(0);
  ExpectSameAsLibgcc(3000);
  ExpectNoneWrongOfSleepers(80);
}

}  // namespace
}  // namespace stackd
