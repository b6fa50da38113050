// The input is the managed part of a record, as an agent in PHP writes it. Each frame must have a name that can be shown.
#include <stdlib.h>

#include <limits>
#include <span>
#include <string>

#include "daemon/base/text.h"
#include "daemon/managed/php/php_reader.h"
#include "daemon/ring/managed_record.h"

namespace stackd {
namespace {

void Check(bool holds) {
  if (!holds) abort();
}

bool IsShown(const std::string& text) { return ToValidUtf8(text) == text; }

}  // namespace
}  // namespace stackd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stackd;
  Capture capture;
  ThreadCapture& thread = capture.threads.emplace_back();
  thread.tid = 7;
  thread.traces = ParseManaged({reinterpret_cast<const char*>(data), size});
  size_t frames = 0;
  for (ManagedTrace& trace : thread.traces) {
    trace.runtime = STACKD_RUNTIME_PHP;
    frames += trace.frames.size();
  }
  ManagedFacts facts;
  PhpReader().Read({capture, nullptr, std::numeric_limits<int64_t>::max()}, &facts);
  Check(facts.runtimes.size() <= thread.traces.size());
  for (const RuntimeDescription& runtime : facts.runtimes) Check(IsShown(runtime.name));
  for (const auto& [tid, managed] : facts.threads) {
    Check(tid == 7 && managed.stacks.size() == 1 && managed.stacks[0].frames.size() <= frames);
    for (const ManagedFrame& frame : managed.stacks[0].frames) {
      Check(frame.boundary || !frame.function.empty());
      Check(IsShown(frame.function) && IsShown(frame.file) && frame.line >= 0);
    }
  }
  return 0;
}
