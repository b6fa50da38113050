#include "daemon/serve/health.h"

#include <deque>
#include <utility>

namespace stackd {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using Reactor = grpc::ServerWriteReactor<HealthCheckResponse>;

constexpr size_t kMaxWatches = 64;

class RefusedCall : public Reactor {
 public:
  explicit RefusedCall(grpc::Status status) { Finish(std::move(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

// One stream. A status changes once in the life of a daemon, so the queue never holds more than two.
class HealthWatch {
 public:
  explicit HealthWatch(Reactor* reactor) : reactor_(reactor) {}

  void Tell(HealthCheckResponse::ServingStatus status) {
    std::unique_lock lock(mutex_);
    if (!ending_) queue_.push_back(status);
    Advance(std::move(lock));
  }

  void Written(bool ok) {
    std::unique_lock lock(mutex_);
    busy_ = false;
    if (!ok) ending_ = true;
    Advance(std::move(lock));
  }

  void End(grpc::Status status) {
    std::unique_lock lock(mutex_);
    ending_ = true;
    status_ = std::move(status);
    Advance(std::move(lock));
  }

 private:
  // gRPC may call back from within StartWrite and Finish, so these are called without the lock.
  void Advance(std::unique_lock<std::mutex> lock) {
    if (busy_ || finished_) return;
    if (!queue_.empty()) {
      busy_ = true;
      response_.set_status(queue_.front());
      queue_.pop_front();
      lock.unlock();
      reactor_->StartWrite(&response_);
    } else if (ending_) {
      finished_ = true;
      grpc::Status status = status_;
      lock.unlock();
      reactor_->Finish(std::move(status));
    }
  }

  Reactor* const reactor_;  // valid until Finish was called
  std::mutex mutex_;
  std::deque<HealthCheckResponse::ServingStatus> queue_;
  HealthCheckResponse response_;
  bool busy_ = false;
  bool ending_ = false;
  bool finished_ = false;
  grpc::Status status_ = grpc::Status::CANCELLED;
};

namespace {

class WatchCall : public Reactor {
 public:
  WatchCall() : watch_(std::make_shared<HealthWatch>(this)) {}
  const std::shared_ptr<HealthWatch>& watch() const { return watch_; }

  void OnWriteDone(bool ok) override { watch_->Written(ok); }
  void OnCancel() override { watch_->End(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }

 private:
  std::shared_ptr<HealthWatch> watch_;
};

}  // namespace

HealthService::HealthService() {
  for (const char* service : {"", "liveness", "readiness", "stackd.v1.Stackd"}) {
    services_[service] = HealthCheckResponse::SERVING;
  }
}

HealthService::ServingStatus HealthService::StatusOf(const std::string& service) const {
  auto entry = services_.find(service);
  return entry == services_.end() ? HealthCheckResponse::SERVICE_UNKNOWN : entry->second;
}

void HealthService::Drain() {
  std::vector<std::weak_ptr<HealthWatch>> watches;
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
    for (auto& [service, status] : services_) {
      if (service != "liveness") status = HealthCheckResponse::NOT_SERVING;
    }
    watches.swap(watches_);
  }
  for (const auto& weak : watches) {
    auto watch = weak.lock();
    if (watch == nullptr) continue;
    watch->Tell(HealthCheckResponse::NOT_SERVING);
    watch->End({grpc::StatusCode::UNAVAILABLE, "stackd is shutting down"});
  }
}

grpc::Status HealthService::Check(grpc::ServerContext*, const HealthCheckRequest* request, HealthCheckResponse* response) {
  std::lock_guard lock(mutex_);
  ServingStatus status = StatusOf(request->service());
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    return {grpc::StatusCode::NOT_FOUND, "the services are \"\", \"liveness\", \"readiness\" and \"stackd.v1.Stackd\""};
  }
  response->set_status(status);
  return grpc::Status::OK;
}

Reactor* HealthService::Watch(grpc::CallbackServerContext*, const HealthCheckRequest* request) {
  std::unique_lock lock(mutex_);
  std::erase_if(watches_, [](const auto& watch) { return watch.expired(); });
  if (draining_) return new RefusedCall({grpc::StatusCode::UNAVAILABLE, "stackd is shutting down"});
  if (watches_.size() >= kMaxWatches) {
    return new RefusedCall({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls watch the health already"});
  }
  auto* call = new WatchCall;
  std::shared_ptr<HealthWatch> watch = call->watch();
  watches_.push_back(watch);
  ServingStatus status = StatusOf(request->service());
  lock.unlock();
  watch->Tell(status);
  return call;
}

}  // namespace stackd
