// The words that threads wait on, out of the memory of their process.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/capture/waits.h"
#include "daemon/process/lock_layout.h"
#include "daemon/process/process_files.h"

namespace stackd {

// More in one process are not looked at.
inline constexpr size_t kMaxFutexWords = 4096;

// Reads the words at `avmas`. Returns them by address, each once, without those that cannot be read. May wait
// (memory_reader.h).
std::vector<FutexWord> ReadFutexWords(const ProcessFiles& files, RwlockLayout layout, std::span<const uint64_t> avmas);

// Sets whether each word lies in memory that other processes may have, by the maps of this moment, because addresses are
// reused. The maps count more than what a lock says of itself.
void MarkShared(const ProcessFiles& files, std::vector<FutexWord>* words);

}  // namespace stackd
