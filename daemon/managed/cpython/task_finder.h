// Where a CPython before 3.14, which does not publish them, keeps the tasks of asyncio: CPython 3.8 to 3.13.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/managed/cpython/cpython_objects.h"

namespace stackd {

struct FoundTasks {
  std::vector<uint64_t> avmas;    // of the objects
  uint64_t coroutine_offset = 0;  // in each; its name is the word behind, and what it waits for the word before
  bool is_cut = false;            // there are more than `max_tasks`, or time was up
  bool is_unknown = false;        // sys.modules is not where it was looked for
};

// Goes from sys.modules by the module asyncio.tasks to the set that holds them, each step checked by the type of what is
// there. Finds none where asyncio is not loaded. `objects` is open.
FoundTasks FindTasks(CpythonObjects* objects, uint64_t interpreter_avma, size_t max_tasks, int64_t deadline_ns);

}  // namespace stackd
