// Frames of runtimes whose walkers find lines themselves, as agents write them: PHP's and Ruby's.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/capture/language.h"
#include "daemon/capture/managed_trace.h"
#include "daemon/managed/runtime_reader.h"

namespace stackd {

// What differs from runtime to runtime.
struct LinedRuntime {
  uint32_t runtime;  // stackd_runtime
  Language language;
  const char* interpreter_function;  // that runs an activation; all frames up to a boundary
  std::string (*version_name)(uint64_t version);
  std::string (*function_name)(const ManagedSymbol& symbol);
  const char* unknown_version;  // why a version that is not known has no frames
};

// Adds the runtime, if it is in the process, and the stacks of its threads. A position is a line.
void AddLinedFrames(const RuntimeInput& input, const LinedRuntime& runtime, ManagedFacts* facts);

}  // namespace stackd
