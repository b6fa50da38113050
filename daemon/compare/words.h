// Threads and what they did, in words; nothing in them that a terminal would obey.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/compare/thread_progress.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// "2.0 s"
std::string TimeInWords(int64_t ns);

// "96 % of a core"
std::string ShareInWords(double core_share);

// "thread worker (tid 12)"
std::string ThreadInWords(const v1::Thread& thread);

// "Queue::Pop", or "libfoo.so+0x12" where a function has no name.
std::string FunctionInWords(const v1::Frame& frame);

// The function that a thread did not leave; it has been in one.
std::string KeptFunctionInWords(const ThreadProgress& thread);

// "waits for mutex 0x7f12…, held by thread writer (tid 12)"; empty if no wait is known, or if the thread's state says as
// much.
std::string WaitInWords(const v1::Thread& thread);

// What it did between the dumps, without times, so that threads that did the same have the same words.
std::string ProgressInWords(const ThreadProgress& thread);

}  // namespace stackd
