// Ruby's frames, as agents write them (agent/runtimes/ruby/ruby.h), names of threads, and who waits for locks.
#pragma once

#include <vector>

#include "daemon/managed/runtime_reader.h"

namespace stackd {

class RubyReader : public RuntimeReader {
 public:
  void Read(const RuntimeInput& input, ManagedFacts* facts) override;
  void ReadWaits(const WaitInput& input, std::vector<ManagedWait>* waits) override;
};

}  // namespace stackd
