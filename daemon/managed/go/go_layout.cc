#include "daemon/managed/go/go_layout.h"

#include <charconv>

namespace stackd {
namespace {

// Source: DWARF of programs built by go1.21.13, 1.22.12, 1.23.12, 1.24.13, 1.25.5 and 1.26.8 for linux/amd64, structures
// runtime.g, gobuf and m. The numbers of function kinds are from internal/abi/symtab.go. For the versions that
// tests/e2e/go_test.py finds it compares what these offsets give with runtime.Stack.
constexpr GoLayout kLayouts[] = {
    {21, {0, 8, 48, 56, 64, 112, 120, 144, 152, 168, 176, 272, 280, 296}, {0, 72, 192}, 21},
    {22, {0, 8, 48, 56, 64, 112, 120, 144, 152, 168, 176, 272, 280, 296}, {0, 72, 192}, 22},
    {23, {0, 8, 48, 56, 64, 112, 120, 152, 160, 176, 184, 280, 288, 304}, {0, 72, 192}, 22},
    {24, {0, 8, 48, 56, 64, 112, 120, 152, 160, 176, 184, 280, 288, 304}, {0, 72, 192}, 22},
    {25, {0, 8, 48, 56, 64, 104, 112, 144, 152, 168, 176, 272, 280, 296}, {0, 64, 184}, 23},
    {26, {0, 8, 48, 56, 64, 104, 112, 144, 152, 168, 176, 280, 288, 304}, {0, 64, 184}, 23},
};

// A reason's number in a version is the count of rows before it that this version has.
// Source: waitReasonStrings in runtime/runtime2.go of the same versions.
struct WaitReasonRow {
  std::string_view text;
  int first_minor = 0;
  int last_minor = 999;
};
constexpr WaitReasonRow kWaitReasons[] = {
    {""},
    {"GC assist marking"},
    {"IO wait"},
    {"chan receive (nil chan)", 0, 25},
    {"chan send (nil chan)", 0, 25},
    {"dumping heap"},
    {"garbage collection"},
    {"garbage collection scan"},
    {"panicwait"},
    {"select", 0, 25},
    {"select (no cases)", 0, 25},
    {"GC assist wait"},
    {"GC sweep wait"},
    {"GC scavenge wait"},
    {"chan receive", 0, 25},
    {"chan send", 0, 25},
    {"finalizer wait"},
    {"force gc (idle)"},
    {"GOMAXPROCS updater (idle)", 25},
    {"semacquire"},
    {"sleep"},
    {"chan receive (nil chan)", 26},
    {"chan send (nil chan)", 26},
    {"select (no cases)", 26},
    {"select", 26},
    {"chan receive", 26},
    {"chan send", 26},
    {"sync.Cond.Wait"},
    {"sync.Mutex.Lock"},
    {"sync.RWMutex.RLock"},
    {"sync.RWMutex.Lock"},
    {"sync.WaitGroup.Wait", 24},
    {"trace reader (blocked)"},
    {"wait for GC cycle"},
    {"GC worker (idle)"},
    {"GC worker (active)"},
    {"preempted"},
    {"debug call"},
    {"GC mark termination"},
    {"stopping the world"},
    {"flushing proc caches", 22},
    {"trace goroutine status", 22},
    {"trace proc status", 22},
    {"page trace flush", 22},
    {"coroutine", 22},
    {"GC weak to strong wait", 23},
    {"synctest.Run", 24},
    {"synctest.Wait", 24},
    {"chan receive (synctest)", 24, 24},
    {"chan send (synctest)", 24, 24},
    {"select (synctest)", 24, 24},
    {"chan receive (durable)", 25},
    {"chan send (durable)", 25},
    {"select (durable)", 25},
    {"sync.WaitGroup.Wait (durable)", 25},
    {"cleanup wait", 25},
};

}  // namespace

const GoLayout* FindGoLayout(std::string_view version) {
  constexpr std::string_view kPrefix = "go1.";
  if (!version.starts_with(kPrefix)) return nullptr;
  int minor = 0;
  const char* end = version.data() + version.size();
  if (std::from_chars(version.data() + kPrefix.size(), end, minor).ec != std::errc()) return nullptr;
  for (const GoLayout& layout : kLayouts) {
    if (layout.minor == minor) return &layout;
  }
  return nullptr;
}

std::string_view GoWaitReason(const GoLayout& layout, uint8_t number) {
  int rows_before = 0;
  for (const WaitReasonRow& row : kWaitReasons) {
    if (layout.minor < row.first_minor || layout.minor > row.last_minor) continue;
    if (rows_before++ == number) return row.text;
  }
  return {};
}

std::optional<std::string_view> GoStatusName(uint32_t status) {
  switch (status) {
    case kGoIdle:
      return "idle";
    case kGoRunnable:
      return "runnable";
    case kGoRunning:
      return "running";
    case kGoSyscall:
      return "syscall";
    case kGoWaiting:
      return "waiting";
    case kGoDead:
    case kGoDeadExtra:
      return "dead";
    case kGoCopyStack:
      return "copystack";
    case kGoPreempted:
      return "preempted";
    case kGoLeaked:
      return "leaked";
    default:
      return std::nullopt;
  }
}

}  // namespace stackd
