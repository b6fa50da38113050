#include "daemon/serve/health/health.h"

#include <chrono>
#include <deque>
#include <functional>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/serve/requests/rpc_status.h"

namespace stackd {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using Reactor = grpc::ServerWriteReactor<HealthCheckResponse>;

constexpr size_t kMaxWatches = 64;
constexpr std::string_view kLiveness = "liveness";
constexpr std::string_view kProcess = "process/";
constexpr CallRates kRates{.calls_per_second = HealthService::kCallsPerSecond};
// A change in a process, or in the daemon's loops, is told so soon.
constexpr auto kLookEvery = std::chrono::milliseconds(200);

HealthCheckResponse::ServingStatus ToStatus(Health health) {
  switch (health) {
    case Health::kWell:
      return HealthCheckResponse::SERVING;
    case Health::kIll:
      return HealthCheckResponse::NOT_SERVING;
    case Health::kUnknown:
      break;
  }
  return HealthCheckResponse::SERVICE_UNKNOWN;
}

HealthCheckResponse::ServingStatus ToStatus(const LoopWatch& loops) {
  return loops.Stuck(/*that_hold_up_all=*/true).empty() ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

HealthCheckResponse::ServingStatus StatusIn(const std::map<std::string, Health>& health, const std::string& name) {
  const auto known = health.find(name);
  return ToStatus(known == health.end() ? Health::kUnknown : known->second);
}

std::string NameOf(const std::string& service) { return service.substr(kProcess.size()); }

class RefusedCall : public Reactor {
 public:
  explicit RefusedCall(grpc::Status status) { Finish(std::move(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

// One stream. What was not sent yet is replaced by what is true now.
class HealthWatch {
 public:
  explicit HealthWatch(Reactor* reactor) : reactor_(reactor) {}

  void Tell(HealthCheckResponse::ServingStatus status) {
    std::unique_lock lock(mutex_);
    if (!ending_) {
      queue_.clear();
      queue_.push_back(status);
    }
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
  explicit WatchCall(std::function<void()> on_done)
      : on_done_(std::move(on_done)), watch_(std::make_shared<HealthWatch>(this)) {}
  const std::shared_ptr<HealthWatch>& watch() const { return watch_; }

  void OnWriteDone(bool ok) override { watch_->Written(ok); }
  void OnCancel() override { watch_->End(grpc::Status::CANCELLED); }
  void OnDone() override {
    on_done_();
    delete this;
  }

 private:
  const std::function<void()> on_done_;
  std::shared_ptr<HealthWatch> watch_;
};

}  // namespace

HealthService::HealthService(const ProcessHealth* process_health, const LoopWatch* loops, const Listener* listener)
    : process_health_(process_health), loops_(loops), listener_(listener) {
  for (const char* service : {"", "readiness", "stackd.v1.Stackd"}) {
    services_[service] = HealthCheckResponse::SERVING;
  }
}

HealthService::~HealthService() { Drain(); }

bool HealthService::IsOfProcess(const std::string& service) const {
  return process_health_ != nullptr && service.starts_with(kProcess);
}

bool HealthService::IsLookedAt(const std::string& service) const { return service == kLiveness || IsOfProcess(service); }

HealthService::ServingStatus HealthService::StatusOf(const std::string& service) {
  if (service == kLiveness) return ToStatus(*loops_);
  if (IsOfProcess(service)) return ToStatus(process_health_->Of(NameOf(service)));
  std::lock_guard lock(mutex_);
  auto entry = services_.find(service);
  return entry == services_.end() ? HealthCheckResponse::SERVICE_UNKNOWN : entry->second;
}

void HealthService::Drain() {
  std::vector<Watched> watches;
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
    changed_.notify_all();
    for (auto& [service, status] : services_) status = HealthCheckResponse::NOT_SERVING;
    watches.swap(watches_);
  }
  if (looker_.joinable()) looker_.join();
  for (const Watched& watched : watches) {
    auto watch = watched.watch.lock();
    if (watch == nullptr) continue;
    if (!IsLookedAt(watched.service)) watch->Tell(HealthCheckResponse::NOT_SERVING);
    watch->End({grpc::StatusCode::UNAVAILABLE, "stackd is shutting down"});
  }
}

void HealthService::LookAgain() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookEvery, [this] { return draining_; })) {
    lock.unlock();
    const std::map<std::string, Health> health =
        process_health_ ? process_health_->OfAll() : std::map<std::string, Health>();
    const ServingStatus alive = ToStatus(*loops_);
    lock.lock();
    std::vector<std::pair<std::shared_ptr<HealthWatch>, ServingStatus>> changes;
    for (Watched& watched : watches_) {
      if (!IsLookedAt(watched.service)) continue;
      const ServingStatus status = watched.service == kLiveness ? alive : StatusIn(health, NameOf(watched.service));
      auto watch = watched.watch.lock();
      if (watch == nullptr || status == watched.told) continue;
      watched.told = status;
      changes.emplace_back(std::move(watch), status);
    }
    lock.unlock();
    for (const auto& [watch, status] : changes) watch->Tell(status);
    changes.clear();
    lock.lock();
  }
}

std::string HealthService::CallerOf(const grpc::CallbackServerContext& context) const {
  const std::string peer = context.peer();
  if (const auto unix_peer = listener_->PeerOf(peer)) return unix_peer->Name();
  return peer.substr(0, peer.rfind(':'));
}

grpc::Status HealthService::Begin(const std::string& caller, bool is_watch) {
  const auto begun = limits_.BeginCall({.caller = caller}, is_watch, kRates, MonotonicNs());
  if (begun) return grpc::Status::OK;
  return ToGrpcStatus(begun.error().status, {.retry_after_ns = begun.error().retry_after_ns});
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context, const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  const std::string caller = CallerOf(*context);
  grpc::Status status = Begin(caller, /*is_watch=*/false);
  if (status.ok()) {
    status = Answer(request->service(), response);
    limits_.EndCall(caller, /*is_stream=*/false);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(std::move(status));
  return reactor;
}

grpc::Status HealthService::Answer(const std::string& service, HealthCheckResponse* response) {
  const ServingStatus status = StatusOf(service);
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    return {
        grpc::StatusCode::NOT_FOUND,
        "the services are \"\", \"liveness\", \"readiness\", \"stackd.v1.Stackd\", and \"process/NAME\" for each connected "
        "process"};
  }
  response->set_status(status);
  return grpc::Status::OK;
}

Reactor* HealthService::Watch(grpc::CallbackServerContext* context, const HealthCheckRequest* request) {
  const std::string caller = CallerOf(*context);
  if (grpc::Status begun = Begin(caller, /*is_watch=*/true); !begun.ok()) return new RefusedCall(std::move(begun));
  const auto end = [this, caller] { limits_.EndCall(caller, /*is_stream=*/true); };
  const ServingStatus status = StatusOf(request->service());
  std::unique_lock lock(mutex_);
  std::erase_if(watches_, [](const Watched& watched) { return watched.watch.expired(); });
  if (draining_ || watches_.size() >= kMaxWatches) {
    end();
    if (draining_) return new RefusedCall({grpc::StatusCode::UNAVAILABLE, "stackd is shutting down"});
    return new RefusedCall({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls watch the health already"});
  }
  auto* call = new WatchCall(end);
  std::shared_ptr<HealthWatch> watch = call->watch();
  watches_.push_back({request->service(), watch, status});
  if (IsLookedAt(request->service()) && !looker_.joinable()) looker_ = std::thread([this] { LookAgain(); });
  lock.unlock();
  watch->Tell(status);
  return call;
}

}  // namespace stackd
