// grpc.health.v1.Health, by ourselves: the one built into gRPC has no descriptors, so that grpcurl could not call it.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"

namespace stackd {

class HealthWatch;

// Knows "", "liveness", "readiness" and "stackd.v1.Stackd". All serve until Drain; then all but "liveness" do not: a daemon
// that finishes its work must not be killed for it.
class HealthService final : public grpc::health::v1::Health::WithCallbackMethod_Watch<grpc::health::v1::Health::Service> {
 public:
  HealthService();

  // Tells watchers, and ends their streams.
  void Drain();

  grpc::Status Check(grpc::ServerContext* context, const grpc::health::v1::HealthCheckRequest* request,
                     grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context, const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;

  // Requires: mutex_ is held.
  ServingStatus StatusOf(const std::string& service) const;

  std::mutex mutex_;
  std::map<std::string, ServingStatus> services_;
  bool draining_ = false;
  std::vector<std::weak_ptr<HealthWatch>> watches_;
};

}  // namespace stackd
