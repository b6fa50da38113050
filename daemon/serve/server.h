// The daemon's gRPC server: its addresses, its services, its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/access/tls_files.h"
#include "daemon/base/loop_watch.h"
#include "daemon/base/result.h"
#include "daemon/collect/collector.h"
#include "daemon/detect/process_health.h"
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
  const LoopWatch* loops = &DaemonLoops();
  std::function<std::map<std::string, int64_t>()> more_counters = {};
  std::map<std::string, std::string, std::less<>> resource_attributes = {};  // of the daemon
  RpcMetrics* calls = nullptr;                                               // nullptr: calls are not counted
};

// Where and for whom.
struct Listening {
  std::string address;      // empty: on the Unix socket only
  TlsFiles tls;             // empty: `address` must be a loopback one
  std::string access_file;  // empty: the built-in roles
};

class Server {
 public:
  // Serves DIR/api.sock and, unless it is empty, the address. Fails with one sentence that says what to
  // change. A socket left behind by a dead daemon is replaced; one with a daemon behind it is not.
  static Result<std::unique_ptr<Server>> Start(const ServedParts& parts, const Listening& listening);
  ~Server();

  // "unix:/run/stackd/api.sock", "127.0.0.1:7443"
  const std::vector<std::string>& addresses() const;

  // Accepts nothing more, ends streams, and waits at most `timeout_ns` for calls that run; then cancels them.
  void Drain(int64_t timeout_ns);

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stackd
