// Perf maps of connected processes, read within a time and a part of the memory for dumps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/byte_budget.h"
#include "daemon/capture/capture.h"
#include "daemon/collect/collector.h"
#include "daemon/symbolize/perf_map_file.h"

namespace stackd {

// Thread-safe.
class PerfMaps {
 public:
  // `collector` must outlive it, and `memory` what it gives; nullptr: there is no limit.
  PerfMaps(const Collector* collector, ByteBudget* memory);

  // That of a process, which has no names where there is none; `Problem` tells of one that was not read by the deadline.
  std::shared_ptr<const PerfMapFile> Read(const std::string& process_id, int64_t deadline_ns) const;
  // While the process of a crash is held; nullptr: it is not, or has no code outside of files.
  std::shared_ptr<const PerfMapFile> ReadOfCrash(const Capture& crash, int64_t deadline_ns) const;

 private:
  const Collector* const collector_;
  const PerfMapLimits limits_;
};

}  // namespace stackd
