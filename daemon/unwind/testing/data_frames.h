// For tests: functions whose frames have a size that depends on data, in chains of calls that chance chooses.
#pragma once

#include <cstdint>

namespace stackd {

// Instruction and stack pointer of a function that has saved no register.
using OnLeaf = void (*)(uint64_t rip, uint64_t rsp);

// Makes calls, and calls in them, from which `on_leaf` is called `leaves` times. What calls that have returned left on the
// stack stays there: the frames that lie over it are not written.
void RunDataFrames(int leaves, OnLeaf on_leaf);

}  // namespace stackd
