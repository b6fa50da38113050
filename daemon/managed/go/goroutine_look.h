// What goroutines hold and where they are, read out of the memory of a process that runs on. Each goroutine is read before
// and after its stack.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/managed/go/go_walk.h"
#include "daemon/managed/go/memory_batch.h"
#include "daemon/process/process_files.h"

namespace stackd {

// What a `g` holds, as far as it is of use.
struct Goroutine {
  uint64_t g_avma = 0;
  uint64_t stack_lo = 0, stack_hi = 0;
  uint64_t m_avma = 0;
  uint64_t sched_sp = 0, sched_pc = 0;
  uint64_t syscall_sp = 0, syscall_pc = 0;
  uint32_t status = 0;  // without the scan bit
  uint64_t id = 0;
  int64_t wait_since_ns = 0;
  uint8_t wait_reason = 0;
  uint64_t parent_id = 0;
  uint64_t go_pc = 0;
  uint64_t start_pc = 0;

  bool operator==(const Goroutine&) const = default;
  bool is_live() const { return status != kGoIdle && status != kGoDead && status != kGoDeadExtra; }
  // Whether the stack stands still at a known place.
  bool is_parked() const { return status != kGoRunning && status != kGoCopyStack; }
  uint64_t pc() const { return status == kGoSyscall && syscall_sp != 0 ? syscall_pc : sched_pc; }
  uint64_t sp() const { return status == kGoSyscall && syscall_sp != 0 ? syscall_sp : sched_sp; }
};

// Reader for one process at one moment; one thread at a time.
class GoroutineLook {
 public:
  // All must outlive it.
  GoroutineLook(const GoBinary& binary, uint64_t bias, const ProcessFiles& memory, int64_t deadline_ns)
      : binary_(binary), bias_(bias), memory_(memory), walker_(binary, bias, deadline_ns) {}

  enum class Sight {
    kSenseless,  // no goroutine, or it could not be read
    kRuns,       // its stack is not its own to be read
    kMoved,      // it ran while it was looked at
    kStill,      // it has frames
  };
  struct Seen {
    Goroutine goroutine;
    Sight sight = Sight::kSenseless;
    GoWalkEnd end = GoWalkEnd::kTop;
    size_t first_frame = 0, frame_count = 0;
  };

  // Returns how many of the list it has looked at, at least one: as many as there is room for. seen() leaves out dead ones.
  size_t Look(std::span<const uint64_t> list);
  // Goroutines of the last look.
  const std::vector<Seen>& seen() const { return seen_; }
  std::span<const GoFrame> FramesOf(const Seen& seen) const {
    return {frames_.data() + seen.first_frame, seen.frame_count};
  }

 private:
  Goroutine Parse(uint64_t g_avma, std::span<const uint8_t> bytes) const;
  bool MakesSense(const Goroutine& goroutine);
  void WalkStack(size_t parked, Seen* seen);

  const GoBinary& binary_;
  const uint64_t bias_;
  const ProcessFiles& memory_;
  GoWalker walker_;
  MemoryBatch first_look_, stacks_, second_look_;
  std::vector<Seen> seen_;
  std::vector<size_t> parked_;   // of seen_, in the order of stacks_
  std::vector<GoFrame> frames_;  // of all
  std::vector<GoFrame> walked_;  // of one
};

}  // namespace stackd
