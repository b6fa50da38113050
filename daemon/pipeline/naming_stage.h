// Gives frames and variables their names.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/analyze/waits/wait.h"
#include "daemon/capture/capture.h"
#include "daemon/capture/named_stack.h"
#include "daemon/symbolize/imported_calls.h"
#include "daemon/symbolize/symbolizer.h"

namespace stackd {

// The name of code outside of files; empty if it is not known.
using NameCode = std::function<std::string(uint64_t avma)>;

// Thread-safe.
class NamingStage {
 public:
  explicit NamingStage(Symbolizer* symbolizer) : symbolizer_(symbolizer) {}

  // Asks for each address once, however many stacks go through it.
  void Name(const Capture& capture, const NameCode& name_code, int64_t deadline_ns, std::vector<NamedStack>* stacks);
  std::vector<std::string> NameVariables(const std::vector<DataAddress>& addresses, int64_t deadline_ns);

 private:
  // Names what no symbol covers as it was called, if that was from another file.
  void NameByCalls(const Capture& capture, NamedStack* stack);

  Symbolizer* const symbolizer_;
  ImportedCalls imported_calls_;
};

}  // namespace stackd
