// Which thread waits for a lock of Java's, and who has it: monitors (synchronized), and what is built on
// java.util.concurrent.locks.AbstractOwnableSynchronizer (ReentrantLock and others).
#pragma once

#include <vector>

#include "daemon/collect/managed.h"
#include "daemon/managed/hotspot/java_threads.h"
#include "daemon/managed/hotspot/layout.h"
#include "daemon/managed/hotspot/process_memory.h"

namespace stackd::hotspot {

// Adds names of threads and what they wait for. Where a release or a collector keeps objects in another way than this
// knows, a lock has no name, or is left out.
void AddLocks(ProcessMemory* memory, const Layout& layout, const std::vector<JavaThread>& threads, ManagedFacts* facts);

}  // namespace stackd::hotspot
