// PHP's frames, as agents write them (agent/runtimes/php/php.h).
#pragma once

#include "daemon/managed/runtime_reader.h"

namespace stackd {

class PhpReader : public RuntimeReader {
 public:
  void Read(const RuntimeInput& input, ManagedFacts* facts) override;
};

}  // namespace stackd
