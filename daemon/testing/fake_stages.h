// Stages in front of the pipeline, for tests: define Collector, Unwinder and Symbolizer in place of the real ones.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/collect/collector.h"
#include "daemon/symbolize/symbolizer.h"

namespace stackd {

struct FakeStages {
  std::mutex mutex;  // of the fields below
  std::vector<ProcessDescription> processes;
  ProcessActivity activity;  // of each
  std::function<Result<std::shared_ptr<Capture>>(const CaptureRequest&)> capture;
  std::string perf_map;  // of each; empty: none
  bool perf_map_is_late = false;
  std::vector<AddressQuery> symbolized;
  bool unnamed = false;  // no address has a name

  std::atomic<int> captures = 0;
  std::atomic<int> perf_maps_read = 0;
  std::atomic<bool> hurries_crashes = false;
};

// Begins anew: call it first in each test.
FakeStages& ResetFakes();
FakeStages& Fakes();

ProcessDescription FakeProcess(int pid, const std::string& name);

// A capture of `pid` with one thread for each element, whose stack is those program counters, innermost first. They lie in
// a mapping of this test's own executable at kFakeBias.
inline constexpr uint64_t kFakeBias = 0x10000;
std::shared_ptr<Capture> FakeCapture(int pid, const std::vector<std::vector<uint64_t>>& stacks);

std::unique_ptr<Collector> FakeCollector();

}  // namespace stackd
