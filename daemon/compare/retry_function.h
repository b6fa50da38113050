// Functions that a thread calls to try again, or to let others run before it does.
#pragma once

#include <string>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// pthread_mutex_trylock, std::try_lock, sched_yield, a compare-and-swap.
bool IsRetry(const std::string& function);

// Whether one of the innermost functions of a stack is a retry, inlined or not.
bool IsRetrying(const v1::Stack& stack);

}  // namespace stackd
