// What the agent wrote of threads' Python frames, with names and lines.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "daemon/base/shared_text.h"
#include "daemon/capture/managed.h"
#include "daemon/capture/managed_trace.h"

namespace stackd {

// Names the version of a PY_VERSION_HEX: "CPython 3.11.7"; "CPython 3.8" where no more is known.
std::string CpythonName(uint64_t version_hex);

// Why a walk did not reach the last frame; empty: it did.
std::string WalkProblem(int32_t status);

// Decodes the names of a function once, because threads mostly run the same functions. Decodes its line each time that it
// changes from one frame to the next.
class CpythonTraceDecoder {
 public:
  // Decodes traces of one process, which stay where they are as long as this is used. A function whose symbol is not in its
  // own trace has no name: another thread's symbol may be of what lay there before.
  ManagedStack Decode(const ManagedTrace& trace);

 private:
  struct Function {
    uint64_t trace = 0;  // the last that had a symbol for it
    ManagedSymbol symbol;
    SharedText name;
    SharedText file;
    bool has_line = false;
    int64_t position = 0;  // whose line that is
    int32_t line = 0;
  };

  void Learn(const ManagedSymbol& symbol);
  ManagedFrame FrameOf(const ManagedTraceFrame& frame, uint32_t version);

  uint64_t trace_ = 0;                                // counted from 1
  std::unordered_map<uint64_t, Function> functions_;  // by key
};

}  // namespace stackd
