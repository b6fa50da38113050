// Which thread must act before a wait ends, as far as the words of the lock say.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "daemon/analyze/waits/wait_function.h"
#include "daemon/capture/waits.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

struct WaitOwner {
  v1::Wait::Owner owner = v1::Wait::OWNER_UNSPECIFIED;
  int32_t tid = 0;
  std::string note;
};

// Finds the owner that thread `tid` in `call` waits for (nullptr: not known). `futex` is the word that it waits on
// (nullptr: it was not read), `tids` are the threads of the process.
WaitOwner FindWaitOwner(v1::Wait::Kind kind, LockMaker maker, int32_t tid, const SystemCall* call, const FutexWord* futex,
                        const std::set<int32_t>& tids);

// "normal", "recursive, robust", "errorcheck, priority inheritance, shared"
std::string MutexKindInWords(int32_t kind);

}  // namespace stackd
