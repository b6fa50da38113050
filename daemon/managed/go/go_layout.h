// Where the runtime of each version of Go keeps what a reader of goroutines needs. Data, with its source.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stackd {

// Offsets in bytes, amd64.
struct GoLayout {
  int minor;  // of Go 1.<minor>
  struct {
    uint32_t stack_lo, stack_hi, m, sched_sp, sched_pc, syscall_sp, syscall_pc;
    uint32_t atomic_status, goid, wait_since, wait_reason, parent_goid, go_pc, start_pc;
  } g;
  struct {
    uint32_t g0, procid, curg;
  } m;
  // What the function table says of code that only the compiler made: method wrappers.
  uint8_t wrapper_function_id;
  // Size of the begin of `g` that holds all of the fields above.
  uint32_t g_bytes() const { return g.start_pc + 8; }
};

// nullptr: the version is not known. `version` is as the binary has it: "go1.23.12", "go1.26rc1 X:nodwarf5".
const GoLayout* FindGoLayout(std::string_view version);

// As the runtime prints it; empty: none, or not known.
std::string_view GoWaitReason(const GoLayout& layout, uint8_t number);

enum GoStatus : uint32_t {
  kGoIdle = 0,
  kGoRunnable = 1,
  kGoRunning = 2,
  kGoSyscall = 3,
  kGoWaiting = 4,
  kGoDead = 6,
  kGoCopyStack = 8,
  kGoPreempted = 9,
  kGoLeaked = 10,     // since 1.26
  kGoDeadExtra = 11,  // since 1.26
};
// Set beside a status while the garbage collector looks at the stack.
inline constexpr uint32_t kGoScanBit = 0x1000;

// nullopt: no version has this status.
std::optional<std::string_view> GoStatusName(uint32_t status);

}  // namespace stackd
