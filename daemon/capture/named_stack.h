#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/capture/language.h"
#include "daemon/capture/native_stack.h"
#include "daemon/capture/source_frame.h"

namespace stackd {

// A function as the runtime that runs it knows it.
struct RuntimeFrame {
  std::string function;
  std::string file;  // empty: not known
  int32_t line = 0;  // 0: not known
  Language language = Language::kUnknown;
  uint64_t pc_avma = 0;   // of compiled code; 0: interpreted
  bool unplaced = false;  // between which native frames it ran is not known
};

// Functions of runtimes, innermost first, that stand right before a native frame.
struct RuntimeCalls {
  size_t native_frame = 0;  // index into NativeStack::frames; their number: after the last
  std::vector<RuntimeFrame> frames;
  bool replaces = false;  // the native frame ran them, and was nothing else
};

// A distinct sequence of program counters, with names: `locations[i]` belongs to `native.frames[i]` and is never null.
struct NamedStack {
  NativeStack native;
  std::vector<std::shared_ptr<const SourceLocation>> locations;
  std::vector<RuntimeCalls> runtime_calls = {};  // by native_frame
};

}  // namespace stackd
