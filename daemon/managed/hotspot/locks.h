// Threads that wait for a lock of Java, and its owner: monitors (synchronized), and what is built on
// java.util.concurrent.locks.AbstractOwnableSynchronizer (ReentrantLock and others).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/capture/managed.h"
#include "daemon/capture/waits.h"
#include "daemon/managed/hotspot/code_cache.h"
#include "daemon/managed/hotspot/layout.h"
#include "daemon/managed/hotspot/process_memory.h"
#include "daemon/managed/runtime_reader.h"

namespace stackd::hotspot {

// Adds names of threads, the virtual threads that they run, and what they wait for. Where a release or a collector keeps
// objects in another way than this knows, a lock has no name, or is left out.
//
// The process runs on. Names and locks are read at a moment at which the VM does not collect, or left out. All locks are
// read twice, and only waits that are the same both times count. process/confirm_waits.h confirms cycles of them. A thread
// that was captured in Java code, or in a system call that is no futex call, did not wait.
void AddLocks(const RuntimeInput& input, const Layout& layout, const CodeCache& code, ProcessMemory* memory,
              ManagedFacts* facts);

// What threads that sleep on a futex wait for now. Nothing while the VM collects.
std::vector<ManagedWait> ReadLockWaits(std::span<const ThreadWait> sleeping, int64_t deadline_ns, const Layout& layout,
                                       ProcessMemory* memory);

}  // namespace stackd::hotspot
