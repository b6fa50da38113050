// What each thread of a dump waits for, and who must act.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "daemon/collect/capture.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// The name of the variable at an address of a module's data, "" if it is not known. `svma`: as the ELF file states it.
using DataSymbolLookup = std::function<std::string(const Module& module, uint64_t svma)>;

// Fills in `wait` of the threads of `dump`, which is assembled from `capture` and named.
void ExplainWaits(const Capture& capture, const DataSymbolLookup& data_symbol, v1::Dump* dump);

}  // namespace stackd
