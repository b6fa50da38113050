// One dump of a process that is read by its pid: the same stages as behind a capture of an agent, without a daemon.
#pragma once

#include <cstdint>
#include <memory>

#include "daemon/base/result.h"
#include "daemon/managed/managed_reader.h"
#include "daemon/outside/outside_capture.h"
#include "daemon/pipeline/dump_stages.h"
#include "daemon/symbolize/perf_map_file.h"
#include "daemon/symbolize/symbolizer.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Reads one process. A program has one of these, as of OutsideCapture.
class OutsideDump {
 public:
  // Fails as OutsideCapture::Open.
  static Result<std::unique_ptr<OutsideDump>> Open(int32_t pid);

  // A new dump, whole (view FULL), by `request.deadline_ns`. It is not stored.
  Result<std::shared_ptr<const v1::Dump>> Take(const OutsideRequest& request);

 private:
  explicit OutsideDump(std::unique_ptr<OutsideCapture> capture)
      : capture_(std::move(capture)), symbolizer_({}), stages_(&symbolizer_, /*dumps=*/nullptr, &measures_) {}

  const std::unique_ptr<OutsideCapture> capture_;
  Symbolizer symbolizer_;
  PipelineMeasures measures_;
  DumpStages stages_;
  const ManagedReader managed_;
  const std::shared_ptr<PerfMapFile> perf_map_ = std::make_shared<PerfMapFile>();
};

}  // namespace stackd
