// The files with code of a captured process, as debuggers list them: each with the range that it is loaded at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/store/raw_capture.h"

namespace stackd {

struct LoadedModule {
  // Where the file's first byte of memory is, or would be: an address minus this is the same in every process.
  uint64_t base_avma;
  uint64_t size_bytes;
  std::string name;
  std::string build_id;  // raw bytes; empty: it has none
};

// The executable first, where it is known; then by address.
std::vector<LoadedModule> LoadedModules(const RawCapture& raw);

}  // namespace stackd
