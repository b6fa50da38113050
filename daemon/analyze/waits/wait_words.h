// Sentences and phrases for waits.
#pragma once

#include <string>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Lock kind of a wait in which a thread is to send.
inline constexpr char kRoomInChannel[] = "room in a channel";

// "thread writer (tid 12)"; "the main thread (tid 12)" where its tid is `pid`; "thread 12" without a name.
std::string ThreadWithTid(const v1::Thread& thread, int32_t pid);

// What glibc does with a thread whose mutex with priority inheritance the kernel refused: its owner waits for that thread,
// or has ended. It waits for ever on a word of its own stack, and nothing tells which mutex it was.
void SetRefused(v1::Wait* wait);
bool IsRefused(const v1::Wait& wait);

// "mutex 0x55…40 (g_accounts in .bss of bank)"; also of what is no lock: "condition variable 0x…", "a future".
std::string WaitedThing(const v1::Wait& wait);

// ", held by ": what goes between a lock and its owner.
const char* HeldBy(const v1::Wait& wait);

// "waits for mutex 0x55…40 (g_accounts in .bss of bank), held by thread writer (tid 12)". `owner` is the thread of
// `wait.owner_tid`, in words; `syscall`: name of the call that the thread is in.
std::string ExplainWait(const v1::Wait& wait, const std::string& owner, std::string_view syscall);

// The same in few words, for lists: "waits for mutex 0x55…40 (g_accounts in .bss of bank)", "sleeps".
std::string ShortWait(const v1::Wait& wait, std::string_view syscall);

}  // namespace stackd
