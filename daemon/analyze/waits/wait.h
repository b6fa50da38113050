// What each thread of a dump waits for, and who must act.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/modules/module.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// A byte of a module's data; `svma`: as the ELF file states it.
struct DataAddress {
  std::shared_ptr<const Module> module;
  uint64_t svma = 0;
};

// The names of the variables at these addresses, one for each, "" where it is not known.
using DataSymbolLookup = std::function<std::vector<std::string>(const std::vector<DataAddress>& addresses)>;

// Fills in `wait` of the threads of `dump`, which is assembled from `capture` and named. `data_symbols` is called once at
// most; without it variables stay unnamed.
void ExplainWaits(const Capture& capture, const DataSymbolLookup& data_symbols, v1::Dump* dump);

}  // namespace stackd
