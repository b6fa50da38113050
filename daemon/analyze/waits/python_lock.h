// Which waits on semaphores are those of Python threads for a lock of the program.
#pragma once

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// True for `lock.acquire()` and `with lock:` of threading.Lock and RLock. CPython has its conditions, events, queues and
// joins wait in the same function of its own: these are not.
bool IsPythonLock(const v1::Stack& stack);

}  // namespace stackd
