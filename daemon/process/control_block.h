// Threads by what pthread_self() gives in them: with glibc the address of the thread's control block.
#pragma once

#include <cstdint>

#include "daemon/process/process_files.h"

namespace stackd {

// glibc's struct pthread begins with its own address, twice: at 0 and at kControlBlockSelf.
inline constexpr uint64_t kControlBlockAlignment = 64, kControlBlockSelf = 16;

// The tid of the thread whose control block lies at `block_avma`; 0 if none does.
int32_t TidOfControlBlock(const ProcessFiles& files, uint64_t block_avma);

}  // namespace stackd
