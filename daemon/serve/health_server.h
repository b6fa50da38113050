// grpc.health.v1.Health alone, for probes that dial the pod's address: no other service, and no reflection. What it tells,
// a service that serves or does not, is for anybody.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/result.h"
#include "daemon/detect/process_health.h"
#include "daemon/metrics/rpc_metrics.h"

namespace stackd {

class HealthServer {
 public:
  // `listen` as ListenForAnybody has it. Both others must outlive the server. Fails with one sentence that says what to
  // change.
  static Result<std::unique_ptr<HealthServer>> Start(const std::string& listen, const ProcessHealth* process_health,
                                                     RpcMetrics* calls);
  ~HealthServer();

  // "[::]:7444", with the port that it has.
  const std::string& address() const;

  // From now on readiness is NOT_SERVING; liveness stays, and is told until the end.
  void Drain();

 private:
  struct State;
  explicit HealthServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stackd
