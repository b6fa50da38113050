// The parts of the daemon that calls come to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "daemon/base/loop_watch.h"
#include "daemon/collect/collector.h"
#include "daemon/detect/respond/process_health.h"
#include "daemon/http/http_server.h"
#include "daemon/metrics/rpc_metrics.h"
#include "daemon/pipeline/pipeline.h"
#include "daemon/store/dump_store.h"
#include "daemon/symbolize/symbolizer.h"

namespace stackd {

// All must outlive the server.
struct ServedParts {
  Collector* collector;
  Pipeline* pipeline;
  DumpStore* store;
  Symbolizer* symbolizer;
  std::string dir;
  std::string store_file;
  size_t watch_queue_limit = 1000;
  const ProcessHealth* process_health = nullptr;  // nullptr: the health service knows no process
  // Counts the threads that moved, of the process with that id; nullopt where none are looked at.
  std::function<std::optional<int32_t>(const std::string&)> moving_threads = {};
  const LoopWatch* loops = &DaemonLoops();
  std::function<std::map<std::string, int64_t>()> more_counters = {};
  std::map<std::string, std::string, std::less<>> resource_attributes = {};  // of the daemon
  RpcMetrics* calls = nullptr;                                               // nullptr: calls are not counted
  HttpCounters* web = nullptr;                                               // needed where a page is served
};

}  // namespace stackd
