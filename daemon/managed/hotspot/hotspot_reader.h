// Java in HotSpot, releases 8 to 26: frames, names, lines, threads and locks, out of the process's memory and by the
// tables that the VM keeps for debuggers. Nothing runs in the VM, and no safepoint is waited for.
#pragma once

#include "daemon/managed/runtime_reader.h"

namespace stackd {

class HotSpotReader : public RuntimeReader {
 public:
  void Read(const RuntimeInput& input, ManagedFacts* facts) override;
};

}  // namespace stackd
