// What a C or C++ program says of its own end, out of the memory of its process.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/modules/address_map.h"
#include "daemon/process/process_files.h"

namespace stackd {

struct LastWords {
  std::string abort_message;   // what glibc keeps for a debugger; empty: nothing
  std::string exception_type;  // mangled, of the C++ exception that was not caught; empty: none
};

// `thread_self_avma`: fs base of the thread that ended the process. The agent's code reads the same memory as `files`.
LastWords ReadLastWords(const AddressMap& map, uint64_t thread_self_avma, const ProcessFiles& files);

}  // namespace stackd
