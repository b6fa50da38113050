// What is known of the functions of other languages in a process: facts, with names, as they go into a Capture and its
// stored copy. daemon/managed finds them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/shared_text.h"
#include "daemon/capture/jit_code.h"
#include "daemon/capture/language.h"

namespace stackd {

struct ManagedFrame {
  SharedText function;  // qualified; never empty
  SharedText file;      // empty: not known
  int32_t line = 0;     // 0: not known
  // An address in the native frame that runs it: at or above that frame's stack pointer, below its CFA. 0: in the same as
  // the frame before it, or not known for the whole stack.
  uint64_t anchor_avma = 0;
  uint64_t pc_avma = 0;  // of compiled code; 0: interpreted
  // The runtime was called from native code here: no function, not shown. Frames beyond it are of an older activation.
  bool boundary = false;
  // Compiled into the next frame in the list.
  bool inlined = false;
};

// What one runtime says of one thread, innermost first.
struct ManagedStack {
  Language language = Language::kUnknown;
  std::vector<ManagedFrame> frames;
  // Prefix of the native functions that run this runtime's functions, one activation each. Empty: every frame has an
  // anchor, directly or by the frame before it.
  std::string interpreter_function;
  std::string problem;  // why frames are missing; empty: none is
};

struct ManagedThread {
  std::string name;  // as the runtime calls it; empty: as the kernel does
  bool holds_gil = false;
  std::vector<ManagedStack> stacks;
  std::vector<JitFrame> jit_frames;  // by sp_avma
};

// Numbers as in stackd.v1.Task.Kind.
enum class ManagedTaskKind : uint8_t { kGoroutine = 1, kVirtualThread = 2, kAsyncioTask = 3, kTokioTask = 4 };

struct ManagedTask {
  ManagedTaskKind kind = ManagedTaskKind::kGoroutine;
  uint64_t id = 0;
  std::string name;
  std::string state;
  std::string wait_reason;
  int64_t wait_ns = -1;  // for which it had waited; -1: not known
  int32_t tid = 0;       // that runs it; 0: none
  int32_t stack = -1;    // index into ManagedFacts::task_stacks
  // Indices into ManagedFacts::native_task_stacks: one for each thing that it waits for. Then `stack` is -1.
  std::vector<int32_t> native_stacks;
  std::string created_by;   // "main.serve at server.go:31"
  uint64_t creator_id = 0;  // 0: not known
};

// A thread waits for a lock that a runtime knows. Numbers as in stackd.v1.Wait.Kind.
enum class ManagedLockKind : uint8_t { kGil = 26, kMonitor = 27 };

// Where a task of native code waits: return addresses, innermost first.
struct NativeTaskStack {
  std::vector<uint64_t> return_avmas;
  bool cut = false;  // there were more
};

struct ManagedWait {
  ManagedLockKind kind = ManagedLockKind::kMonitor;
  int32_t waiter_tid = 0;
  int32_t owner_tid = 0;  // 0: none, or not known
  uint64_t lock_avma = 0;
  std::string lock;  // "java.util.concurrent.locks.ReentrantLock", "the GIL"
};

struct RuntimeDescription {
  Language language = Language::kUnknown;
  std::string name;     // "CPython 3.11.7"
  std::string problem;  // why frames of it are missing; empty: none is
};

struct RuntimeReport {
  Language language = Language::kUnknown;
  std::string title;
  std::string text;
};

struct ManagedFacts {
  std::vector<RuntimeDescription> runtimes;
  std::map<int32_t, ManagedThread> threads;         // by tid
  std::vector<ManagedStack> task_stacks;            // distinct
  std::vector<NativeTaskStack> native_task_stacks;  // distinct
  std::vector<ManagedTask> tasks;
  // Ids of goroutines that wait for locks which no other one has, as far as the code of their functions tells.
  std::vector<uint64_t> stuck_goroutines;
  std::vector<ManagedWait> waits;
  std::vector<RuntimeReport> reports;
  std::vector<std::string> notes;  // what is missing and why, one sentence each
};

}  // namespace stackd
