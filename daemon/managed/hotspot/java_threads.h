// Java threads of a process, and the locks that they wait for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/managed/hotspot/layout.h"
#include "daemon/managed/hotspot/process_memory.h"

namespace stackd::hotspot {

struct JavaThread {
  uint64_t thread_avma = 0;  // the VM's own object
  int32_t tid = 0;
  uint64_t object = 0;   // refers to its java.lang.Thread (Objects::At); 0: not known
  uint64_t current = 0;  // to that which it runs: a virtual thread, or its own
  uint64_t stack_begin_avma = 0, stack_end_avma = 0;
  uint64_t continuation_entry_avma = 0;
  uint64_t owner_id = 0;  // by which monitors name it as their owner; 0: they do so by address
  uint64_t pending_monitor_avma = 0;
};

std::vector<JavaThread> ReadJavaThreads(ProcessMemory* memory, const Layout& layout);

}  // namespace stackd::hotspot
