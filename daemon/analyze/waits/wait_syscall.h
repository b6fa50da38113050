// What a system call other than futex(2) waits for, by its number and arguments.
#pragma once

#include <cstdint>

#include "daemon/capture/waits.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

struct SyscallWait {
  v1::Wait::Kind kind = v1::Wait::SYSTEM_CALL;
  bool timed = false;  // it ends by itself after a time
};

SyscallWait DescribeSyscallWait(const SystemCall& call);

}  // namespace stackd
