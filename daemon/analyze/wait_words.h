// How waits are said.
#pragma once

#include <string>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// "thread writer (tid 12)"; "the main thread (tid 12)" where its tid is `pid`; "thread 12" without a name.
std::string ThreadWithTid(const v1::Thread& thread, int32_t pid);

// "mutex 0x55…40 (g_accounts in .bss of bank)"; also of what is no lock: "condition variable 0x…", "a future".
std::string WaitedThing(const v1::Wait& wait);

// "waits for mutex 0x55…40 (g_accounts in .bss of bank), held by thread writer (tid 12)". `owner` is the thread of
// `wait.owner_tid`, in words; `syscall`: name of the call that the thread is in.
std::string ExplainWait(const v1::Wait& wait, const std::string& owner, std::string_view syscall);

// The same in few words, for lists: "waits for mutex 0x55…40 (g_accounts in .bss of bank)", "sleeps".
std::string ShortWait(const v1::Wait& wait, std::string_view syscall);

}  // namespace stackd
