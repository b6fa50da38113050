// Functions that a thread calls to try again, or to let others run before it does.
#pragma once

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Whether one of the innermost functions of a stack is one, inlined or not: pthread_mutex_trylock, std::try_lock,
// sched_yield, a compare-and-swap.
bool IsRetrying(const v1::Stack& stack);

}  // namespace stackd
