// What ends the wait of a thread that has a lock: whether one may say, after a long time, that something hangs.
#pragma once

#include <span>

#include "daemon/capture/waits.h"

namespace stackd {

enum class WaitEnd {
  kOutside,  // work, events, signals, messages: whenever another process, a user or the kernel has some
  kTime,     // the time that the program has set
  kInside,   // another thread of the process
  kOwed,     // something that is to come soon: an answer, room in a pipe, a lock, the end of a child
};

// Tells what ends the wait of a thread in `call` that waits for no lock of its process. `fds`: what is known of those that
// calls name. An fd that is not known may be anything, so the wait counts as kOutside.
WaitEnd WaitEndOf(const SystemCall& call, std::span<const WaitedFd> fds);

// The fd that decides WaitEndOf(call); -1 if none does.
int32_t DecidingFd(const SystemCall& call);

}  // namespace stackd
