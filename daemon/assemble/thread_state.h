// What a thread was doing, in words.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/capture/capture.h"
#include "daemon/modules/address_map.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// What a thread does whose stack begins with `stack` at `pc_avma`: "running", or "in a system call (futex)".
std::string StateFromStack(const AddressMap& map, uint64_t pc_avma, const v1::Stack* stack);

// The state of a thread that was seen asleep where it is "running" by its stack.
inline constexpr char kInPageFault[] = "asleep outside of system calls (it waits for a page of its memory)";

// Why a thread did not answer.
std::string StateFromStatus(const ThreadCapture& thread, int32_t dump_signal);

}  // namespace stackd
