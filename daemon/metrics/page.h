// All metrics of the daemon, as text. Every number is counted where it happens; here it gets its name. Labels come from
// small fixed sets: never a pid, a thread, a name of a process or a fingerprint.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "daemon/collect/collector.h"
#include "daemon/confine/confine_daemon.h"
#include "daemon/http/http_server.h"
#include "daemon/metrics/rpc_metrics.h"
#include "daemon/pipeline/pipeline.h"
#include "daemon/resource/attributes.h"
#include "daemon/store/dump_store.h"
#include "daemon/symbolize/symbolizer.h"

namespace stackd {

using Counters = std::map<std::string, int64_t>;

// All must outlive the server of the page.
struct MeasuredParts {
  const Collector* collector;
  const Pipeline* pipeline;
  const DumpStore* store;
  const Symbolizer* symbolizer;
  const RpcMetrics* calls;
  Attributes place;                        // of the daemon
  Confinement confinement = {};            // of the daemon and its symbol worker
  std::function<Counters()> hangs = {};    // of the hang detection; empty: there is none
  std::function<Counters()> on_dump = {};  // "runs", "failures", "dropped"; empty: no program is run
  std::function<Counters()> otlp = {};     // as OtlpExporter has them; empty: nothing is exported
  std::function<Counters()> memory = {};   // "images", "stacks", "dumps" that had no room; empty: there is no limit
  std::map<std::string, const HttpCounters*> http = {};  // of "health", "metrics", "web"
};

inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

std::string RenderMetrics(const MeasuredParts& parts);

}  // namespace stackd
