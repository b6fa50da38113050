// Python frames, as agents write them (agent/runtimes/cpython/cpython.h), and the owner and the waiters of the global
// interpreter lock.
#pragma once

#include <vector>

#include "daemon/managed/runtime_reader.h"

namespace stackd {

class CpythonReader : public RuntimeReader {
 public:
  void Read(const RuntimeInput& input, ManagedFacts* facts) override;
  void ReadWaits(const WaitInput& input, std::vector<ManagedWait>* waits) override;
};

}  // namespace stackd
