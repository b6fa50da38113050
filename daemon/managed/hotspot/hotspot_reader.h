// Java in HotSpot, releases 8 to 26: frames, names, lines, threads and locks. They are read out of the process's memory by
// the tables that the VM keeps for debuggers. Nothing runs in the VM, and no safepoint is waited for.
#pragma once

#include <memory>
#include <vector>

#include "daemon/managed/runtime_reader.h"

namespace stackd {

namespace hotspot {
class KnownVms;
}

class HotSpotReader : public RuntimeReader {
 public:
  HotSpotReader();
  ~HotSpotReader() override;

  void Read(const RuntimeInput& input, ManagedFacts* facts) override;
  void ReadWaits(const WaitInput& input, std::vector<ManagedWait>* waits) override;

 private:
  const std::unique_ptr<hotspot::KnownVms> known_vms_;
};

}  // namespace stackd
