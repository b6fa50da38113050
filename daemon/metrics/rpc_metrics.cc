#include "daemon/metrics/rpc_metrics.h"

#include <google/protobuf/descriptor.h>

#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

constexpr std::array<const char*, 17> kCodeNames = {
    "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
    "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
    "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
    "DataLoss", "Unauthenticated"};

const char* TypeOf(const google::protobuf::MethodDescriptor& method) {
  if (method.client_streaming()) return method.server_streaming() ? "bidi_stream" : "client_stream";
  return method.server_streaming() ? "server_stream" : "unary";
}

}  // namespace

RpcMetrics::Counted::Counted(Method* method) : method_(method), begin_ns_(MonotonicNs()) { ++method_->started; }

RpcMetrics::Counted::~Counted() {
  if (!has_ended_) End(grpc::StatusCode::CANCELLED);
}

void RpcMetrics::Counted::End(grpc::StatusCode code) {
  has_ended_ = true;
  const auto index = static_cast<size_t>(code);
  ++method_->handled[index < kCodes ? index : static_cast<size_t>(grpc::StatusCode::UNKNOWN)];
  method_->duration.Observe(MonotonicNs() - begin_ns_);
}

// Lives as long as gRPC knows of the call.
class RpcMetrics::Interceptor : public grpc::experimental::Interceptor {
 public:
  explicit Interceptor(Method* method) : counted_(method) {}

  void Intercept(InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS))
      counted_.End(batch->GetSendStatus().error_code());
    batch->Proceed();
  }

 private:
  Counted counted_;
};

class RpcMetrics::Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(RpcMetrics* metrics) : metrics_(metrics) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* call) override {
    return new Interceptor(metrics_->Find(call->method()));
  }

 private:
  RpcMetrics* const metrics_;
};

RpcMetrics::Method* RpcMetrics::Find(std::string_view path) {
  const auto method = methods_.find(path);
  return method == methods_.end() ? &methods_.find(std::string_view())->second : &method->second;
}

std::unique_ptr<RpcMetrics::Counted> RpcMetrics::Begin(std::string_view path) {
  return std::make_unique<Counted>(Find(path));
}

RpcMetrics::RpcMetrics(std::initializer_list<std::string_view> services) {
  const auto add = [this](const std::string& path, std::string service, std::string name, const char* type) {
    Method& method = methods_[path];
    method.service = std::move(service);
    method.name = std::move(name);
    method.type = type;
  };
  add("", "other", "other", "unary");
  for (const std::string_view service : services) {
    const auto* descriptor = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(std::string(service));
    for (int i = 0; descriptor != nullptr && i < descriptor->method_count(); ++i) {
      const auto& method = *descriptor->method(i);
      add("/" + descriptor->full_name() + "/" + method.name(), descriptor->full_name(), method.name(), TypeOf(method));
    }
  }
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> RpcMetrics::MakeInterceptors() {
  return std::make_unique<Factory>(this);
}

void RpcMetrics::Write(Exposition* out) const {
  const auto labels = [](const Method& method) {
    return std::array<Exposition::Label, 3>{
        {{"grpc_type", method.type}, {"grpc_service", method.service}, {"grpc_method", method.name}}};
  };
  out->Family("counter", "grpc_server_started_total", "Calls that were begun.");
  for (const auto& [path, method] : methods_) out->Sample(labels(method), method.started.load());
  out->Family("counter", "grpc_server_handled_total", "Calls that have ended, by their status.");
  for (const auto& [path, method] : methods_) {
    for (size_t code = 0; code < kCodes; ++code) {
      // There from the start, so that the first one shows as a change: what is well, and what is not.
      const int64_t handled = method.handled[code].load();
      if (handled == 0 && code != 0) continue;
      out->Sample({{"grpc_type", method.type},
                   {"grpc_service", method.service},
                   {"grpc_method", method.name},
                   {"grpc_code", kCodeNames[code]}},
                  handled);
    }
  }
  out->Family("histogram", "grpc_server_handling_seconds", "How long calls took; streams until their end.");
  for (const auto& [path, method] : methods_) {
    // Fifty empty ones would be most of the page.
    if (method.started.load() == 0) continue;
    out->Sample({{"grpc_type", method.type}, {"grpc_service", method.service}, {"grpc_method", method.name}},
                method.duration);
  }
}

}  // namespace stackd
