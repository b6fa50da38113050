// JavaScript frames, as agents of Node.js processes wrote them, become names, files and lines.
#pragma once

#include "daemon/managed/runtime_reader.h"

namespace stackd {

class V8Reader : public RuntimeReader {
 public:
  void Read(const RuntimeInput& input, ManagedFacts* facts) override;
};

}  // namespace stackd
