// Serves grpc.health.v1.Health. The one built into gRPC has no descriptors, so that grpcurl could not call it.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/access/caller_limits.h"
#include "daemon/base/loop_watch.h"
#include "daemon/detect/respond/process_health.h"
#include "daemon/serve/net/listener.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace stackd {

class HealthWatch;

// Knows "", "liveness", "readiness" and "stackd.v1.Stackd". All serve until Drain; then all but "liveness" do not. A daemon
// that finishes its work must not be killed for it. "liveness" does not serve while a loop that all need is stuck.
//
// And "process/NAME" for each watched process: it serves unless a heartbeat of it is missed or threads of it are in a
// deadlock. Drain changes nothing of that: a process must not be killed because its daemon goes.
//
// Every host may ask, but one caller only so often. No call holds a thread.
class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  static constexpr int64_t kCallsPerSecond = 100;  // of one caller; a kubelet makes some in a minute

  // `process_health` may be nullptr: then no process is known. `listener`: of the server.
  HealthService(const ProcessHealth* process_health, const LoopWatch* loops, const Listener* listener);
  ~HealthService() override;

  // Tells watchers, and ends their streams.
  void Drain();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context, const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context, const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;

  struct Watched {
    std::string service;
    std::weak_ptr<HealthWatch> watch;
    ServingStatus told;
  };

  // A user at the Unix socket, else a host.
  std::string CallerOf(const grpc::CallbackServerContext& context) const;
  grpc::Status Begin(const std::string& caller, bool is_watch);
  grpc::Status Answer(const std::string& service, grpc::health::v1::HealthCheckResponse* response);
  bool IsOfProcess(const std::string& service) const;
  bool IsLookedAt(const std::string& service) const;  // its status is not one that is told to the service
  // Must not be called with mutex_: where there are many processes it takes a while.
  ServingStatus StatusOf(const std::string& service);
  // Until Drain: tells clients that watch what is looked at what has changed.
  void LookAgain();

  const ProcessHealth* const process_health_;
  const LoopWatch* const loops_;
  const Listener* const listener_;
  CallerLimits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, ServingStatus> services_;
  bool draining_ = false;
  std::vector<Watched> watches_;
  std::thread looker_;  // from the first call on that watches what is looked at
};

}  // namespace stackd
